"""Time many architectures one after another and notice when the device itself changes speed.

A device that throttles, or that somebody else uses too, makes every architecture look slower for a while: in four
of the eight data sets released with HAT a contiguous block of rows is 22 to 42 % too slow. So a fixed reference
model is timed after every few architectures. If it runs at its usual speed the block between is good; otherwise the
block is thrown away and repeated after a pause. Only accepted blocks reach ``records.csv``, and the next run
continues from there.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fitformer.errors import InputError
from fitformer.latency.records import Conditions, LatencyDataset, LatencyRecord
from fitformer.progress import Progress, say
from fitformer.runtime.timing import Timing
from fitformer.space import Architecture, SearchSpace

FIRST_REFERENCES = 3  # timings of the reference before the first block, so that one hiccup is not taken for usual


@dataclass(frozen=True)
class MeasureSettings:
    """How drift is watched.

    Attributes:
        reference_every: architectures between two timings of the reference, 1 to 5.
        drift_tolerance: share by which the reference may leave its usual time before the block is repeated.
        max_repeats: how often a block is repeated; after that it is kept with the flag ``drifted``.
        pause_seconds: rest before a repeat, for a hot device to cool down.
        correct: scale each latency by usual / present time of the reference.
        seed: order in which the architectures are timed.

    Raises:
        InputError: a value outside its range.
    """

    reference_every: int = 3
    drift_tolerance: float = 0.03
    max_repeats: int = 3
    pause_seconds: float = 5.0
    correct: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed, good in (
            ("reference_every", "1 to 5", 1 <= self.reference_every <= 5),
            ("drift_tolerance", "above 0 and below 1", 0 < self.drift_tolerance < 1),
            ("max_repeats", "0 or more", self.max_repeats >= 0),
            ("pause_seconds", "0 or more", self.pause_seconds >= 0),
        ):
            if not good:
                raise InputError(f"measure.{name}: {getattr(self, name)} must be {allowed}")


@dataclass(frozen=True)
class Measured:
    """What a run of ``measure`` left.

    Attributes:
        records: one per architecture, with the final corrections.
        reference_ms: the usual time of the reference model.
        drifted: records kept although the device was not at its usual speed.
        repeated: blocks that were thrown away and measured again.
        reused: architectures that the file already held.
        ignored: lines of the file taken under other conditions or by another exporter version.
    """

    records: tuple[LatencyRecord, ...]
    reference_ms: float
    drifted: int
    repeated: int
    reused: int
    ignored: int


def choose_architectures(space: SearchSpace, count: int, seed: int) -> list[Architecture]:
    """Return ``count`` different architectures: smallest, largest, and the rest drawn uniformly.

    A space of fewer gives fewer. With both ends measured, the predictor never has to extrapolate inside the space.
    """
    rng = random.Random(f"measure/{seed}")
    chosen = dict.fromkeys([space.smallest(), space.largest()][:count])
    for _ in range(100 * count):
        if len(chosen) >= min(count, space.size()):
            break
        chosen[space.sample(rng)] = None
    return list(chosen)


def measure(
    architectures: Sequence[Architecture],
    time_architecture: Callable[[Architecture], Timing],
    reference: Architecture,
    out_csv: Path,
    conditions: Conditions,
    *,
    settings: MeasureSettings | None = None,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    quiet: bool = False,
) -> Measured:
    """Time every architecture that ``out_csv`` does not hold yet, and return the records of all of them.

    Args:
        time_architecture: times one architecture; called again and again with ``reference``, so let it keep
            that session.
        reference: the fixed model by which drift is seen.
        conditions: what ``time_architecture`` runs under.
        pause, now: sleep some seconds and tell the time; others only in tests.
    Raises:
        DataError: ``out_csv`` is not a file of latency records.
        NotPossibleError: the disk is full.
    """
    settings = settings or MeasureSettings()
    order = list(dict.fromkeys(architectures))
    assert order, "nothing to measure"
    random.Random(f"order/{settings.seed}").shuffle(order)
    run = _Run(order, time_architecture, reference, LatencyDataset(out_csv, conditions), settings, pause, now)
    reused = run.num_settled
    if run.dataset.ignored and not quiet:
        say(f"measure: {run.dataset.ignored} lines of {out_csv.name} are of other conditions or exporter, not used")
    with Progress("measure", len(order), unit="architecture", start=reused, quiet=quiet) as progress:
        while block := run.next_block():
            run.measure_block(block)
            progress.update(run.num_settled, reference_ms=run.usual_ms, repeated=run.repeated)
    measured = run.finish(reused)
    if measured.drifted and not quiet:
        say(
            f"measure: {measured.drifted} of {len(order)} latencies were taken while the device was more than "
            f"{100 * settings.drift_tolerance:.3g} % off its usual speed, repeating did not help; flagged 'drifted'"
        )
    return measured


def usual(references_ms: Sequence[float], tolerance: float) -> float:
    """Return the usual time of the reference: the median of the timings that lie around the lower quartile of all.

    A disturbance only ever slows a device down, so a run that began on a hot device must not make slowness the norm;
    and a short fast phase (turbo, at the start) must not either, so it is not the minimum.
    """
    ordered = sorted(references_ms)
    level = ordered[(len(ordered) - 1) // 4]
    return statistics.median(value for value in ordered if abs(value / level - 1) <= tolerance)


class _Run:
    """The state of one call of ``measure``: what is measured, how often, and how fast the reference has been."""

    def __init__(
        self,
        order: list[Architecture],
        time_architecture: Callable[[Architecture], Timing],
        reference: Architecture,
        dataset: LatencyDataset,
        settings: MeasureSettings,
        pause: Callable[[float], None],
        now: Callable[[], str],
    ) -> None:
        self.order, self.dataset, self.settings = order, dataset, settings
        self._time, self._reference, self._pause, self._now = time_architecture, reference, pause, now
        self._references = _reference_times(dataset.records)
        self._last_reference: float | None = None
        self._records = {record.arch: record for record in dataset.records}
        self._attempts = {arch: record.attempt for arch, record in self._records.items()}
        self.repeated = 0

    @property
    def usual_ms(self) -> float:
        return usual(self._references, self.settings.drift_tolerance)

    @property
    def num_settled(self) -> int:
        return sum(map(self._settled, self.order))

    def next_block(self) -> list[Architecture]:
        """The next architectures to time: new ones, and those measured while the device was not at its usual speed."""
        return [arch for arch in self.order if not self._settled(arch)][: self.settings.reference_every]

    def measure_block(self, block: list[Architecture]) -> None:
        """Time a block between two timings of the reference, and keep it if the device was steady."""
        while len(self._references) < FIRST_REFERENCES:
            self._time_reference()
        before = self._last_reference or self._time_reference()
        timings = [(arch, self._time(arch)) for arch in block]
        after = self._time_reference()
        steady = all(abs(ms / self.usual_ms - 1) <= self.settings.drift_tolerance for ms in (before, after))
        kept: list[LatencyRecord] = []
        for arch, timing in timings:
            self._attempts[arch] = self._attempts.get(arch, 0) + 1
            if steady or self._attempts[arch] > self.settings.max_repeats:
                record = self._record(arch, timing, before, after, len(kept))
                kept.append(replace(record, drifted=not steady))
        self.dataset.append(kept)
        self._records |= {record.arch: record for record in kept}
        if len(kept) < len(block):
            self.repeated += 1
            self._pause(self.settings.pause_seconds)
            self._last_reference = None  # the next block begins with the device as it is after the pause

    def finish(self, reused: int) -> Measured:
        """Correct every record by the final usual time; early ones were corrected by what was usual till then."""
        usual_ms = usual(_reference_times(self.dataset.records), self.settings.drift_tolerance)
        final = []
        for record in self.dataset.records:
            correction = usual_ms / record.reference_ms if self.settings.correct else 1.0
            final.append(record.corrected(correction, drifted=self._has_drifted(record, usual_ms)))
        if final != self.dataset.records:
            self.dataset.rewrite(final)
        wanted = set(self.order)
        records = tuple(record for record in final if record.arch in wanted)
        drifted = sum(record.drifted for record in records)
        return Measured(records, usual_ms, drifted, self.repeated, reused, self.dataset.ignored)

    def _settled(self, arch: Architecture) -> bool:
        record = self._records.get(arch)
        if record is None:
            return False
        return self._attempts[arch] > self.settings.max_repeats or not self._has_drifted(record, self.usual_ms)

    def _has_drifted(self, record: LatencyRecord, usual_ms: float) -> bool:
        around = record.reference_before_ms, record.reference_after_ms
        return any(abs(reference_ms / usual_ms - 1) > self.settings.drift_tolerance for reference_ms in around)

    def _time_reference(self) -> float:
        self._last_reference = self._time(self._reference).latency_ms
        self._references.append(self._last_reference)
        return self._last_reference

    def _record(self, arch: Architecture, timing: Timing, before: float, after: float, position: int) -> LatencyRecord:
        correction = 2 * self.usual_ms / (before + after) if self.settings.correct else 1.0
        index = max((record.index for record in self.dataset.records), default=-1) + 1 + position
        conditions = self.dataset.conditions
        assert timing.batch_size == conditions.batch_size and timing.beam == conditions.beam
        return LatencyRecord(
            architecture=arch.to_text(),
            encoder_ms=timing.encoder.mean * correction,
            decoder_ms=timing.decoder.mean * correction,
            latency_ms=timing.latency_ms * correction,
            std_ms=timing.total.std * correction,
            min_ms=timing.total.min * correction,
            repeats=timing.repeats,
            **conditions.to_dict(),
            reference_before_ms=before,
            reference_after_ms=after,
            correction=correction,
            drifted=False,
            attempt=self._attempts[arch],
            index=index,
            timestamp=self._now(),
        )


def _reference_times(records: Sequence[LatencyRecord]) -> list[float]:
    """Each timing of the reference once: the records of a block share theirs, neighbouring blocks share one."""
    return list(dict.fromkeys(t for record in records for t in (record.reference_before_ms, record.reference_after_ms)))
