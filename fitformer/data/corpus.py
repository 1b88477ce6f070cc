"""The user's own text pairs: which files, in which format, read as one stream of (source, target)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from fitformer.data.formats import read_jsonl, read_po, read_tmx, read_tsv
from fitformer.data.lines import Meter, read_lines, read_parallel
from fitformer.data.markup import is_marked_up, read_marked_up
from fitformer.errors import DataError, InputError, nearest

FORMATS = ("parallel", "tsv", "jsonl", "po", "tmx")


@dataclass(frozen=True)
class CorpusFiles:
    """One corpus: the files are read one after the other as if they were one.

    ``format`` "parallel": ``source[i]`` and ``target[i]`` match line for line, also ``.sgm`` and ``.xml`` test sets
    (segment for segment) and the ``train.tags.*`` files of IWSLT. The other formats hold both
    sides in each of ``files``. ``source_field`` and ``target_field`` choose the keys of a JSONL object
    (default: "source" and "target", or else the languages) or the columns of a TSV row (numbers from 1,
    default 1 and 2; or the names in the first row). TMX units are chosen by language; gettext files have the
    source as msgid. Every file may be gzip-compressed.
    """

    format: str
    source_language: str
    target_language: str
    source: tuple[Path, ...] = ()
    target: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    source_field: str | None = None
    target_field: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            hint = nearest(self.format, FORMATS)
            raise InputError(f"corpus format '{self.format}' is not one of {', '.join(FORMATS)}{hint}")
        if self.format == "parallel" and (len(self.source) != len(self.target) or not self.source):
            raise InputError(
                f"parallel text needs as many source as target files, at least one; "
                f"got {len(self.source)} and {len(self.target)}"
            )
        if self.format != "parallel" and not self.files:
            raise InputError(f"a {self.format} corpus needs at least one file under 'files'")

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the corpus."""
        return (*self.source, *self.target, *self.files)


def read_pairs(files: CorpusFiles, *, meter: Meter | None = None) -> Iterator[tuple[str, str]]:
    """Yield the (source, target) pairs of a corpus as they stand in the files, one at a time.

    Raises:
        DataError: a file is missing, not UTF-8, malformed (with file and line), parallel files differ in
        length
            (with both lengths), or the corpus holds no pair at all.
    """
    for path in files.paths:
        if not path.is_file():
            raise DataError(f"{path}: {'is a folder, not a text file' if path.is_dir() else 'no such file'}")
    empty = True
    for pair in _dispatch(files, meter or Meter()):
        empty = False
        yield pair
    if empty:
        raise DataError(f"{', '.join(map(str, files.paths))}: empty corpus, no text pair found")


def _dispatch(files: CorpusFiles, meter: Meter) -> Iterator[tuple[str, str]]:
    if files.format == "parallel":
        for source, target in zip(files.source, files.target, strict=True):
            yield from read_parallel(source, target, meter=meter, read=_read_side)
        return
    for path in files.files:
        if files.format == "tsv":
            yield from read_tsv(path, files.source_field, files.target_field, meter=meter)
        elif files.format == "jsonl":
            yield from read_jsonl(path, _jsonl_fields(files), meter=meter)
        elif files.format == "po":
            yield from read_po(path)
        else:
            yield from read_tmx(path, files.source_language, files.target_language)


def _read_side(path: Path, *, meter: Meter | None = None) -> Generator[str, None, None]:
    """Lines of one side of parallel text; of a marked-up file (told by its name) what is text."""
    return (read_marked_up if is_marked_up(path) else read_lines)(path, meter=meter)


def _jsonl_fields(files: CorpusFiles) -> list[tuple[str, str]]:
    """The pairs of keys to look for in a JSONL object, in order."""
    if files.source_field or files.target_field:
        return [(files.source_field or "source", files.target_field or "target")]
    return [("source", "target"), (files.source_language, files.target_language)]
