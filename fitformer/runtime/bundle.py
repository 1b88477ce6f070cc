"""Opens a bundle: the folder with ``fitformer.json``, tokenizer and graphs that is all a user needs on the target.

``Bundle.load`` checks that the folder is whole before anything runs, so that a broken copy is one clear line
and not a strange translation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.errors import BundleError, InputError, nearest
from fitformer.rundir import read_json, sha256
from fitformer.runtime.decoding import BOS, EOS, DecodeSettings
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.tokenizer import Tokenizer, load_tokenizer

FACTS_FILE = "fitformer.json"
FORMAT_VERSION = 1
TASKS = ("translation",)
REQUIRED = {
    "format_version": int,
    "task": str,
    "model": dict,
    "precision": str,
    "tokenizer": dict,
    "graphs": dict,
    "max_source_length": int,
    "decoding": dict,
    "files": dict,
}
PRECISIONS = ("fp32", "int8")
DECISIVE = ["task", "source_language", "target_language", "architecture", "model", "precision", "tokenizer"]
DECISIVE += ["graphs", "max_source_length", "decoding", "files"]
COPY_AGAIN = "copy the bundle again or export it again"


@dataclass(frozen=True)
class Bundle:
    """A bundle that has been read. ``facts`` is the whole of ``fitformer.json``."""

    path: Path
    facts: dict[str, Any]

    @classmethod
    def load(cls, path: Path | str, *, check: bool = True) -> Bundle:
        """Read the bundle in the folder ``path``; ``check`` compares the checksum of every file.

        Raises:
            BundleError: no folder, no or unreadable facts, a newer format, an unknown task, a missing or changed file.
        """
        path = Path(path)
        if not path.is_dir():
            what = "no such folder" if not path.exists() else "not a folder"
            raise BundleError(f"{path}: {what}; a bundle is the folder that 'fitformer export' writes")
        facts = _read_facts(path / FACTS_FILE)
        bundle = cls(path, facts)
        for name, checksum in facts["files"].items():
            file = bundle.file(name)
            if not file.is_file():
                raise BundleError(f"{file}: the file is missing; {COPY_AGAIN}")
            if check and sha256(file) != checksum:
                raise BundleError(f"{file}: the checksum differs from the one in {FACTS_FILE}; {COPY_AGAIN}")
        return bundle

    def file(self, name: object) -> Path:
        """Path of a file of the bundle; names that lead out of the folder are refused with ``BundleError``."""
        if not isinstance(name, str) or not name or Path(name).name != name or "\\" in name:
            raise BundleError(f"{self.path / FACTS_FILE}: {name!r} is not the name of a file in the bundle")
        return self.path / name

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Source and target tokenizer; one object when they are the same."""
        entry = dict(self.facts["tokenizer"])
        kind, codes = str(entry.pop("kind", None)), entry.pop("codes", None)
        files = {side: self.file(entry.pop(side, None)) for side in ("source", "target")}
        merges = None if codes is None else self.file(codes)

        def load(side: str) -> Tokenizer:
            language = str(self.facts.get(f"{side}_language") or "en")
            return load_tokenizer(kind, files[side], codes=merges, options=entry, language=language)

        source = load("source")
        # One file can serve two languages, but its text is tokenised by the rules of each.
        same = files["source"] == files["target"] and not entry.get("moses")
        return source, source if same else load("target")

    def step_model(self, threads: int) -> OnnxStepModel:
        """Load the graphs into ONNX Runtime for ``threads`` processor threads."""
        graphs = self.facts["graphs"]
        encoder, decoder = (self.file(graphs.get(part)) for part in ("encoder", "decoder"))
        return OnnxStepModel(encoder, decoder, threads=threads, start_id=self.facts["model"].get("start_id", BOS))

    @property
    def name(self) -> str:
        """What people call it: the recipe that it came from, or else its folder."""
        training = self.facts.get("training")
        recipe = training.get("recipe") if isinstance(training, dict) else None
        return str(recipe or self.path.absolute().name)

    @property
    def identity(self) -> str:
        """A digest of all that decides what it translates; what was measured since (scores, latencies) is left out."""
        known = json.dumps({key: self.facts.get(key) for key in DECISIVE}, sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    @property
    def decode_settings(self) -> DecodeSettings:
        """The bundle's own settings for decoding; a sentence with words is never translated to nothing."""
        entry = {"min_length": 1, **self.facts["decoding"]}
        try:
            return DecodeSettings(**entry)
        except TypeError:
            known = DecodeSettings.__dataclass_fields__
            word = next((key for key in entry if key not in known), "")
            hint = f"'{word}' is unknown{nearest(word, known)}" if word else "a value is of the wrong type"
            raise BundleError(f"{self.path / FACTS_FILE}: decoding: {hint}") from None

    @property
    def max_source_length(self) -> int:
        """Most source tokens the model reads, eos among them."""
        return int(self.facts["max_source_length"])

    @property
    def max_target_length(self) -> int:
        """Most target tokens without eos: the model has a position for each of them and for bos."""
        return int(self.facts["model"].get("max_positions", 1024)) - 1

    @property
    def precision(self) -> str:
        """``fp32`` or ``int8``."""
        return str(self.facts["precision"])

    @property
    def rows_independent(self) -> bool:
        """Whether sentences of a batch cannot influence each other: always in fp32, in int8 if its form says so."""
        return self.precision == "fp32" or bool(self.facts.get("quantization", {}).get("rows_independent"))


def _read_facts(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise BundleError(f"{file}: no such file, so the folder is not a bundle; give the folder of a finished export")
    try:
        facts = read_json(file)
    except InputError as error:
        raise BundleError(f"{error}; {COPY_AGAIN}") from None
    if not isinstance(facts, dict):
        raise BundleError(f"{file}: holds no JSON object; {COPY_AGAIN}")
    version = facts.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise BundleError(f"{file}: bundle format {version}, this fitformer reads up to {FORMAT_VERSION}; upgrade it")
    for key, kind in REQUIRED.items():
        if not isinstance(facts.get(key), kind):
            state = "is missing" if key not in facts else f"is not of the type {kind.__name__}"
            raise BundleError(f"{file}: the key '{key}' {state}; {COPY_AGAIN}")
    for key, known in (("task", TASKS), ("precision", PRECISIONS)):
        if facts[key] not in known:
            hint = nearest(facts[key], known)
            raise BundleError(f"{file}: {key} '{facts[key]}' is unknown{hint}; known are {', '.join(known)}")
    wrong = next(_wrong_values(facts), None)
    if wrong is not None:
        raise BundleError(f"{file}: {wrong}; {COPY_AGAIN}")
    return facts


def _wrong_values(facts: dict[str, Any]) -> Iterator[str]:
    """What is there but cannot be used, each in a few words."""
    if facts["max_source_length"] < 2:
        yield f"max_source_length {facts['max_source_length']} leaves no room for a token and the end of the sentence"
    for key in ("max_positions", "source_vocab_size"):
        value = facts["model"].get(key)
        if not isinstance(value, int) or value < 2:
            yield f"model: '{key}' is {value!r}, not a whole number of at least 2"
    if (start := facts["model"].get("start_id", BOS)) not in (BOS, EOS):
        yield f"model: 'start_id' is {start!r}, not {BOS} or {EOS}"
    parts = (facts["graphs"], ("encoder", "decoder")), (facts["tokenizer"], ("source", "target"))
    for entry, sides in parts:
        for side in sides:
            if entry.get(side) not in facts["files"]:
                yield f"the file of the {side}, {entry.get(side)!r}, is not among 'files'"
    codes = facts["tokenizer"].get("codes")
    if codes is not None and codes not in facts["files"]:
        yield f"the file of the codes, {codes!r}, is not among 'files'"
