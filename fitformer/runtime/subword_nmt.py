"""Dictionaries of fairseq with byte pair encoding by subword-nmt: how original HAT and its contemporaries read text.

Text becomes ids in three steps: words and marks (Moses, or what stands between spaces); subwords (merges of a codes
file; every piece but a word's last ends in ``@@``); ids (a dictionary file, one ``token count`` a line in their order).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fitformer.errors import BundleError
from fitformer.runtime.decoding import EOS, UNK
from fitformer.runtime.moses import INSTALL, Moses

FIRST_WORD = EOS + 1  # id of the first line of a dictionary
UNKNOWN = "<unk>"
SEPARATOR = "@@"
MOST_CACHED = 200_000  # words whose pieces are remembered
LONGEST_WORD = 300  # characters; merging takes quadratic time, so that of a longer "word" stretches are cut
_VERSION = re.compile(r"#version: 0\.[12]\s*")


class SubwordNmtTokenizer:
    """One side of a bundle of the kind ``subword-nmt``.

    Args:
        path: dictionary; a file of n lines gives n + 4 ids.
        codes: merges of ``subword-nmt learn-bpe``; None for text that is cut already: its words are the tokens.
        moses: the text is plain: tokenise and detokenise it; else it is tokenised, and so is what comes out.
        lowercase, normalise, aggressive_hyphens: see ``Moses``; without ``moses`` only ``lowercase`` matters.
        language: of the text.
    Raises:
        BundleError: a file is missing or of another form, or subword-nmt is not installed.
        InputError: sacremoses is needed and not installed.
    """

    def __init__(
        self,
        path: Path,
        *,
        codes: Path | None = None,
        moses: bool = False,
        lowercase: bool = False,
        normalise: bool = False,
        aggressive_hyphens: bool = False,
        language: str = "en",
    ) -> None:
        self.words = read_dictionary(path)
        self._ids = {word: FIRST_WORD + i for i, word in enumerate(self.words)}  # the last of equal words, as fairseq
        self._bpe = None if codes is None else BytePairs(codes)
        self._lowercase = lowercase
        self._moses = (
            Moses(language, lowercase=lowercase, normalise=normalise, aggressive_hyphens=aggressive_hyphens)
            if moses
            else None
        )

    @property
    def vocab_size(self) -> int:
        """Lines of the dictionary and the four special ids."""
        return FIRST_WORD + len(self.words)

    @property
    def reads_tokens(self) -> bool:
        """Whether the text that goes in and comes out is tokenised already."""
        return self._moses is None

    def tokenise(self, line: str) -> str:
        """Words and marks of a line, before they are cut into subwords, with single spaces between them."""
        if self._moses is not None:
            return self._moses.tokenise(line)
        return " ".join((line.lower() if self._lowercase else line).split())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of every line; what is not in the dictionary becomes unk."""
        return [self.encode_tokens(self.tokenise(line)) for line in lines]

    def encode_tokens(self, text: str) -> list[int]:
        """Ids of a line that ``tokenise`` gave."""
        words = text.split()
        return [self._ids.get(piece, UNK) for piece in (self._bpe.pieces(words) if self._bpe else words)]

    def join(self, ids: Sequence[int]) -> str:
        """Words and marks of an output, subwords joined; special ids leave no trace but for unk."""
        kept = (i for i in ids if i == UNK or FIRST_WORD <= i < self.vocab_size)
        return join_pieces(" ".join(UNKNOWN if i == UNK else self.words[i - FIRST_WORD] for i in kept))

    def detokenise(self, text: str) -> str:
        """The plain text of what ``join`` gave; tokenised text stays as it is."""
        return text if self._moses is None else self._moses.detokenise(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one output."""
        return self.detokenise(self.join(ids))


class BytePairs:
    """The merges of a codes file of ``subword-nmt learn-bpe`` (versions 0.1 and 0.2), applied by subword-nmt.

    Raises:
        BundleError: the file is missing or holds something else, or subword-nmt is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            from subword_nmt.apply_bpe import BPE
        except ImportError:
            raise BundleError(f"{path.name}: byte pair encoding needs subword-nmt: {INSTALL}") from None
        text = _text(path, "file of merges (codes of subword-nmt)")
        _check_codes(path, text)  # the library itself would end the program
        self._bpe: Any = BPE(io.StringIO(text), separator=SEPARATOR)

    def pieces(self, words: Iterable[str]) -> list[str]:
        """Subwords of ``words``; all but the last one of a word end in ``@@``."""
        if len(self._bpe.cache) > MOST_CACHED:
            self._bpe.cache.clear()
        found: list[str] = []
        for word in words:
            if len(word) <= LONGEST_WORD:
                found.extend(self._bpe.segment_tokens([word]))
                continue
            stretches = [word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD)]
            for stretch in stretches[:-1]:
                found.extend(self._bpe.segment_tokens([stretch]))
                found[-1] += SEPARATOR
            found.extend(self._bpe.segment_tokens(stretches[-1:]))
        return found


def join_pieces(text: str) -> str:
    """Undo byte pair encoding, as ``sed 's/@@ //g'`` does."""
    return f"{text} ".replace(f"{SEPARATOR} ", "").rstrip(" ")


def read_dictionary(path: Path) -> list[str]:
    """Words of a dictionary of fairseq: one ``token count`` a line; the first one has the id 4.

    Raises:
        BundleError: the file is missing, not UTF-8, empty, or a line has another form (with its number).
    """
    words = []
    for number, line in enumerate(_text(path, "dictionary of fairseq").removesuffix("\n").split("\n"), start=1):
        word, space, count = line.rstrip("\r").rpartition(" ")
        if not space or not word or not (count.isascii() and count.isdigit()):
            raise BundleError(f"{path}:{number}: a dictionary has one 'token count' a line, this is {line[:60]!r}")
        words.append(word)
    return words


def _check_codes(path: Path, text: str) -> None:
    lines = text.rstrip("\n").split("\n")
    first = 0
    if lines[0].startswith("#version:"):
        first = 1
        if not _VERSION.fullmatch(lines[0]):
            raise BundleError(f"{path}:1: {lines[0][:60]!r}; known are the versions 0.1 and 0.2 of subword-nmt's codes")
    if not any(lines[first:]):
        raise BundleError(f"{path}: holds no merges")
    for number, line in enumerate(lines[first:], start=first + 1):
        parts = line.strip("\r\n ").split(" ")
        if len(parts) != 2:
            raise BundleError(f"{path}:{number}: a merge is two pieces and a space between them, not {line[:60]!r}")
    if all(line.split(" ")[1].strip().isdecimal() for line in lines[first:]):
        raise BundleError(f"{path}: holds words with their counts; that is a dictionary, not a file of merges")


def _text(path: Path, what: str) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise BundleError(f"{path}: no {what} that can be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: no {what}: not UTF-8 (byte {error.start})") from None
