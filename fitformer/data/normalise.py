"""How text is normalised: for cleaning, for comparing sentences, and inside the subword models themselves."""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata
from functools import cache

# Tab and line breaks become spaces like every other white space; zero-width joiners (U+200C, U+200D) carry
# meaning in several scripts and in emoji and stay.
_REMOVED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069"
    "\ufeff\ufffe\uffff\ud800-\udfff]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of a character, which no file can hold
_ASCII_PUNCTUATION = {code: " " for code in range(128) if not chr(code).isalnum()}


def normalise(text: str) -> str:
    """Return ``text`` in Unicode form NFC, without control characters, with single spaces and none at the
    ends.
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split()) if "  " in text else text.strip()
    return " ".join(unicodedata.normalize("NFC", _REMOVED.sub("", text)).split())


def one_line(text: str) -> str:
    """Return ``text`` with line breaks turned into spaces and nothing else changed but white space at the
    ends.
    """
    lines = [line.strip() for line in _SURROGATES.sub("", text).splitlines()]
    return lines[0] if len(lines) == 1 else " ".join(line for line in lines if line)


def comparison_form(text: str) -> str:
    """Return the form in which two sentences count as the same: case, punctuation and spacing are ignored."""
    if text.isascii():  # the common case, several times faster
        return " ".join(text.lower().translate(_ASCII_PUNCTUATION).split()) or " ".join(text.split())
    words = _punctuation().sub(" ", unicodedata.normalize("NFKC", text).casefold()).split()
    return " ".join(words) if words else " ".join(text.split())


def digest(*texts: str) -> bytes:
    """Return 8 bytes that stand for ``texts``; the same on every machine."""
    return hashlib.blake2b("\n".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def source_digest(source: str, seed: int) -> bytes:
    """Return the digest by which a source counts as seen and is dealt to a split; another seed deals anew."""
    return digest(str(seed), comparison_form(source))


@cache
def _punctuation() -> re.Pattern[str]:
    """Match runs of characters of the Unicode categories punctuation, symbol, control and separator."""
    ranges: list[list[int]] = []
    for code in range(0x20000):
        if unicodedata.category(chr(code))[0] in "PSCZ" and not 0xD800 <= code <= 0xDFFF:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return re.compile("[" + "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in ranges) + "]+")


@cache
def normalisation_rules() -> str:
    """Return the rules of :func:`normalise` as SentencePiece reads them: one ``from<TAB>to`` line of code
    points each.

    They are stored inside the model, so that a bundle treats raw text as the training text was treated.
    Hangul syllables are left out: their 11,000 rules would be most of a small model, and decomposed Hangul is
    rare.
    """
    rules: dict[str, str] = {}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if _SURROGATES.match(char):
            continue
        if _REMOVED.match(char):
            rules[char] = ""
        elif char.isspace() and char != " ":
            rules[char] = " "
        elif not 0xAC00 <= code <= 0xD7A3:
            _add_compositions(char, rules)
    rules.pop("\x00", None)  # ends a string in the rule compiler
    lines = (f"{_code_points(old)}\t{_code_points(new)}\n" for old, new in sorted(rules.items()))
    return "".join(lines)


def _add_compositions(char: str, rules: dict[str, str]) -> None:
    decomposed, composed = unicodedata.normalize("NFD", char), unicodedata.normalize("NFC", char)
    if decomposed == char:
        return
    if composed != char:
        rules[char] = composed
    # Partly composed spellings too: a letter that is composed already, followed by one more mark.
    for spelling in {decomposed, unicodedata.normalize("NFC", decomposed[:-1]) + decomposed[-1]}:
        if spelling != composed:
            rules[spelling] = composed


def _code_points(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)
