"""Tolerant reading: what is missing is ``None``, what cannot be read is ``None`` with a note, and nothing is trusted.

A report is wanted most when a run went wrong, so a damaged file costs its own part of the page and no more.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.rundir import read_json
from fitformer.space import Architecture

JsonMap = Mapping[str, Any]


@dataclass
class Reader:
    """Reads the files below ``root`` and collects ``problems``, one line each, about those that cannot be read."""

    root: Path
    problems: list[str] = field(default_factory=list)

    def json(self, *parts: str) -> Any:
        """Content of a JSON file, or ``None``."""
        path = self.root.joinpath(*parts)
        if not path.is_file():
            return None
        try:
            return read_json(path)
        except (InputError, OSError, RecursionError):
            self._note(path, "not a whole JSON file")
            return None

    def json_map(self, *parts: str) -> JsonMap:
        """The object in a JSON file, or an empty one."""
        value = self.json(*parts)
        return value if isinstance(value, dict) else {}

    def json_lines(self, *parts: str) -> tuple[JsonMap, ...]:
        """The objects of a .jsonl file; a last line without its newline is still being written and left out."""
        path = self.root.joinpath(*parts)
        lines: list[JsonMap] = []
        for number, line in enumerate(self._text(path).split("\n")[:-1], start=1):
            try:
                value = json.loads(line)
            except ValueError:
                self._note(path, f"line {number} is not JSON; the lines from there on are left out")
                break
            if isinstance(value, dict):
                lines.append(value)
        return tuple(lines)

    def csv_rows(self, *parts: str) -> tuple[JsonMap, ...]:
        """The rows of a .csv file by column name; a last row without its newline is left out."""
        path = self.root.joinpath(*parts)
        text = self._text(path)
        try:
            return tuple(csv.DictReader(text[: text.rfind("\n") + 1].splitlines(), strict=True))
        except csv.Error as error:
            self._note(path, f"not a table ({error})")
            return ()

    def lines(self, *parts: str) -> list[str]:
        """The lines of a text file."""
        return self._text(self.root.joinpath(*parts)).removesuffix("\n").split("\n")

    def folders(self, *parts: str) -> list[str]:
        """Names of the folders in a folder, sorted; hidden ones are somebody's temporary ones."""
        folder = self.root.joinpath(*parts)
        if not folder.is_dir():
            return []
        return sorted(item.name for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))

    def _text(self, path: Path) -> str:
        if not path.is_file():
            return ""
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._note(path, f"cannot be read ({type(error).__name__})")
            return ""

    def _note(self, path: Path, what: str) -> None:
        self.problems.append(f"{path.relative_to(self.root).as_posix()}: {what}")


def pick(data: Any, *keys: str | int) -> Any:
    """Return what ``keys`` lead to, or ``None`` where a step is missing."""
    for key in keys:
        if isinstance(key, int):
            data = data[key] if isinstance(data, Sequence) and not isinstance(data, str) and len(data) > key else None
        else:
            data = data.get(key) if isinstance(data, Mapping) else None
    return data


def real(data: Any, *keys: str | int) -> float | None:
    """Return a finite number, or ``None``; text that is a number (a cell of a table) counts."""
    value = pick(data, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def text(data: Any, *keys: str | int) -> str | None:
    """Return a non-empty string (a number as it is written), or ``None``."""
    value = pick(data, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return str(value) or None


def mapping(data: Any, *keys: str | int) -> JsonMap:
    """Return an object, or an empty one."""
    value = pick(data, *keys)
    return value if isinstance(value, Mapping) else {}


def items(data: Any, *keys: str | int) -> list[Any]:
    """Return a list, or an empty one."""
    value = pick(data, *keys)
    return list(value) if isinstance(value, list | tuple) else []


def objects(data: Any, *keys: str | int) -> list[JsonMap]:
    """Return the objects of a list."""
    return [item for item in items(data, *keys) if isinstance(item, Mapping)]


def architecture(value: Any) -> Architecture | None:
    """Return the architecture of its JSON or text form, or ``None``."""
    try:
        if isinstance(value, str):
            return Architecture.from_text(value)
        return Architecture.from_dict(dict(value)) if isinstance(value, Mapping) else None
    except (InputError, AttributeError, TypeError):
        return None
