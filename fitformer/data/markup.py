"""Text with marks around it, as the shared tasks publish it: NIST's XML of test sets, and the talks of IWSLT.

Both are one side of parallel text; the other is a file of the same form. Files are told by their names, as published:
``newstest2014-deen-src.en.sgm``, ``IWSLT14.TED.tst2010.de-en.de.xml``, ``train.tags.de-en.de``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path

from fitformer.data.lines import Meter, read_lines
from fitformer.errors import DataError

# The files are no proper XML (bare ampersands, no root), so they are read as the tools of the field do: by segments.
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
_BEGIN = re.compile(r"<seg\b", re.IGNORECASE)
_TAG_LINE = re.compile(r"\s*</?[a-zA-Z][a-zA-Z0-9]*(\s[^<>]*)?>")
_TEXT_TAG = re.compile(r"\s*<(title|description)>(.*?)(</\1>)?\s*")
_MOST_LINES = 100  # that one segment may be spread over


def is_marked_up(path: Path) -> bool:
    """Whether a file is of one of these forms, by its name."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((".sgm", ".sgml", ".xml")) or ".tags." in name


def read_marked_up(path: Path, *, meter: Meter | None = None) -> Generator[str, None, None]:
    """Yield the segments of a test set, or the lines of talks without tag lines; titles and descriptions are text.

    Raises:
        DataError: the file is not UTF-8 or damaged, a segment does not end, or there is none.
    """
    with closing(read_lines(path, meter=meter)) as lines:
        yield from _talks(lines) if ".tags." in path.name.lower() else _segments(path, lines)


def _segments(path: Path, lines: Iterable[str]) -> Generator[str, None, None]:
    begun, first, found = "", 0, False  # an unfinished segment and the line that it begins in
    for number, line in enumerate(lines, start=1):
        if not begun and not _BEGIN.search(line):
            continue
        first = first if begun else number
        end, text = 0, f"{begun} {line.strip()}".strip()
        for segment in _SEGMENT.finditer(text):
            end, found = segment.end(), True
            yield html.unescape(segment[1]).strip()
        begun = text[end:] if _BEGIN.search(text, end) else ""
        first = number if end else first
        if begun and number - first >= _MOST_LINES:
            break
    if begun or not found:
        raise DataError(f"{path}:{first}: a <seg> that does not end" if begun else f"{path}: no <seg> found")


def _talks(lines: Iterable[str]) -> Generator[str, None, None]:
    for line in lines:
        marked = _TEXT_TAG.fullmatch(line)
        if marked is not None:
            yield marked[2].strip()
        elif not _TAG_LINE.match(line):
            yield line.strip()
