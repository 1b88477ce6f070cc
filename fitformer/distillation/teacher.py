"""Teachers: whatever translates lines, from a folder on this machine: a bundle, or a Hugging Face model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from fitformer.errors import InputError
from fitformer.rundir import sha256
from fitformer.runtime.bundle import FACTS_FILE, Bundle
from fitformer.runtime.translator import Translator

INSTALL = "pip install 'fitformer[teacher]'"
CONFIG_FILE, WEIGHTS_ENDING = "config.json", ".safetensors"
# What a model's folder holds beside the model: words for people, and weights in a form that is not read.
NOT_THE_MODEL = (".md", ".bin", ".pt", ".h5", ".msgpack", ".ot", ".onnx", ".png")


class Teacher(Protocol):
    """Translates lines."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """One translation per line, in order; an empty one where there is none."""
        ...


@dataclass(frozen=True)
class TeacherSource:
    """Where a teacher is and how it is asked; it is loaded by ``open`` only, which a finished training never needs.

    ``languages`` are source and target as a multilingual Hugging Face model calls them; ``prefix`` is written before
    every line.
    """

    folder: Path
    beam: int = 5
    batch: int = 32
    prefix: str = ""
    languages: tuple[str, str] | None = None

    @property
    def is_bundle(self) -> bool:
        """A bundle, or else a Hugging Face model."""
        return (self.folder / FACTS_FILE).exists()

    def check(self, source_language: str, target_language: str) -> None:
        """Tell at once what would only come out when the teacher is needed, perhaps after days of other stages.

        Raises:
            InputError: the folder holds no teacher, or one of other languages, or transformers is missing.
        """
        if not self.folder.is_dir():
            state = "is not a folder" if self.folder.exists() else "no such folder"
            raise InputError(f"train.teacher: {self.folder}: {state}")
        if self.is_bundle:
            facts = Bundle.load(self.folder).facts
            found = facts.get("source_language"), facts.get("target_language")
            if found != (source_language, target_language):
                raise InputError(
                    f"train.teacher: the bundle {self.folder} translates {found[0]} to {found[1]}, and the recipe "
                    f"{source_language} to {target_language}"
                )
            if self.languages is not None:
                raise InputError(
                    "train.teacher_languages: belongs to a multilingual Hugging Face teacher, not a bundle"
                )
            return
        if not (self.folder / CONFIG_FILE).is_file():
            raise InputError(
                f"train.teacher: {self.folder}: no bundle ({FACTS_FILE}) and no Hugging Face model ({CONFIG_FILE})"
            )
        if not any(path.suffix == WEIGHTS_ENDING for path in self._files):
            raise InputError(
                f"train.teacher: {self.folder}: has no *{WEIGHTS_ENDING}; weights in a pickle can run code and are "
                "never read: load them where you trust them, and call save_pretrained"
            )
        if find_spec("transformers") is None:
            raise InputError(
                f"train.teacher: {self.folder} is a Hugging Face model, which needs transformers: {INSTALL}"
            )

    @cached_property
    def _files(self) -> list[Path]:
        """The files of a Hugging Face model that decide what it says."""
        found = sorted(path for path in self.folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return [path for path in found if path.suffix not in NOT_THE_MODEL]

    @cached_property
    def identity(self) -> str:
        """A digest of the teacher's files: another model in the same place is another teacher."""
        if self.is_bundle:
            return Bundle.load(self.folder).identity
        digest = hashlib.sha256()
        for path in self._files:
            digest.update(f"{path.name} {sha256(path)}\n".encode())
        return digest.hexdigest()[:16]

    @property
    def asked(self) -> dict[str, Any]:
        """The settings that decide what it answers (how many lines at a time is a matter of speed)."""
        return {"identity": self.identity, "beam": self.beam, "prefix": self.prefix, "languages": self.languages}

    @property
    def facts(self) -> dict[str, Any]:
        """What is recorded about the teacher."""
        folder = self.folder.absolute()
        name = Bundle.load(folder, check=False).name if self.is_bundle else folder.name
        kind = "fitformer bundle" if self.is_bundle else "Hugging Face model"
        return {"folder": str(folder), "name": name, "kind": kind, **self.asked}

    def open(self, *, threads: int, device: str = "cpu") -> Teacher:
        """Load the teacher.

        Raises:
            InputError: it cannot be loaded.
        """
        if self.is_bundle:
            return BundleTeacher(self, threads=threads)
        from fitformer.distillation.hugging_face import HuggingFaceTeacher  # here: it loads torch and transformers

        return HuggingFaceTeacher(self, device=device)


class BundleTeacher:
    """A fitformer bundle, with the teacher's beam and else its own settings."""

    def __init__(self, source: TeacherSource, *, threads: int) -> None:
        bundle = Bundle.load(source.folder)
        self._prefix, self._settings = source.prefix, replace(bundle.decode_settings, beam=source.beam)
        self._translator = Translator(bundle, threads=threads, batch_size=source.batch, warn=lambda _: None)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """See ``Teacher``."""
        texts = (self._prefix + line for line in lines)
        return [translation.text for translation in self._translator.translate(texts, self._settings)]
