"""Files of options as the original HAT code reads them, and their numbers, without evaluating anything."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fitformer.errors import InputError, nearest

MOST = 2**31 - 1
LARGEST_FILE = 1 << 20  # bytes; the published files have 700


def read_options(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of options as a mapping; nothing in it is ever executed.

    Raises:
        InputError: the file is missing, not text, no YAML or no mapping; the message names it.
    """
    from fitformer.recipe.loading import parse_yaml  # YAML is installed with the recipes' side only

    data = parse_yaml(read_small(path), str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a HAT configuration (expected 'option: value' lines)")
    return {str(key): value for key, value in data.items()}


def read_small(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        InputError: the file is missing, a folder, too large for a configuration or not text.
    """
    try:
        if path.is_file() and path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: not a configuration ({path.stat().st_size:,} bytes of a text are too many)")
        with path.open("rb") as stream:
            return stream.read(LARGEST_FILE).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a configuration (it is not text)") from None


def format_options(options: Mapping[str, Any]) -> str:
    """The text of an original file: one ``option: value`` a line."""
    return "".join(f"{key}: {value}\n" for key, value in options.items())


def dashed(key: str) -> str:
    """The spelling of an option in a file, for one from a checkpoint's arguments."""
    return str(key).replace("_", "-")


def unknown(where: str, key: str, allowed: Iterable[str]) -> str:
    """The error line for an option that does not exist."""
    allowed = list(allowed)
    return f"{where}: {key}: no such option{nearest(key, allowed)}; allowed: {', '.join(allowed)}"


def check_each(key: str, values: tuple[int, ...], where: str, allowed: tuple[int, ...] = ()) -> None:
    """Check that each value is one of ``allowed``, or a size where any is.

    Raises:
        InputError: one is not; the message names it.
    """
    for value in values:
        if allowed and value not in allowed:
            raise InputError(f"{where}: {key}: {value} is not allowed; allowed: {', '.join(map(str, allowed))}")
        if not allowed and not 1 <= value <= MOST:
            raise InputError(f"{where}: {key}: {value} is not allowed; allowed: whole numbers of at least 1")


def size(key: str, value: Any, where: str) -> int:
    """A whole number of at least 1.

    Raises:
        InputError: ``value`` is none.
    """
    found = number(value)
    if found is None or not 1 <= found <= MOST:
        raise InputError(f"{where}: {key}: {reprlib.repr(value)} is not allowed; allowed: a whole number of at least 1")
    return found


def numbers(key: str, value: Any, where: str, allowed: str) -> tuple[int, ...]:
    """A list of whole numbers, a text of them, or a single one.

    Raises:
        InputError: it is none; ``allowed`` says what it should be.
    """
    items = re.split(r"[,\s]+", value.strip("[]() \t\n")) if isinstance(value, str) else value
    found = [number(item) for item in items] if isinstance(items, list | tuple) else [number(items)]
    if not found or None in found:
        raise InputError(f"{where}: {key}: {reprlib.repr(value)} is not allowed; allowed: {allowed}")
    return tuple(item for item in found if item is not None)


def number(value: Any) -> int | None:
    """A whole number, or its digits; HAT evaluates such strings as code, here only digits are numbers."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", value):
        return int(value)
    return value if type(value) is int else None
