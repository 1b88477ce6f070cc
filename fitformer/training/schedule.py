"""Learning-rate schedules: linear warm-up, then one of four ways down."""

from __future__ import annotations

import math

from fitformer.recipe import Training


def learning_rate(settings: Training, update: int) -> float:
    """The rate of update ``update`` (the first is 1).

    After a linear warm-up from the initial rate to the peak: ``cosine`` is HAT's one half period down to the final
    rate, ``inverse_sqrt`` is peak * sqrt(warmup / update) (Vaswani et al. 2017) with no floor, ``linear`` a straight
    line, ``constant`` the peak. These are fairseq's formulas; fairseq computes a rate after each update for the next
    one, so that its update n + 1 has the rate of update n here.
    """
    peak, floor, warmup = settings.learning_rate, settings.final_learning_rate, settings.warmup
    if update <= warmup:
        initial = settings.initial_learning_rate
        return initial + (peak - initial) * update / warmup
    share = (update - warmup) / max(settings.updates - warmup, 1)
    if settings.schedule == "cosine":
        return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * share))
    if settings.schedule == "linear":
        return floor + (peak - floor) * (1 - share)
    if settings.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / update)
    return peak
