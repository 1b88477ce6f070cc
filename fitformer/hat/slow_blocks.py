"""Finds the rows of a latency file that were measured while the device was slow: throttled, or at work for others.

Rows stand in the order of measurement, so a slow device leaves a contiguous block of rows that all take longer than
their architectures explain. The method:

1. fit the default predictor (its Huber loss bears some bad rows) and take the logarithm of measured / predicted;
2. cut the rows into segments of constant level by optimal partitioning: least squares plus a price per segment
   (Jackson et al. 2005, "An algorithm for optimal partitioning of data on an interval"). Residuals are clipped to
   three standard deviations, so that single outliers make no segment (a bounded loss, after Fearnhead and Rigaill
   2019, "Changepoint detection in the presence of outliers");
3. a segment is slow if the median of its residuals lies outside the noise of the other rows; rows at its ends that
   are nearer to the usual level than to the segment's are given back (clipped, both looked alike);
4. leave the slow rows out, fit again, and repeat until the same rows are found.

A disturbance only ever slows a device down. So the noise is the spread of the rows that are faster than usual, which
slow rows cannot widen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitformer.latency.features import Floats
from fitformer.latency.predictor import LatencyPredictor

Flags = NDArray[np.bool_]

CLIP = 3.0  # standard deviations beyond which a residual says no more
LEAST_EXCESS = 0.05  # below, a search would not notice
LEAST_ROWS = 10  # fewer are outliers, which the robust fit bears
LEAST_SPREAD = 0.005  # of a noise-free file, so that rounding is no slowness
SEGMENT_PRICE = 3.0  # times ln(rows): a level and a place, at more than their BIC price since noise is not white
MOST_ROUNDS = 20


@dataclass(frozen=True)
class SlowBlock:
    """Rows ``first`` to ``last``, both included and counted from 0 below the header.

    ``excess`` is the median share by which they are slower than the other rows explain (0.24 = 24 %).
    """

    first: int
    last: int
    excess: float

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return self.last - self.first + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the block, ready for JSON, its excess in percent."""
        return {
            "first": self.first,
            "last": self.last,
            "rows": self.num_rows,
            "excess_percent": round(100 * self.excess, 2),
        }


def find_slow_blocks(table: Floats, encoder_ms: Floats, decoder_ms: Floats) -> list[SlowBlock]:
    """Find the slow blocks of rows in the order of measurement.

    Args:
        table: totals in the order of ``FEATURE_NAMES``, [rows, features].
        encoder_ms, decoder_ms: measured milliseconds, [rows].
    Returns:
        blocks of at least ``LEAST_ROWS`` rows, first to last.
    """
    slow = np.zeros(len(table), dtype=np.bool_)
    if len(table) < 2 * LEAST_ROWS:
        return []
    seen: list[Flags] = []
    while len(seen) < MOST_ROUNDS and not any(np.array_equal(slow, before) for before in seen):
        seen.append(slow)
        residuals = _residuals(table, encoder_ms, decoder_ms, usual=~slow)
        slow = _slow_rows(residuals, _spread(residuals[~slow]))
    return [SlowBlock(a, b - 1, float(np.expm1(np.median(residuals[a:b])))) for a, b in _runs(slow)]


def slow_rows(blocks: list[SlowBlock], count: int) -> Flags:
    """Flag the rows of the blocks, [count]."""
    flags = np.zeros(count, dtype=np.bool_)
    for block in blocks:
        flags[block.first : block.last + 1] = True
    return flags


def segments(values: Floats, price: float) -> list[tuple[int, int]]:
    """Cut ``values`` into segments [start, end) with the least sum of squares around their means, plus ``price`` each.

    Exact dynamic programming over the last cut, quadratic in the number of values.
    """
    count = len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (values, values * values))
    best, cut = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        length = end - np.arange(end)
        cost = best[:end] + price + squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / length
        cut[end] = int(cost.argmin())
        best[end] = cost[cut[end]]
    found, end = [], count
    while end:
        found.append((int(cut[end]), end))
        end = int(cut[end])
    return found[::-1]


def _residuals(table: Floats, encoder_ms: Floats, decoder_ms: Floats, *, usual: Flags) -> Floats:
    """Logarithm of measured / predicted for every row, 0 for the median of the usual ones."""
    fitted = LatencyPredictor.fit_features(table[usual], encoder_ms[usual], decoder_ms[usual])
    tiny = np.finfo(np.float64).tiny
    residuals = np.log((encoder_ms + decoder_ms) / np.maximum(fitted.predict_features(table), tiny))
    centred: Floats = residuals - np.median(residuals[usual])
    return centred


def _spread(residuals: Floats) -> float:
    """Robust standard deviation, from the rows that are faster than the median one."""
    faster = residuals[residuals < 0]
    return max(1.4826 * float(np.median(-faster)) if len(faster) else 0.0, LEAST_SPREAD)


def _slow_rows(residuals: Floats, spread: float) -> Flags:
    slow = np.zeros(len(residuals), dtype=np.bool_)
    clipped = np.clip(residuals / spread, -CLIP, CLIP)
    for start, end in segments(clipped, SEGMENT_PRICE * math.log(len(residuals))):
        slow[start:end] = np.median(residuals[start:end]) > max(CLIP * spread, math.log1p(LEAST_EXCESS))
    for start, end in _runs(slow):
        near = np.flatnonzero(residuals[start:end] > np.median(residuals[start:end]) / 2)
        slow[start:end] = False
        slow[start + near[0] : start + near[-1] + 1] = near[-1] - near[0] + 1 >= LEAST_ROWS
    return slow


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """Stretches [start, end) of set flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
