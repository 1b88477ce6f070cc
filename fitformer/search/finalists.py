"""The last word belongs to the clock: the best candidates are measured, and only one that keeps the limit can win.

A predictor is off by some percent, and a search that presses against the limit finds exactly the architectures it
underestimates. So the best few are measured for real; if the leader breaks the limit the predictor is corrected
with the new measurements and the search goes on, a bounded number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fitformer.errors import InputError, NotPossibleError
from fitformer.progress import say
from fitformer.rundir import read_json, write_json
from fitformer.search.history import Candidate
from fitformer.search.reachable import Cost
from fitformer.space import Architecture

# The finalists of a round are the best within these shares of the limit: if the predictor is too low for the leader, it
# most likely is for its neighbours too, and a slightly faster one may still keep the limit.
LADDER = (1.0, 0.98, 0.95, 0.9, 0.8)

Measure = Callable[[Architecture], float]


@dataclass(frozen=True)
class Finalist:
    """A measured candidate; ``predicted_ms`` is what the predictor said before the measurement."""

    architecture: Architecture
    valid_loss: float
    predicted_ms: float
    measured_ms: float
    round: int

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of ``candidates.json``, with the architecture as its line of text."""
        return asdict(self) | {"architecture": self.architecture.to_text()}


@dataclass(frozen=True)
class Settled:
    """How the search ended.

    Attributes:
        winner: lowest loss among the finalists that keep the limit when measured.
        finalists: all that were measured, in that order.
        rounds: rounds of measuring.
        predictor_error: mean of |predicted / measured - 1| over the last round, in percent.
    """

    winner: Finalist
    finalists: tuple[Finalist, ...]
    rounds: int
    predictor_error: float


def settle(
    candidates: Sequence[Candidate],
    measure: Measure,
    limit_ms: float,
    *,
    refit: Callable[[Sequence[Finalist]], Cost],
    search_on: Callable[[Cost], Sequence[Candidate]],
    path: Path | None = None,
    per_round: int = 5,
    max_rounds: int = 3,
    quiet: bool = False,
) -> Settled:
    """Measure the best candidates until the leader keeps the limit, and return the best that does.

    Args:
        candidates: evaluated architectures predicted to keep the limit.
        measure: latency of an architecture in milliseconds, measured.
        refit: given all finalists so far, the corrected prediction.
        search_on: goes on searching with a corrected prediction and returns the candidates within the limit by it.
        path: ``candidates.json``; measurements it already holds are not made again.
    Raises:
        NotPossibleError: nothing that was measured keeps the limit; the message names the fastest.
        InputError: a bad setting, or ``path`` holds something else.
    """
    for name, value in (("finalists", per_round), ("max_rounds", max_rounds)):
        if value < 1:
            raise InputError(f"search.{name}: {value} must be 1 or more")
    bench = _Bench(measure, limit_ms, path)
    for number in range(1, max_rounds + 1):
        new = [bench.measure(candidate, number) for candidate in pick(candidates, limit_ms, per_round, bench.measured)]
        if not new or min(new, key=_by_loss).measured_ms <= limit_ms:
            break  # nothing better is left to measure, or the leader holds
        if number == max_rounds:
            break
        if not quiet:
            leader = min(new, key=_by_loss)
            say(
                f"search: the best architecture takes {leader.measured_ms:.4g} ms, not {leader.predicted_ms:.4g} as "
                f"predicted (limit {limit_ms:g}); correcting the predictor and searching on"
            )
        try:
            candidates = search_on(bench.with_measured(refit(bench.finalists)))
        except NotPossibleError:
            break  # by the corrected prediction nothing else keeps the limit; only measuring can tell otherwise
    if not bench.keepers:
        bench.try_fastest(candidates, per_round)
    return bench.result()


def pick(
    candidates: Sequence[Candidate], limit_ms: float, count: int, without: dict[Architecture, float]
) -> list[Candidate]:
    """Choose up to ``count`` candidates worth measuring, lowest loss first.

    The best within each share of ``LADDER`` of the limit, then the next best. An architecture that was measured is not
    chosen again, and nothing worse than the best measured one that keeps the limit is worth a measurement.
    """
    ranked = sorted((c for c in candidates if math.isfinite(c.valid_loss)), key=lambda candidate: candidate.order)
    held = [c.valid_loss for c in ranked if without.get(c.architecture, math.inf) <= limit_ms]
    if held:
        ranked = [candidate for candidate in ranked if candidate.valid_loss < min(held)]
    ranked = [c for c in ranked if c.architecture not in without and c.predicted_ms <= limit_ms]
    chosen: list[Candidate] = []
    for share in LADDER[:count]:
        within = (c for c in ranked if c.predicted_ms <= share * limit_ms and c not in chosen)
        chosen += [first] if (first := next(within, None)) else []
    chosen += [candidate for candidate in ranked if candidate not in chosen][: count - len(chosen)]
    return sorted(chosen, key=lambda candidate: candidate.order)


class _Bench:
    """The measured finalists of one search, kept in a file so that a resumed search does not measure them again."""

    def __init__(self, measure: Measure, limit_ms: float, path: Path | None) -> None:
        self._measure, self._limit_ms, self._path = measure, limit_ms, path
        self._known = _read_measured(path) if path is not None and path.exists() else {}
        self.finalists: list[Finalist] = []

    @property
    def measured(self) -> dict[Architecture, float]:
        return {finalist.architecture: finalist.measured_ms for finalist in self.finalists}

    @property
    def keepers(self) -> list[Finalist]:
        return [finalist for finalist in self.finalists if finalist.measured_ms <= self._limit_ms]

    def measure(self, candidate: Candidate, number: int) -> Finalist:
        arch = candidate.architecture
        measured_ms = self._known.get(arch.to_text())
        new = measured_ms is None
        measured_ms = self._measure(arch) if measured_ms is None else measured_ms
        finalist = Finalist(arch, candidate.valid_loss, candidate.predicted_ms, measured_ms, number)
        self.finalists.append(finalist)
        if new and self._path is not None:
            self._known[arch.to_text()] = measured_ms
            written = {known.architecture.to_text() for known in self.finalists}
            # On a resumed run those not reached again yet stay in the file, as bare measurements.
            rest = [{"architecture": t, "measured_ms": ms} for t, ms in self._known.items() if t not in written]
            write_json(self._path, [*(known.to_dict() for known in self.finalists), *rest])
        return finalist

    def with_measured(self, cost: Cost) -> Cost:
        """The same prediction, but what has been measured is known."""
        measured = self.measured
        return lambda arch: measured[arch] if arch in measured else cost(arch)

    def try_fastest(self, candidates: Sequence[Candidate], count: int) -> None:
        """Last resort: measure from the fastest predicted candidate upwards until one keeps the limit."""
        unmeasured = [c for c in candidates if c.architecture not in self.measured and math.isfinite(c.valid_loss)]
        for candidate in sorted(unmeasured, key=lambda candidate: (candidate.predicted_ms, candidate.order))[:count]:
            if self.measure(candidate, self.finalists[-1].round if self.finalists else 1).measured_ms <= self._limit_ms:
                return

    def result(self) -> Settled:
        if not self.keepers:
            fastest = min((finalist.measured_ms for finalist in self.finalists), default=math.nan)
            raise NotPossibleError(
                f"limit {self._limit_ms:g} ms: none of the {len(self.finalists)} best architectures keeps it when "
                f"measured; the fastest takes {fastest:.4g} ms. Raise the limit, or "
                f"search again on a quieter device with --rerun search"
            )
        rounds = max(finalist.round for finalist in self.finalists)
        errors = [abs(f.predicted_ms / f.measured_ms - 1) for f in self.finalists if f.round == rounds]
        winner = min(self.keepers, key=_by_loss)
        return Settled(winner, tuple(self.finalists), rounds, 100 * sum(errors) / len(errors))


def _by_loss(finalist: Finalist) -> tuple[float, float, str]:
    return finalist.valid_loss, finalist.measured_ms, finalist.architecture.to_text()


def _read_measured(path: Path) -> dict[str, float]:
    try:
        return {str(entry["architecture"]): float(entry["measured_ms"]) for entry in read_json(path)}
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a list of measured candidates ({error!r})") from None
