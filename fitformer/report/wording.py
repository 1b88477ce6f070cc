"""Numbers as people read them. ``None`` becomes a dash everywhere, so that a missing figure is seen as missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fitformer.report.reading import JsonMap, real, text

DASH = "\u2013"
THIN = "\u202f"  # between a number and its unit, where it must not break


def number(value: float | None, digits: int = 3) -> str:
    """Return ``digits`` significant digits, without an exponent where that is readable: ``12.3``, ``0.0046``."""
    if value is None:
        return DASH
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{max(digits - 1, 0)}e}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    if "e" in text:
        return f"{value:.{digits + 3}f}".rstrip("0")
    whole, _, fraction = text.partition(".")
    missing = digits - len((whole + fraction).lstrip("-0"))
    return f"{whole}.{fraction}{'0' * missing}" if value and missing > 0 else text


def count(value: float | None) -> str:
    """Return a whole number with separators: ``28,994``."""
    return DASH if value is None else f"{round(value):,}"


def milliseconds(value: float | None) -> str:
    """Return a latency: ``12.3 ms``."""
    return DASH if value is None else f"{number(value)}{THIN}ms"


def percent(value: float | None, digits: int = 2) -> str:
    """Return a percentage that is already times 100: ``4.5 %``; whole above ten."""
    return DASH if value is None else f"{number(value, max(digits, 1)) if abs(value) < 10 else f'{value:.0f}'}{THIN}%"


def score(value: float | None) -> str:
    """Return a BLEU or chrF: ``33.1``."""
    return DASH if value is None else f"{value:.1f}"


def size(value: float | None) -> str:
    """Return bytes: ``9.4 MB``."""
    if value is None:
        return DASH
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.1f}{THIN}{unit}"
    return f"{value:.0f}{THIN}bytes"


def factor(value: float | None) -> str:
    """Return a ratio: ``1.8 times``."""
    return DASH if value is None else f"{value:.2g}{THIN}times"


def date(iso: str | None) -> str:
    """Return an ISO time as ``2026-11-30 23:28 UTC``; other text as it is."""
    if not iso:
        return DASH
    day, separator, rest = iso.partition("T")
    if not separator or len(rest) < 5:
        return iso
    return f"{day} {rest[:5]}" + (" UTC" if rest.endswith(("+00:00", "Z")) else "")


def label(key: str) -> str:
    """Return a key as words: ``too_many_tokens`` as ``too many tokens``."""
    return key.replace("_", " ")


def listing(data: Mapping[str, Any]) -> str:
    """Return ``a 1, b 2`` for a flat mapping."""
    return ", ".join(f"{label(str(key))} {value}" for key, value in data.items())


def interval(data: JsonMap) -> str:
    """Return the interval of a score: ``31.9 to 34.3``."""
    low, high = real(data, "interval", 0), real(data, "interval", 1)
    return f"{low:.1f} to {high:.1f}" if low is not None and high is not None else DASH


def judged_on(data: JsonMap) -> str | None:
    """Return which sentences figures are of: ``1,014 sentences of the valid set``."""
    sentences, split = real(data, "sentences"), text(data, "split")
    if sentences is None:
        return f"the {split} set" if split else None
    return f"{count(sentences)} sentences" + (f" of the {split} set" if split else "")


def sentence(words: str | None) -> str | None:
    """Return a reason with a full stop, whoever wrote it."""
    return words if not words or words.endswith((".", "!", "?")) else f"{words}."
