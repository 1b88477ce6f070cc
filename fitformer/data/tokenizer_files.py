"""The tokenizer of a prepared corpus as files: opened again by later stages, or brought along from a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitformer.data.encoding import Encoder
from fitformer.errors import DataError
from fitformer.rundir import atomic_path, read_json
from fitformer.runtime.tokenizer import Tokenizer, load_tokenizer

SENTENCEPIECE = "sentencepiece"
SUBWORD_MODELS = ("unigram", "bpe")  # ways to learn the pieces of a SentencePiece model


@dataclass(frozen=True)
class TokenizerSource:
    """A tokenizer that is there already: its kind and files as a bundle has them (one file for both sides if joint)."""

    kind: str
    source: Path
    target: Path
    codes: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def install(self, folder: Path, source_language: str, target_language: str) -> tuple[Encoder, dict[str, Any]]:
        """Copy the files into a prepared folder; return what encodes with them and the facts for ``stats.json``.

        Raises:
            BundleError: a file does not hold a tokenizer of the kind.
        """
        joint = self.source == self.target
        names = {side: self._name("joint" if joint else side) for side in ("source", "target")}
        copies = {folder / names["source"]: self.source, folder / names["target"]: self.target}
        facts: dict[str, Any] = {"kind": self.kind, "joint": joint, "models": names, "options": dict(self.options)}
        if self.codes is not None:
            facts["codes"] = "codes.tokenizer.txt"
            copies[folder / facts["codes"]] = self.codes
        for copy, path in copies.items():
            with atomic_path(copy) as temporary:
                shutil.copyfile(path, temporary)
        source, target = _load(folder, facts, (source_language, target_language))
        facts["vocab_size"] = {"source": source.vocab_size, "target": target.vocab_size}
        if self.kind == SENTENCEPIECE:
            return Encoder(*(folder / names[side] for side in ("source", "target"))), facts
        return TokenizerEncoder(source, target), facts

    def _name(self, side: str) -> str:
        return f"{side}.model" if self.kind == SENTENCEPIECE else f"{side}.tokenizer.txt"


class TokenizerEncoder(Encoder):
    """An ``Encoder`` of any kind of tokenizer."""

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._tokenizers = source, target
        self.source_vocab_size, self.target_vocab_size = source.vocab_size, target.vocab_size

    def encode(self, pairs: list[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Return the token ids of each pair, without begin and end marks."""
        source, target = self._tokenizers
        sources, targets = source.encode([pair[0] for pair in pairs]), target.encode([pair[1] for pair in pairs])
        return list(zip(sources, targets, strict=True))


def prepared_tokenizers(prepared: Path) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer of a prepared corpus.

    Raises:
        DataError: its ``stats.json`` does not say which.
        BundleError: a file is missing or does not hold a tokenizer of its kind.
    """
    stats = read_json(prepared / "stats.json")
    try:
        return _load(prepared, stats["tokenizer"], (stats["source_language"], stats["target_language"]))
    except (KeyError, TypeError):
        raise DataError(f"{prepared / 'stats.json'}: names no tokenizer; run the prepare stage again") from None


def bundle_kind(facts: Mapping[str, Any]) -> str:
    """The kind, as a bundle calls it, of the tokenizer that ``stats.json`` describes."""
    return SENTENCEPIECE if facts["kind"] in SUBWORD_MODELS else str(facts["kind"])


def _load(folder: Path, facts: Mapping[str, Any], languages: tuple[str, str]) -> tuple[Tokenizer, Tokenizer]:
    kind, codes = bundle_kind(facts), facts.get("codes")
    source, target = (
        load_tokenizer(
            kind,
            folder / facts["models"][side],
            codes=folder / codes if codes else None,
            options=facts.get("options") or {},
            language=language,
        )
        for side, language in zip(("source", "target"), languages, strict=True)
    )
    return source, target
