"""The two kinds of failure a user can meet, and the nearest-spelling hint their messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in what the user gave: a setting, a file, an option. The command ends with exit code 2."""


class RecipeError(InputError):
    """A recipe that cannot be used: unknown key, bad value, settings that contradict each other."""


class DataError(InputError):
    """Text or arrays that cannot be used: missing, empty, not UTF-8, of different length."""


class BundleError(InputError):
    """A bundle that cannot be used: missing file, wrong checksum, a newer format."""


class NotPossibleError(RuntimeError):
    """Correct input, but the work could not be done: unreachable limit, failed check, full disk. Exit code 1."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest allowed spelling, or an empty string."""
    match = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean '{match[0]}'?)" if match else ""
