"""Blocks of rows measured while the device was slow are found without hints, in HAT's files and where we plant them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitformer.hat.latency_data import read_latency_data
from fitformer.hat.slow_blocks import SlowBlock, find_slow_blocks, segments, slow_rows
from fitformer.latency.features import Floats
from fitformer.latency.predictor import table_of
from fitformer.space import SearchSpace

# First row, last row, excess in percent. Of the small block at the start of the En-De TITAN Xp file no report speaks,
# but thirteen rows in a row that are each 17 to 26 % slower are no chance.
PUBLISHED = {
    "iwslt14deen_gpu_titanxp": [(25, 357, 24), (429, 486, 22)],
    "wmt14ende_cpu_raspberrypi": [(0, 125, 42)],
    "wmt14ende_gpu_titanxp": [(1, 13, 23), (1263, 1500, 24)],
    "wmt14ende_cpu_xeon": [],
    "wmt14enfr_cpu_raspberrypi": [],
    "wmt14enfr_gpu_titanxp": [],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_slow_blocks_of_the_released_files_are_found_and_no_others(name: str, shared_data: Path) -> None:
    data = read_latency_data(shared_data / "hat" / "latency" / f"{name}_all.csv")
    found = find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms)
    assert len(found) == len(PUBLISHED[name])
    for block, (first, last, excess) in zip(found, PUBLISHED[name], strict=True):
        assert abs(block.first - first) <= 5 and abs(block.last - last) <= 5
        assert abs(100 * block.excess - excess) < 3


# -- planted ----------------------------------------------------------------------------------------------------------

ROWS = 300
SPACE = SearchSpace.preset("hat-latency")
_RNG = random.Random(0)
TABLE = table_of([SPACE.sample(_RNG) for _ in range(ROWS)])
PRICES = np.random.default_rng(1).uniform(0.2, 1.0, TABLE.shape[1]) / TABLE.mean(axis=0)
TRUE_MS: Floats = 3.0 + TABLE @ PRICES


def found_in(noise: float, seed: int, planted: list[tuple[int, int, float]], spikes: float = 0.0) -> list[SlowBlock]:
    rng = np.random.default_rng(seed)
    times = TRUE_MS * np.exp(rng.normal(0, noise, ROWS))
    times[rng.random(ROWS) < spikes] *= 1.8
    for first, last, excess in planted:
        times[first : last + 1] *= 1 + excess
    return find_slow_blocks(TABLE, 0.1 * times, 0.9 * times)


@given(noise=st.sampled_from([0.0, 0.003, 0.02, 0.05]), seed=st.integers(0, 10_000), spikes=st.sampled_from([0, 0.03]))
@settings(max_examples=12)
def test_no_block_is_found_in_noise_with_or_without_outliers(noise: float, seed: int, spikes: float) -> None:
    assert found_in(noise, seed, [], spikes) == []


@given(
    seed=st.integers(0, 10_000),
    first=st.integers(0, 200),
    rows=st.integers(15, 100),
    excess=st.floats(0.2, 1.0),
    spikes=st.sampled_from([0, 0.02]),
)
@settings(max_examples=12)
def test_a_planted_block_is_found_where_it_was_planted(
    seed: int, first: int, rows: int, excess: float, spikes: float
) -> None:
    last = first + rows - 1
    (block,) = found_in(0.02, seed, [(first, last, excess)], spikes)
    assert abs(block.first - first) <= 2 and abs(block.last - last) <= 2
    assert block.excess == pytest.approx(excess, abs=0.05 + 0.1 * excess)


def test_two_blocks_of_different_slowness_are_found() -> None:
    found = found_in(0.01, 3, [(20, 79, 0.5), (200, 239, 0.15)])
    assert [(b.first, b.last) for b in found] == [(20, 79), (200, 239)]


def test_a_fast_phase_is_no_slow_block() -> None:
    assert found_in(0.01, 3, [(100, 150, -0.3)]) == []


def test_a_few_slow_rows_are_outliers_and_too_few_rows_are_no_series() -> None:
    assert found_in(0.01, 3, [(100, 105, 0.5)]) == []
    assert find_slow_blocks(TABLE[:12], TRUE_MS[:12], TRUE_MS[:12]) == []


def test_flags_are_the_rows_of_the_blocks() -> None:
    assert slow_rows([SlowBlock(1, 2, 0.3), SlowBlock(4, 4, 0.3)], 6).tolist() == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_segments_are_those_of_least_cost() -> None:
    """Every way to cut a short series, tried."""
    rng = np.random.default_rng(5)
    for price in (0.1, 1.0, 5.0):
        values = rng.normal(0, 1, 9) + np.repeat([0, 3, 0], 3)

        def cost(cuts: list[int], values: Floats = values, price: float = price) -> float:
            edges = [0, *cuts, len(values)]
            parts = [values[a:b] for a, b in pairwise(edges)]
            return float(sum(np.sum((part - part.mean()) ** 2) + price for part in parts))

        all_cuts = [[i + 1 for i in range(8) if mask >> i & 1] for mask in range(2**8)]
        found = segments(values, price)
        assert [a for a, _ in found[1:]] == [b for _, b in found[:-1]]
        assert cost([a for a, _ in found[1:]]) == pytest.approx(min(map(cost, all_cuts)))
