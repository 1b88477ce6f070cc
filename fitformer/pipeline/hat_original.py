"""What a user gives with a checkpoint of the original HAT: dictionaries, texts, and how they were cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fitformer.data.lines import read_lines
from fitformer.errors import InputError
from fitformer.hat.checkpoint import Checkpoint
from fitformer.runtime.decoding import UNK
from fitformer.runtime.subword_nmt import SEPARATOR, SubwordNmtTokenizer
from fitformer.runtime.tokenizer import SUBWORD_NMT_OPTIONS

FIRST_LINES = 100  # of a text, that are looked at
MANY_UNKNOWN = 0.1  # share of unknown tokens in a text that its own dictionary hardly has

Pair = tuple[Path, Path]  # source and target lines


@dataclass(frozen=True)
class Original:
    """The files of an original model, and how its text was cut.

    Attributes:
        codes: merges of subword-nmt; None for text that is cut already.
        moses, lowercase, normalise, aggressive_hyphens: what happened to plain text before that, as
            ``SubwordNmtTokenizer`` has it.
        valid_source, valid_target, train_source, train_target: text of the model's languages, line by line.
    """

    checkpoint: Path
    source_dictionary: Path
    target_dictionary: Path
    codes: Path | None = None
    moses: bool = False
    lowercase: bool = False
    normalise: bool = False
    aggressive_hyphens: bool = False
    valid_source: Path | None = None
    valid_target: Path | None = None
    train_source: Path | None = None
    train_target: Path | None = None

    @property
    def valid(self) -> Pair | None:
        """Both sides of the validation text."""
        return _pair("valid", self.valid_source, self.valid_target)

    @property
    def train(self) -> Pair | None:
        """Both sides of the training text."""
        return _pair("train", self.train_source, self.train_target)

    @property
    def tokenizer_options(self) -> dict[str, bool]:
        """Flags of the tokenizer kind ``subword-nmt``."""
        return {name: getattr(self, name) for name in SUBWORD_NMT_OPTIONS}


def languages(checkpoint: Checkpoint, original: Original) -> tuple[str, str]:
    """Source and target language: of the options, else of the names of the dictionaries (``dict.de.txt``)."""
    found = [
        str(known or named or "und")  # ISO 639: undetermined
        for known, named in zip(_languages_known(checkpoint), _languages_named(original), strict=True)
    ]
    return found[0], found[1]


def language_warnings(checkpoint: Checkpoint, original: Original) -> list[str]:
    """Dictionaries whose names say another language than the checkpoint: swapped ones may fit it just as well."""
    source, target = original.source_dictionary, original.target_dictionary
    known, named = _languages_known(checkpoint), _languages_named(original)
    differ = any(a and b and a != b for a, b in zip(known, named, strict=True))
    if source == target or not differ:  # a joined dictionary bears the name of either side
        return []
    return [
        f"the checkpoint reads '{known[0]}' and writes '{known[1]}', but the dictionaries are named {source.name} and "
        f"{target.name}; are they swapped?"
    ]


def _languages_known(checkpoint: Checkpoint) -> list[str | None]:
    return [checkpoint.args.get(f"{side}_lang") for side in ("source", "target")]


def _languages_named(original: Original) -> list[str | None]:
    found = [
        re.fullmatch(r"dict\.([A-Za-z_-]+)\.txt", path.name)
        for path in (original.source_dictionary, original.target_dictionary)
    ]
    return [match[1] if match else None for match in found]


def missing_text(original: Original) -> list[str]:
    """What a run lacks later, of the texts that were not given."""
    if original.train is None:
        return [
            "no training text: 'measure' and 'search' work, but 'train' would learn from the validation text; import "
            "again with --train-source and --train-target for it"
        ]
    if original.valid is None:
        return ["no validation text: pairs of the training text are held out for 'search' to rank on"]
    return []


def text_warnings(original: Original, words: Sequence[str], both: tuple[str, str]) -> list[str]:
    """Signs that text and dictionaries do not belong together, or that it is to be cut in another way."""
    found = []
    if original.codes is None and any(word.endswith(SEPARATOR) for word in words):
        found.append(
            f"{original.source_dictionary} has subwords ('{SEPARATOR}') and there is no --bpe-codes: lines must be cut "
            "into them already"
        )
    dictionaries = original.source_dictionary, original.target_dictionary
    for pair in ((original.valid_source, original.valid_target), (original.train_source, original.train_target)):
        for path, tokenizer, dictionary in zip(pair, tokenizers(original, both), dictionaries, strict=True):
            if path is None:
                continue
            ids = [i for line in tokenizer.encode(first_lines(path)) for i in line]
            share = ids.count(UNK) / max(len(ids), 1)
            if share > MANY_UNKNOWN:
                found.append(
                    f"{100 * share:.0f} % of the tokens of {path} are not in {dictionary}; is it another model's "
                    "dictionary, or text to be cut otherwise (--bpe-codes, --moses, --lowercase)?"
                )
    return found


def tokenizers(original: Original, both: tuple[str, str]) -> tuple[SubwordNmtTokenizer, SubwordNmtTokenizer]:
    """Tokenizers of both sides; raises as ``SubwordNmtTokenizer`` does."""
    options: dict[str, Any] = {"codes": original.codes, **original.tokenizer_options}
    source, target = (
        SubwordNmtTokenizer(path, language=language, **options)
        for path, language in zip((original.source_dictionary, original.target_dictionary), both, strict=True)
    )
    return source, target


def first_lines(path: Path) -> list[str]:
    """The first lines of a text that are not empty.

    Raises:
        InputError: there is none, or the file cannot be read.
    """
    lines = list(islice(filter(str.strip, read_lines(path)), FIRST_LINES))
    if not lines:
        raise InputError(f"{path}: holds no text")
    return lines


def _pair(name: str, source: Path | None, target: Path | None) -> Pair | None:
    if source is None and target is None:
        return None
    if source is None or target is None:
        missing, given = ("target", "source") if target is None else ("source", "target")
        raise InputError(f"--{name}-{missing}: missing; it goes with --{name}-{given}")
    return source, target
