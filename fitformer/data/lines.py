"""Lines of UTF-8 text files, plain or gzip-compressed, alone and side by side."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fitformer.errors import DataError

_LINES_BETWEEN_REPORTS = 1024


@dataclass
class Meter:
    """How many bytes of the files were read so far (compressed bytes where they are compressed)."""

    bytes_read: int = 0


def read_lines(path: Path, *, meter: Meter | None = None) -> Generator[str, None, None]:
    """Yield the lines of a UTF-8 text file, plain or gzip-compressed, without their line ends.

    Only a line feed ends a line, so that a stray U+2028 or form feed cannot shift parallel files.

    Raises:
        DataError: invalid UTF-8 (file and line are named) or a damaged gzip file.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    with raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if compressed else raw
        number = reported = 0
        try:
            for number, line in enumerate(stream, start=1):
                text = line.decode("utf-8")
                if number == 1:
                    text = text.removeprefix("\ufeff")
                if meter is not None and number % _LINES_BETWEEN_REPORTS == 0:
                    position = raw.tell()
                    meter.bytes_read += position - reported
                    reported = position
                yield text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x} at column "
                f"{error.start + 1}); convert the file, for example with iconv"
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}:{number + 1}: damaged gzip file ({error})") from None


class LineReader(Protocol):
    """How the lines of a file are found in it, such as ``read_lines``."""

    def __call__(self, path: Path, *, meter: Meter | None = None) -> Generator[str, None, None]: ...


def read_parallel(
    source: Path, target: Path, *, meter: Meter | None = None, read: LineReader = read_lines
) -> Generator[tuple[str, str], None, None]:
    """Yield the pairs of two files that match line for line.

    Raises:
        DataError: one file has more lines than the other; both numbers are given.
    """
    with (
        closing(read(source, meter=meter)) as sources,
        closing(read(target, meter=meter)) as targets,
    ):
        count = 0
        while True:
            pair = next(sources, None), next(targets, None)
            if pair[0] is None or pair[1] is None:
                break
            count += 1
            yield pair[0], pair[1]
        lengths = [
            count + (first is not None) + sum(1 for _ in rest)
            for first, rest in zip(pair, (sources, targets), strict=True)
        ]
        if lengths[0] != lengths[1]:
            raise DataError(
                f"{source} has {lengths[0]} lines, but {target} has {lengths[1]}; "
                "parallel files must match line for line"
            )
