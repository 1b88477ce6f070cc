"""The trade-off: evaluated architectures that no other one beats in both loss and latency."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fitformer.rundir import write_json
from fitformer.search.history import Candidate


def front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the non-dominated candidates by (loss, predicted latency), fastest first.

    Of several with the same loss and latency one is kept.
    """
    fastest_first = sorted(candidates, key=lambda c: (c.predicted_ms, c.valid_loss, c.architecture.to_text()))
    kept: list[Candidate] = []
    for candidate in fastest_first:
        if not kept or candidate.valid_loss < kept[-1].valid_loss:
            kept.append(candidate)
    return kept


def write_front(path: Path, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Write the front as a JSON list with the keys of the history, and return it."""
    kept = front(candidates)
    write_json(path, [candidate.to_dict() for candidate in kept])
    return kept
