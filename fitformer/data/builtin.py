"""Corpora that need no files of the user's: ``homeassistant`` (fetched once) and ``numbers`` (generated)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fitformer.data import homeassistant
from fitformer.data.written_numbers import number_pairs
from fitformer.errors import InputError, nearest

BUILTIN = ("homeassistant", "numbers")


@dataclass(frozen=True)
class BuiltinCorpus:
    """A built-in English-German corpus. ``size`` (pairs) and ``seed`` count for ``numbers``, ``split`` for
    the other.
    """

    name: str
    split: str = "train"
    size: int = 20_000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.name not in BUILTIN:
            hint = nearest(self.name, BUILTIN)
            raise InputError(f"built-in corpus '{self.name}' is not one of {', '.join(BUILTIN)}{hint}")
        if self.split not in homeassistant.SPLITS:
            raise InputError(f"split '{self.split}' is not one of {', '.join(homeassistant.SPLITS)}")
        if self.size < 1:
            raise InputError(f"size: {self.size} is not a positive number of pairs")

    @property
    def licence(self) -> str:
        """Licence of the texts."""
        return homeassistant.LICENCE if self.name == "homeassistant" else "generated, no rights reserved"

    def sibling(self, split: str) -> BuiltinCorpus | None:
        """The corpus's own validation or test set; None when it has none and pairs are held out instead."""
        return BuiltinCorpus(self.name, split) if self.name == "homeassistant" else None

    def size_hint(self) -> int:
        """Number of pairs, for a progress bar."""
        if self.name == "homeassistant":
            return len(homeassistant.homeassistant_pairs(self.split))
        return self.size

    def facts(self) -> dict[str, Any]:
        """What identifies the text: for ``stats.json`` and for deciding whether a stage is up to date."""
        if self.name == "homeassistant":
            return {"builtin": self.name, "split": self.split, "sha256": homeassistant.SHA256}
        return {"builtin": self.name, "size": self.size, "seed": self.seed}


def builtin_pairs(corpus: BuiltinCorpus) -> Iterator[tuple[str, str]]:
    """Yield the (English, German) pairs of a built-in corpus.

    Raises:
        NotPossibleError: it has to be downloaded and cannot be.
    """
    if corpus.name == "homeassistant":
        yield from homeassistant.homeassistant_pairs(corpus.split)
    else:
        yield from number_pairs(corpus.size, corpus.seed)
