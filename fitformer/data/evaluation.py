"""Validation and test sets: kept as they are, line for line, so that scores compare with anybody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fitformer.data.normalise import one_line, source_digest
from fitformer.errors import DataError
from fitformer.rundir import atomic_path


@dataclass(frozen=True)
class EvaluationText:
    """A written set: pairs read, pairs left out since a side was empty, digests of the sources' comparison
    forms.
    """

    read: int
    empty: int
    source_digests: frozenset[bytes]


class TextWriter:
    """Writes ``FOLDER/SPLIT.source.txt`` and ``.target.txt``, one sentence a line; they appear together at
    the end.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._paths = [text_path(folder, split, side) for side in ("source", "target")]

    def __enter__(self) -> TextWriter:
        with ExitStack() as stack:
            temporary = [stack.enter_context(atomic_path(path)) for path in self._paths]
            self._files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in temporary]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def add(self, source: str, target: str) -> None:
        """Append one pair."""
        for stream, text in zip(self._files, (source, target), strict=True):
            stream.write(text + "\n")


def text_path(folder: Path, split: str, side: str) -> Path:
    """Where the raw text of one side ("source" or "target") of a split stands."""
    return folder / f"{split}.{side}.txt"


def write_evaluation_text(folder: Path, split: str, pairs: Iterable[tuple[str, str]], *, seed: int) -> EvaluationText:
    """Write a given validation or test set; only pairs with an empty side are left out.

    Raises:
        DataError: no pair is left.
    """
    read = empty = 0
    digests = set()
    with TextWriter(folder, split) as writer:
        for raw_source, raw_target in pairs:
            read += 1
            source, target = one_line(raw_source), one_line(raw_target)
            if not source or not target:
                empty += 1
                continue
            writer.add(source, target)
            digests.add(source_digest(source, seed))
    if read == empty:
        raise DataError(f"{split}: all {read} pairs have an empty side; nothing is left to score")
    return EvaluationText(read, empty, frozenset(digests))


def read_evaluation_text(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs that ``TextWriter`` wrote.

    Raises:
        DataError: a file is missing or was cut short since.
    """
    paths = text_path(folder, split, "source"), text_path(folder, split, "target")
    try:
        with (
            paths[0].open(encoding="utf-8", newline="\n") as sources,
            paths[1].open(encoding="utf-8", newline="\n") as targets,
        ):
            for source, target in zip(sources, targets, strict=True):
                if not (source.endswith("\n") and target.endswith("\n")):
                    raise ValueError
                yield source[:-1], target[:-1]
    except FileNotFoundError as error:
        raise DataError(f"{error.filename}: no such file; run the prepare stage again") from None
    except ValueError:  # half a character, half a line, or fewer lines on one side
        raise DataError(f"{paths[0]} or {paths[1].name}: damaged; run the prepare stage again") from None
