"""Text files and streams as commands use them: UTF-8, one line each, outputs that are whole or not there at all."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast, overload

from fitformer.errors import DataError, InputError
from fitformer.progress import Progress
from fitformer.rundir import atomic_path
from fitformer.runtime.lines import read_lines

STANDARD = Path("-")


def read_text(path: Path) -> list[str]:
    """All lines of a UTF-8 file, plain or .gz.

    Raises:
        InputError: the file is missing, a folder, damaged or not UTF-8 (with the line's number).
    """
    with open_binary(path) as stream:
        return list(read_lines(stream, str(path)))


def count_lines(path: Path) -> int:
    """Number of lines, all of which have been found to be UTF-8; raises as ``read_text``."""
    with open_binary(path) as stream:
        return sum(1 for _ in read_lines(stream, str(path)))


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacking .gz; raises as ``read_text``."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a text file")
    try:
        with cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as stream:
            yield stream
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file ({error})") from None


@contextmanager
def open_input(path: Path | None) -> Iterator[BinaryIO]:
    """Open ``path``, or standard input for ``None`` and ``-``."""
    if path is None or path == STANDARD:
        yield sys.stdin.buffer
        return
    with open_binary(path) as stream:
        yield stream


def check_output(path: Path | None, *inputs: Path | None) -> None:
    """Find out before the work whether ``path`` can be written, and is none of the files that are read.

    Raises:
        InputError: it is one of ``inputs`` or a folder, or its folder does not exist or may not be written to.
    """
    if path is None or path == STANDARD or is_special(path):
        return
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    if path.exists() and any(given is not None and given.exists() and path.samefile(given) for given in inputs):
        raise InputError(f"{path}: is read, too, and would be lost; give the output another name")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} may not be written to")


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open ``path`` for bytes, or standard output for ``None`` and ``-``.

    A file appears when all is written; until then, and after a failure, an older one is as it was. Pipes and devices
    are written to directly.
    """
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif is_special(path):
        with path.open("wb") as stream:
            yield stream
    else:
        # A link stays a link: what it points to is replaced.
        with atomic_path(path.resolve()) as temporary, temporary.open("wb") as stream:
            yield stream


def is_special(path: Path) -> bool:
    """Whether the path is a pipe or a device."""
    return path.exists() and not path.is_file() and not path.is_dir()


class WatchedLines(Sequence[str]):
    """Lines that move a progress bar forward as they are read one after another, the first time."""

    def __init__(self, lines: Sequence[str], progress: Progress) -> None:
        self._lines, self._progress, self._read = lines, progress, 0

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._lines[index]

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines):
            if number >= self._read:
                self._read = number
                self._progress.update(number)
            yield line
        self._progress.update(len(self._lines))
