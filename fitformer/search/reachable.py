"""Whether a limit can be reached at all, found before any time is spent on a search."""

from __future__ import annotations

import random
from collections.abc import Callable

from fitformer.errors import NotPossibleError
from fitformer.space import Architecture, SearchSpace

Cost = Callable[[Architecture], float]

ENUMERATED_UP_TO = 5000  # architectures; a space no larger is looked through completely
DESCENT_ROUNDS = 20
DESCENT_WIDTH = 64
DESCENT_MUTATION = 0.1
PATIENCE = 3  # rounds without a gain after which the descent ends


def cheapest(space: SearchSpace, cost: Cost, *, seed: int = 0) -> tuple[Architecture, float]:
    """Return the architecture of lowest cost that could be found, and its cost in milliseconds.

    A small space is enumerated. In a large one this starts from the smallest architecture, which is nearly always
    it, and descends by small mutations in case the device has a taste of its own.
    """
    if space.size() <= ENUMERATED_UP_TO:
        return min(((arch, cost(arch)) for arch in space.enumerate()), key=lambda pair: (pair[1], pair[0].to_text()))
    rng = random.Random(f"cheapest/{seed}")
    best = space.smallest()
    best_ms = cost(best)
    idle = 0
    for _ in range(DESCENT_ROUNDS):
        tried = [space.mutate(best, DESCENT_MUTATION, rng) for _ in range(DESCENT_WIDTH)]
        found_ms, _, found = min((cost(arch), arch.to_text(), arch) for arch in tried)
        if found_ms < best_ms:
            best, best_ms, idle = found, found_ms, 0
        elif (idle := idle + 1) == PATIENCE:
            break
    return best, best_ms


def check_reachable(space: SearchSpace, cost: Cost, limit_ms: float, *, seed: int = 0) -> Architecture:
    """Return an architecture within the limit.

    Raises:
        NotPossibleError: there is none; the message names the smallest reachable latency.
    """
    arch, latency_ms = cheapest(space, cost, seed=seed)
    if latency_ms > limit_ms:
        raise NotPossibleError(
            f"limit {limit_ms:g} ms: no architecture of this space is that fast; the smallest reachable latency is "
            f"about {latency_ms:.4g} ms. Raise the limit or add smaller choices to the space"
        )
    return arch
