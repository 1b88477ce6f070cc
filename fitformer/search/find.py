"""A whole search: evolution, then measured finalists, then the files of the stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.rundir import write_json
from fitformer.search.evolution import Evolution, EvolutionSettings, Fitness
from fitformer.search.finalists import Finalist, Measure, Settled, settle
from fitformer.search.front import write_front
from fitformer.search.history import Candidate, History
from fitformer.search.reachable import Cost
from fitformer.space import SearchSpace

MORE_GENERATIONS_SHARE = 5  # a corrected predictor is followed by a fifth of the generations


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        winner: lowest loss within the limit; not measured where ``settled`` is ``None``.
        settled: winner, measured finalists and the predictor's final error; ``None`` if nothing could be measured.
        candidates: all evaluated architectures, in the order of evaluation.
        front: the non-dominated ones.
        generations: generations that were run.
        stale: how many of the last ones brought nothing better.
    """

    winner: Finalist | Candidate
    settled: Settled | None
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    generations: int
    stale: int

    def facts(self) -> dict[str, Any]:
        """Figures for the stage's record of facts."""
        return {
            "evaluations": len(self.candidates),
            "generations": self.generations,
            "generations_without_gain": self.stale,
            "rounds": self.settled.rounds if self.settled else 0,
            "measured": len(self.settled.finalists) if self.settled else 0,
            "predictor_error": self.settled.predictor_error if self.settled else None,
        }


def find_architecture(
    space: SearchSpace,
    fitness: Fitness,
    cost: Cost,
    limit_ms: float,
    *,
    measure: Measure | None,
    refit: Callable[[Sequence[Finalist]], Cost] | None,
    folder: Path,
    settings: EvolutionSettings | None = None,
    finalists: int = 5,
    max_rounds: int = 3,
    quiet: bool = False,
) -> Found:
    """Find the architecture of lowest loss that keeps the limit when measured; leave the stage's files in ``folder``.

    Run again after a kill with the same arguments it gives the same result: evaluations come from ``history.jsonl``,
    measurements from ``candidates.json``.

    Args:
        fitness: validation loss of an architecture, lower is better; never asked twice for the same.
        cost: predicted latency of an architecture in milliseconds.
        measure: its measured latency in milliseconds; ``None`` where the device is not at hand: then ``cost`` has the
            last word, and the winner is the candidate of lowest loss that keeps the limit by it.
        refit: given all measured finalists so far, a better ``cost``.
        finalists, max_rounds: architectures measured per round, and rounds.
    Raises:
        NotPossibleError: the limit cannot be kept; the message names the smallest latency found.
        DataError: the history in ``folder`` cannot be read.
    """
    settings = settings or EvolutionSettings()
    evolution = Evolution(space, fitness, limit_ms, settings, History(folder / "history.jsonl"), quiet=quiet)
    candidates = evolution.run(cost)
    stale = evolution.stale
    more = max(1, settings.num_generations // MORE_GENERATIONS_SHARE)
    settled = None
    if measure is not None:
        assert refit is not None, "measured finalists correct the predictor"
        settled = settle(
            candidates,
            measure,
            limit_ms,
            refit=refit,
            search_on=lambda corrected: evolution.run(corrected, more),
            path=folder / "candidates.json",
            per_round=finalists,
            max_rounds=max_rounds,
            quiet=quiet,
        )
    winner = settled.winner if settled is not None else candidates[0]
    evaluated = tuple(evolution.evaluated.values())
    kept = write_front(folder / "front.json", evaluated)
    best = {
        "architecture": winner.architecture.to_dict(),
        "text": winner.architecture.to_text(),
        "valid_loss": winner.valid_loss,
        "predicted_ms": winner.predicted_ms,
        "measured_ms": winner.measured_ms if isinstance(winner, Finalist) else None,
        "limit_ms": limit_ms,
    }
    write_json(folder / "best.json", best)
    return Found(winner, settled, evaluated, tuple(kept), evolution.generation, stale)
