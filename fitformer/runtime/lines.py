"""Lines of text as the runtime sees them: split at line feeds only, free of characters that would break a
line in two, and, when longer than the model can read, cut into pieces that it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from fitformer.errors import InputError

# C0 and C1 controls (tab, NUL, \v, \f, \r, U+0085 ...) and the Unicode line and paragraph separators: some
# program or other ends a line at each of them.
_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
# A sentence ends after . ! ? or ... and closing quotes before a space, or after a full-width mark, with or without one.
_SENTENCE_END = re.compile("(?<=[.!?\u2026])[\"'\u201d\u2019\u00bb)\\]]*\\s+|(?<=[\u3002\uff01\uff1f])\\s*")
_CLAUSE_END = re.compile("(?<=[,;:])\\s+|(?<=[\u3001\uff0c\uff1b])\\s*")
_SPACE = re.compile("\\s+")

Lengths = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True)
class Piece:
    """A part of a long line; ``glue`` (a space or nothing) stood between it and the part before."""

    text: str
    glue: str


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 text, split at line feeds only; a byte order mark and the carriage return of CRLF are dropped.

    Raises:
        InputError: a line is not UTF-8; names ``name`` and the line's number (from 1).
    """
    for number, raw in enumerate(stream, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = raw[error.start]
            raise InputError(
                f"{name}:{number}: not UTF-8 (byte 0x{bad:02x} at column {error.start + 1}); "
                "convert the file, for example with iconv"
            ) from None
        line = line.removesuffix("\n").removesuffix("\r")
        yield line.removeprefix("\ufeff") if number == 1 else line


def one_line(text: str) -> str:
    """``text`` with control characters and line separators as spaces, lone surrogates as U+FFFD, and no outer
    spaces."""
    return _SURROGATES.sub("\ufffd", _BREAKING.sub(" ", text)).strip()


def split_long(text: str, limit: int, lengths: Lengths) -> tuple[list[Piece], str]:
    """Cut ``text`` into pieces of at most ``limit`` tokens: sentences, and where one is too long, clauses,
    words, characters.

    Args:
        lengths: number of tokens of each of several texts.
    Returns:
        The pieces in order, and the finest cut that was needed: "sentences", "commas", "spaces" or "characters".
    """
    pieces = [Piece(part, glue) for part, glue in _parts(text, _SENTENCE_END)]
    finest = "sentences"
    for name, pattern in (("commas", _CLAUSE_END), ("spaces", _SPACE), ("characters", None)):
        sizes = lengths([piece.text for piece in pieces])
        if all(size <= limit for size in sizes):
            break
        finest = name
        refined: list[Piece] = []
        for piece, size in zip(pieces, sizes, strict=True):
            if size <= limit:
                refined.append(piece)
            elif pattern is None:
                refined.extend(_halves(piece, limit, lengths))
            else:
                refined.extend(_packed(piece, pattern, limit, lengths))
        pieces = refined
    return pieces, finest


def _parts(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Cut at every match; each part comes with the glue before it. What closes a quote stays with its sentence."""
    parts: list[tuple[str, str]] = []
    begin, glue = 0, ""
    for match in pattern.finditer(text):
        closing = match.group().rstrip()
        end = match.start() + len(closing)
        if end > begin:
            parts.append((text[begin:end], glue))
        begin, glue = match.end(), " " if len(match.group()) > len(closing) else ""
    if begin < len(text):
        parts.append((text[begin:], glue))
    return parts


def _packed(piece: Piece, pattern: re.Pattern[str], limit: int, lengths: Lengths) -> list[Piece]:
    """Cut at ``pattern`` and join neighbours again as long as they stay within ``limit``; longer parts stay
    as they are."""
    parts = _parts(piece.text, pattern)
    sizes = lengths([text for text, _ in parts])
    packed: list[Piece] = []
    total = 0
    for (text, glue), size in zip(parts, sizes, strict=True):
        if packed and total + size <= limit:
            packed[-1] = Piece(packed[-1].text + glue + text, packed[-1].glue)
            total += size
        else:
            packed.append(Piece(text, glue if packed else piece.glue))
            total = size
    return packed


def _halves(piece: Piece, limit: int, lengths: Lengths) -> list[Piece]:
    """Halve until every part fits; a single character is kept whatever its length."""
    if len(piece.text) < 2 or lengths([piece.text])[0] <= limit:
        return [piece]
    middle = len(piece.text) // 2
    left, right = Piece(piece.text[:middle], piece.glue), Piece(piece.text[middle:], "")
    return _halves(left, limit, lengths) + _halves(right, limit, lengths)
