"""Text pairs that stand together in one file: TSV, JSONL, gettext .po and TMX."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import polib
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from fitformer.data.lines import Meter, read_lines
from fitformer.errors import DataError, nearest

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tsv(
    path: Path,
    source_field: str | None = None,
    target_field: str | None = None,
    *,
    meter: Meter | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield two columns of a tab-separated file: numbers from 1 (default 1 and 2), or names found in the
    first row.

    Raises:
        DataError: a row has too few columns, or the first row lacks a name.
    """
    columns: list[int] | None = None
    named = any(field is not None and not field.isdigit() for field in (source_field, target_field))
    if not named:
        columns = [int(source_field or 1) - 1, int(target_field or 2) - 1]
        if min(columns) < 0:
            raise DataError(f"{path}: column 0 was asked for; columns are counted from 1")
    for number, line in enumerate(read_lines(path, meter=meter), start=1):
        cells = line.split("\t")
        if columns is None:
            columns = [_column(path, cells, field) for field in (source_field or "source", target_field or "target")]
            continue
        if len(cells) <= max(columns):
            if not line.strip():
                continue
            raise DataError(f"{path}:{number}: {len(cells)} column(s), but column {max(columns) + 1} is needed")
        yield cells[columns[0]], cells[columns[1]]


def _column(path: Path, header: list[str], name: str) -> int:
    if name not in header:
        raise DataError(f"{path}:1: no column named '{name}'{nearest(name, header)}; the first row is the header")
    return header.index(name)


def read_jsonl(
    path: Path, fields: Sequence[tuple[str, str]], *, meter: Meter | None = None
) -> Iterator[tuple[str, str]]:
    """Yield two values of each line's JSON object, under the first of the pairs of keys ``fields`` that it
    has.

    A pair may also lie one level deeper, under "translation", as many published corpora have it.

    Raises:
        DataError: a line is not a JSON object or lacks the keys.
    """
    for number, line in enumerate(read_lines(path, meter=meter), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: not JSON ({error.msg} at column {error.colno})") from None
        yield _values(path, number, row, fields)


def _values(path: Path, number: int, row: Any, fields: Sequence[tuple[str, str]]) -> tuple[str, str]:
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: a JSON object with the keys {_spelled(fields)} is needed")
    for place in (row, row.get("translation")):
        for source, target in fields:
            if isinstance(place, dict) and source in place and target in place:
                pair = place[source], place[target]
                if not all(isinstance(text, str) for text in pair):
                    raise DataError(f"{path}:{number}: '{source}' and '{target}' have to be texts")
                return pair
    missing = next((name for pair in fields for name in pair if name not in row), "")
    raise DataError(f"{path}:{number}: no keys {_spelled(fields)}{nearest(missing, map(str, row))}")


def _spelled(fields: Sequence[tuple[str, str]]) -> str:
    return " or ".join(f"'{source}' and '{target}'" for source, target in fields)


def read_po(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (msgid, msgstr) of a gettext catalogue; obsolete, fuzzy and untranslated entries are left out.

    An entry with plural forms gives its singular and, for languages with two forms, its plural. Catalogues
    are small (thousands of entries), so each is read whole.

    Raises:
        DataError: the file is not a gettext catalogue in UTF-8.
    """
    # Read line by line first: polib would take a Latin-1 file for UTF-8 or name no line.
    text = "\n".join(read_lines(path))
    if "msgid" not in text:
        raise DataError(f"{path}: not a gettext catalogue (no 'msgid' in it)")
    try:
        catalogue = polib.pofile(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}{_po_place(str(error))}: not a line of a gettext catalogue") from None
    for entry in catalogue:
        if entry.obsolete or entry.fuzzy or not entry.translated():
            continue
        forms = entry.msgstr_plural
        if not forms:
            yield entry.msgid, entry.msgstr
            continue
        yield entry.msgid, forms[0]
        if len(forms) == 2:
            yield entry.msgid_plural, forms[1]


def _po_place(message: str) -> str:
    """``Syntax error in po file (line 7): x`` as ``:7``."""
    found = re.search(r"\(line (\d+)\)", message)
    return f":{found[1]}" if found else ""


def read_tmx(path: Path, source_language: str, target_language: str) -> Iterator[tuple[str, str]]:
    """Yield the segments of a translation memory in two languages, unit by unit, in bounded memory.

    A language matches its own code exactly or in a regional variant ("en" matches "EN-US"). Units that lack
    one of the languages are passed over. Inline codes inside a segment are dropped, the text in ``hi`` and
    ``sub`` is kept.

    Raises:
        DataError: not well-formed XML (file and line), an XML trick that would expand without bound, or no
        unit has
            both languages (those found are named).
    """
    found: set[str] = set()
    count = 0
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if compressed else raw
        try:
            for unit in _units(stream):
                segments = {_language(variant): variant.find("seg") for variant in unit.iter("tuv")}
                found.update(segments)
                source, target = _best(segments, source_language), _best(segments, target_language)
                if source is not None and target is not None:
                    count += 1
                    yield _segment_text(source), _segment_text(target)
        except ParseError as error:
            raise DataError(f"{path}:{error.position[0]}: not well-formed XML ({error})") from None
        except DefusedXmlException:
            raise DataError(f"{path}: XML entities are not accepted in a translation memory") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: damaged gzip file ({error})") from None
    if not count and found:
        languages = ", ".join(sorted(found))
        raise DataError(
            f"{path}: no unit has both '{source_language}' and '{target_language}'; languages found: {languages}"
        )


def _units(stream: Any) -> Iterator[Element]:
    root: Element | None = None
    for event, element in iterparse(stream, events=("start", "end")):
        if root is None:
            root = element
        if event == "end" and element.tag == "tu":
            yield element
            element.clear()
        elif event == "end" and element.tag == "body":
            break
        if event == "start" and element.tag == "tu" and len(body := _body(root)) > 1:
            del body[:-1]  # else the emptied units would pile up


def _body(root: Element) -> Element:
    body = root.find("body")
    return root if body is None else body


def _language(variant: Element) -> str:
    return (variant.get(_XML_LANG) or variant.get("lang") or "").lower()


def _best(segments: dict[str, Element | None], language: str) -> Element | None:
    language = language.lower()
    if segments.get(language) is not None:
        return segments[language]
    for code, segment in segments.items():
        if segment is not None and code.replace("_", "-").split("-")[0] == language.split("-")[0] != "":
            return segment
    return None


def _segment_text(segment: Element) -> str:
    parts = [segment.text or ""]
    for child in segment:
        if child.tag in ("hi", "sub"):
            parts.append(_segment_text(child))
        parts.append(child.tail or "")
    return "".join(parts)
