"""Recipe sections about text: what is translated, how it is cleaned and cut into subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fitformer.recipe.section import MOST, Count, Section


class Corpus(Section):
    """Text pairs: ``source`` and ``target`` files of parallel lines, or ``files`` that hold both sides."""

    source: tuple[Path, ...] = ()
    """Files of source lines, plain or .gz; one or a list."""
    target: tuple[Path, ...] = ()
    """Files of target lines, in the order of ``source``."""
    files: tuple[Path, ...] = ()
    """Files with both sides: .tsv, .jsonl, .po or .tmx, plain or .gz."""
    source_field: str | None = None
    """Key (JSONL) or column (TSV) of the source."""
    target_field: str | None = None
    """Key (JSONL) or column (TSV) of the target."""

    @field_validator("source", "target", "files", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _one_form(self) -> Corpus:
        if bool(self.files) == bool(self.source or self.target):
            raise ValueError("give either source and target files, or files that hold both")
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source files and {len(self.target)} target files must be as many")
        return self

    @property
    def format(self) -> str:
        """``parallel``, ``tsv``, ``jsonl``, ``po`` or ``tmx``, by the file's ending."""
        if not self.files:
            return "parallel"
        return self.files[0].name.removesuffix(".gz").rpartition(".")[2].lower()


class Data(Section):
    """What is translated, and from which text the model learns."""

    task: Literal["translation"] = "translation"
    """What the model does."""
    source_language: str
    """Code of the language that is read, such as ``en``."""
    target_language: str
    """Code of the language that is written, such as ``de``."""
    builtin: Literal["homeassistant", "numbers"] | None = None
    """A corpus that fitformer knows how to get, instead of ``train``."""
    builtin_pairs: Count = 20_000
    """Size of the generated corpus ``numbers``."""
    train: Corpus | None = None
    """Your training pairs."""
    valid: Corpus | None = None
    """Without it, ``held_out_pairs`` are held out of the training pairs."""
    test: Corpus | None = None
    """Without it, ``held_out_pairs`` are held out of the training pairs."""
    held_out_pairs: Count | None = None
    """By default a twentieth of the training pairs, at most 1000."""
    licence: str = "not stated"
    """Licence of the training text, written into the bundle."""

    @model_validator(mode="after")
    def _one_origin(self) -> Data:
        if (self.builtin is None) == (self.train is None):
            raise ValueError("give either 'train' (your files) or 'builtin' (a corpus by name)")
        return self


class Tokenizer(Section):
    """The subword model (SentencePiece)."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """How subwords are chosen."""
    joint: bool = True
    """One model and vocabulary for both languages."""
    vocab_size: Annotated[int, Field(ge=8, le=MOST)] | None = None
    """Chosen from the size of the corpus unless given."""
    byte_fallback: bool = True
    """Spell characters that are not in the vocabulary as bytes, so that every script passes through."""
    character_coverage: Annotated[float, Field(ge=0.9, le=1.0)] = 0.9995
    """Share of the characters of the text that get a piece of their own."""
    user_defined_symbols: tuple[str, ...] = ()
    """Strings that are always one piece."""
    placeholders: bool = True
    """Keep ``{name}``, ``%s``, ``<b>`` and their like whole."""


class Cleaning(Section):
    """Which training pairs are left out."""

    max_words: Count = 200
    """Longest side of a pair, in words."""
    max_characters: Count = 1500
    """Longest side of a pair, in characters."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 3.0
    """Largest ratio of the lengths of the two sides."""
    drop_duplicates: bool = True
    """Keep the first of equal pairs only."""
    drop_evaluation_sources: bool = True
    """Drop a training pair whose source is in the validation or test set."""


class Prepare(Section):
    """Cleaning and subwords."""

    tokenizer: Tokenizer = Tokenizer()
    """The subword model."""
    cleaning: Cleaning = Cleaning()
    """Which pairs are left out."""
    max_tokens: Count = 256
    """Longest side of a training pair, in tokens; also the longest piece translated at once."""
