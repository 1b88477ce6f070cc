"""``records.csv``: one line per measured architecture, appended while measuring and safe against a kill at any byte.

A line counts only when its newline is on the disk: what a kill left behind it is dropped on reading and cut off
before the next line is appended. Measurements of another exporter version or under other conditions stay in the
file but are not used, since a faster graph or another batch size makes another device of the same board.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fitformer.errors import DataError
from fitformer.rundir import disk_error, write_text
from fitformer.space import Architecture


@dataclass(frozen=True)
class Conditions:
    """What must be equal for two latencies to be compared; lengths in tokens, eos counted."""

    threads: int
    batch_size: int
    beam: int
    source_length: int
    target_length: int
    exporter_version: int

    def to_dict(self) -> dict[str, int]:
        """Return the conditions by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LatencyRecord:
    """One measured architecture; all times are milliseconds per batch.

    Attributes:
        architecture: the line of ``Architecture.to_text``.
        encoder_ms, decoder_ms, latency_ms: trimmed means (the sum is ``latency_ms``), already times ``correction``.
        std_ms, min_ms: spread and fastest of the repeats, also times ``correction``.
        reference_before_ms, reference_after_ms: the reference model just before and just after this measurement.
        correction: factor that took out the device's drift; 1 when nothing was corrected.
        drifted: the device was away from its usual speed and stayed so, however often this was repeated.
        attempt: how often this architecture has been measured, this time included.
        index: running number of the measurement in this file.
        timestamp: when it was measured, ISO 8601.
    """

    architecture: str
    encoder_ms: float
    decoder_ms: float
    latency_ms: float
    std_ms: float
    min_ms: float
    repeats: int
    threads: int
    batch_size: int
    beam: int
    source_length: int
    target_length: int
    exporter_version: int
    reference_before_ms: float
    reference_after_ms: float
    correction: float
    drifted: bool
    attempt: int
    index: int
    timestamp: str

    @cached_property
    def arch(self) -> Architecture:
        """The architecture as a value."""
        return Architecture.from_text(self.architecture)

    @property
    def conditions(self) -> Conditions:
        """What the measurement can be compared under."""
        return Conditions(**{field.name: getattr(self, field.name) for field in fields(Conditions)})

    @property
    def reference_ms(self) -> float:
        """The reference model's time around this measurement, mean of before and after."""
        return (self.reference_before_ms + self.reference_after_ms) / 2

    def corrected(self, correction: float, *, drifted: bool) -> LatencyRecord:
        """Return the same measurement with another correction in place of the present one."""
        ratio = correction / self.correction
        times = ("encoder_ms", "decoder_ms", "latency_ms", "std_ms", "min_ms")
        changes: dict[str, Any] = {name: getattr(self, name) * ratio for name in times}
        return replace(self, **changes, correction=correction, drifted=drifted)


_COLUMNS = [field.name for field in fields(LatencyRecord)]
_READERS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": lambda text: {"0": False, "1": True}[text]}
_READ = {field.name: _READERS[str(field.type)] for field in fields(LatencyRecord)}


class LatencyDataset:
    """The records of one file that were taken under ``conditions``, the latest one of each architecture.

    Attributes:
        records: usable records in the order of their measurement.
        ignored: number of lines in the file taken under other conditions or by another exporter version.

    Raises:
        DataError: the file is not one of ours, or a line before its last cannot be read; the message names the line.
    """

    def __init__(self, path: Path, conditions: Conditions) -> None:
        self.path, self.conditions = path, conditions
        self._all = read_records(path)
        self._sort()

    def append(self, records: Sequence[LatencyRecord]) -> None:
        """Add records to the file and to ``records``; a later record of an architecture takes the place of its older.

        Raises:
            NotPossibleError: the disk is full or the file cannot be written; what was there stays readable.
        """
        if not records:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                whole = _whole_length(self.path)
                stream.truncate(whole)
                stream.write((b"" if whole else _to_csv([]).encode()) + _to_lines(records).encode())
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from error
        self._all += records
        self._sort()

    def rewrite(self, records: Sequence[LatencyRecord]) -> None:
        """Put ``records`` in the place of all that were taken under the conditions; other lines stay, atomically."""
        self._all = [r for r in self._all if r.conditions != self.conditions] + list(records)
        write_text(self.path, _to_csv(self._all))
        self._sort()

    def _sort(self) -> None:
        usable = [record for record in self._all if record.conditions == self.conditions]
        latest = {record.architecture: record for record in usable}
        self.records = sorted(latest.values(), key=lambda record: record.index)
        self.ignored = len(self._all) - len(usable)


def read_records(path: Path) -> list[LatencyRecord]:
    """Read every whole line of a file, whatever its conditions; a missing file has none.

    Raises:
        DataError: the columns are others, or a line cannot be read.
    """
    if not path.exists():
        return []
    head = _to_csv([])
    try:
        text = path.read_bytes()[: _whole_length(path)].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a file of latency records ({error})") from None
    lines = text.splitlines()
    if not lines:
        if not head.encode().startswith(path.read_bytes()):
            raise DataError(f"{path}: not a file of latency records; move it away or name another")
        return []
    if lines[0] != head.rstrip("\n"):
        raise DataError(f"{path}:1: other columns than latency records have; move the file away to measure afresh")
    return [_read_line(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def _read_line(path: Path, number: int, line: str) -> LatencyRecord:
    try:
        cells = next(csv.reader([line], strict=True))
        values = {name: _READ[name](cell) for name, cell in zip(_COLUMNS, cells, strict=True)}
        record = LatencyRecord(**values)
        times = record.encoder_ms, record.decoder_ms, record.latency_ms, record.correction
        if not all(math.isfinite(value) and value >= 0 for value in times) or record.latency_ms <= 0:
            raise ValueError("a time that is no positive number")
        _ = record.arch
    except (csv.Error, KeyError, StopIteration, ValueError) as error:
        raise DataError(f"{path}:{number}: not a latency record ({error})") from None
    return record


def _whole_length(path: Path) -> int:
    """Bytes up to and with the last newline: what a kill in the middle of a line left behind is not counted."""
    return path.read_bytes().rfind(b"\n") + 1


def _to_csv(records: Sequence[LatencyRecord]) -> str:
    return ",".join(_COLUMNS) + "\n" + _to_lines(records)


def _to_lines(records: Sequence[LatencyRecord]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for record in records:
        values = [getattr(record, name) for name in _COLUMNS]
        writer.writerow([int(value) if isinstance(value, bool) else value for value in values])
    return stream.getvalue()
