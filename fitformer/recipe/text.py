"""Recipe sections about text: what is translated, how it is cleaned and cut into subwords."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from fitformer.recipe.section import MOST, Count, Section

MTDATA_ID = re.compile(r"[\w.+]+(-[\w.+]+){4}")
TEST_SET = re.compile(r"\w[\w.]*(/[\w.]+)*")
TOKENIZER_FILES = ("codes", "source_dictionary", "target_dictionary")


class Corpus(Section):
    """Text pairs: ``source`` and ``target`` files of parallel lines, ``files`` that hold both sides, or public ones by
    name.
    """

    source: tuple[Path, ...] = ()
    """Files of source lines, plain or .gz, .sgm or .xml test sets; one or a list."""
    target: tuple[Path, ...] = ()
    """Files of target lines, in the order of ``source``."""
    files: tuple[Path, ...] = ()
    """Files with both sides: .tsv, .jsonl, .po or .tmx, plain or .gz."""
    source_field: str | None = None
    """Key (JSONL) or column (TSV) of the source."""
    target_field: str | None = None
    """Key (JSONL) or column (TSV) of the target."""
    mtdata: tuple[str, ...] = ()
    """Public corpora fetched by the program mtdata; identifiers such as ``Statmt-europarl-9-deu-eng``."""
    sacrebleu: tuple[str, ...] = ()
    """Public test sets fetched by sacreBLEU, such as ``wmt14/full``; for ``valid`` and ``test``."""

    @field_validator("source", "target", "files", "mtdata", "sacrebleu", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _one_form(self) -> Corpus:
        forms = [self.source or self.target, self.files, self.mtdata, self.sacrebleu]
        if sum(map(bool, forms)) != 1:
            raise ValueError("give either source and target files, or files that hold both, or mtdata, or sacrebleu")
        _check_names("mtdata", self.mtdata, MTDATA_ID, "Statmt-europarl-9-deu-eng ('mtdata list --id' shows them)")
        _check_names("sacrebleu", self.sacrebleu, TEST_SET, "wmt14/full ('sacrebleu --list' shows them)")
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source files and {len(self.target)} target files must be as many")
        return self

    @model_serializer(mode="wrap")
    def _without_unused_names(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As before there were names, where none are given: a run's record of its inputs stays the same."""
        data: dict[str, Any] = serialize(self)
        return {key: value for key, value in data.items() if value or key not in ("mtdata", "sacrebleu")}

    @property
    def is_named(self) -> bool:
        """Whether the text is fetched by name."""
        return bool(self.mtdata or self.sacrebleu)

    @property
    def format(self) -> str:
        """``parallel``, ``tsv``, ``jsonl``, ``po`` or ``tmx``, by the file's ending."""
        if not self.files:
            return "parallel"
        return self.files[0].name.removesuffix(".gz").rpartition(".")[2].lower()


def _check_names(setting: str, names: tuple[str, ...], form: re.Pattern[str], example: str) -> None:
    for name in names:
        if not form.fullmatch(name):
            raise ValueError(f"{setting}: '{name}' is no name such as {example}")
        if names.count(name) > 1:
            raise ValueError(f"{setting}: '{name}' is given twice")


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
    valid_every: Annotated[int, Field(ge=2, le=MOST)] | None = None
    """Instead of ``valid``: every so-many-th training pair that cleaning keeps is a validation pair."""
    held_out_pairs: Count | None = None
    """By default a twentieth of the training pairs, at most 1000."""
    licence: str = "not stated"
    """Licence of the training text, written into the bundle."""

    @model_validator(mode="after")
    def _one_origin(self) -> Data:
        if (self.builtin is None) == (self.train is None):
            raise ValueError("give either 'train' (your files) or 'builtin' (a corpus by name)")
        if self.train is not None and self.train.sacrebleu:
            raise ValueError("train.sacrebleu: a test set is not to be trained on; it is for valid and test")
        if self.valid_every is not None and self.valid is not None:
            raise ValueError("give either 'valid' (your files) or 'valid_every' (of the training pairs)")
        return self


class Tokenizer(Section):
    """The subword model: SentencePiece (``unigram``, ``bpe``), or as text was prepared before it (``subword-nmt``)."""

    kind: Literal["unigram", "bpe", "subword-nmt"] = "unigram"
    """How subwords are chosen; ``subword-nmt``: Moses tokens, merges of both languages, dictionaries as of fairseq."""
    joint: bool = True
    """One model and vocabulary for both languages."""
    vocab_size: Annotated[int, Field(ge=8, le=MOST)] | None = None
    """Chosen from the size of the corpus unless given; for ``subword-nmt`` the number of merges."""
    byte_fallback: bool = True
    """Spell characters that are not in the vocabulary as bytes, so that every script passes through."""
    character_coverage: Annotated[float, Field(ge=0.9, le=1.0)] = 0.9995
    """Share of the characters of the text that get a piece of their own."""
    user_defined_symbols: tuple[str, ...] = ()
    """Strings that are always one piece."""
    placeholders: bool = True
    """Keep ``{name}``, ``%s``, ``<b>`` and their like whole."""
    moses: bool = False
    """``subword-nmt``: the text is plain, cut it into words and marks as Moses does; else it is cut already."""
    lowercase: bool = False
    """``subword-nmt``: lower-case the tokens."""
    normalise: bool = False
    """``subword-nmt`` with ``moses``: plain quotes, dashes and the like first (Moses' normalize-punctuation)."""
    aggressive_hyphens: bool = False
    """``subword-nmt`` with ``moses``: ``a-b`` becomes ``a @-@ b``."""
    codes: Path | None = None
    """``subword-nmt``: a file of merges instead of learned ones."""
    source_dictionary: Path | None = None
    """``subword-nmt``: a dictionary of fairseq instead of a new one (without ``codes``: of text cut already)."""
    target_dictionary: Path | None = None
    """``subword-nmt``: the same of the target; of joint vocabularies the same file."""

    @model_validator(mode="after")
    def _settings_of_the_kind(self) -> Self:
        names = ("moses", "lowercase", "normalise", "aggressive_hyphens", *TOKENIZER_FILES)
        for name in names:
            if getattr(self, name) and self.kind != "subword-nmt":
                raise ValueError(f"{name}: belongs to kind subword-nmt, not {self.kind}")
        for name in ("normalise", "aggressive_hyphens"):
            if getattr(self, name) and not self.moses:
                raise ValueError(f"{name}: needs moses")
        if (self.source_dictionary is None) != (self.target_dictionary is None):
            raise ValueError("source_dictionary and target_dictionary: give both or none")
        if self.joint and self.source_dictionary != self.target_dictionary:
            raise ValueError("target_dictionary: is another than source_dictionary, so joint must be false")
        return self

    def files(self) -> dict[str, Path]:
        """The files that are given, by setting."""
        return {name: path for name in TOKENIZER_FILES if (path := getattr(self, name)) is not None}


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
