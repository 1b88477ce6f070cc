"""Batches: every sentence once, never over budget, the same for the same seed, padded as the model expects."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.arrays import TokenArrays, write_arrays
from fitformer.data.batches import BOS, EOS, BucketedBatches
from fitformer.errors import DataError

Pairs = list[tuple[list[int], list[int]]]
SENTENCE = st.lists(st.integers(4, 500), min_size=1, max_size=20)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=40)


@contextmanager
def batches_of(
    pairs: Pairs, *, batch_tokens: int, seed: int = 1, max_sentences: int | None = None
) -> Iterator[BucketedBatches]:
    with tempfile.TemporaryDirectory() as folder:
        for side, name in enumerate(("source", "target")):
            write_arrays(Path(folder) / name, [pair[side] for pair in pairs])
        yield BucketedBatches(
            TokenArrays(Path(folder) / "source"),
            TokenArrays(Path(folder) / "target"),
            batch_tokens=batch_tokens,
            seed=seed,
            max_sentences=max_sentences,
        )


def cost(pairs: Pairs, indices: np.ndarray) -> int:
    return len(indices) * max(len(side) + 1 for i in indices for side in pairs[i])


@given(PAIRS, st.integers(4, 80), st.integers(0, 5))
def test_every_sentence_comes_exactly_once_per_epoch(pairs: Pairs, budget: int, epoch: int) -> None:
    with batches_of(pairs, batch_tokens=budget) as batches:
        for order in (batches.epoch(epoch), batches.in_order()):
            assert sorted(np.concatenate(order).tolist()) == list(range(len(pairs)))


@given(PAIRS, st.integers(4, 80))
def test_the_budget_is_kept_except_by_a_single_longer_pair(pairs: Pairs, budget: int) -> None:
    with batches_of(pairs, batch_tokens=budget) as batches:
        for indices in [*batches.epoch(0), *batches.in_order()]:
            assert cost(pairs, indices) <= budget or len(indices) == 1


@given(PAIRS, st.integers(4, 200))
def test_batches_are_as_full_as_their_order_allows(pairs: Pairs, budget: int) -> None:
    with batches_of(pairs, batch_tokens=budget) as batches:
        in_order = batches.in_order()
    for here, following in pairwise(in_order):
        assert cost(pairs, np.append(here, following[0])) > budget


@given(PAIRS, st.integers(1, 5))
def test_no_batch_has_more_sentences_than_allowed(pairs: Pairs, most: int) -> None:
    with batches_of(pairs, batch_tokens=1000, max_sentences=most) as batches:
        assert max(map(len, batches.epoch(3))) <= most


@given(PAIRS, st.integers(0, 100))
def test_the_order_depends_on_seed_and_epoch_alone(pairs: Pairs, seed: int) -> None:
    with batches_of(pairs, batch_tokens=40, seed=seed) as one, batches_of(pairs, batch_tokens=40, seed=seed) as two:
        two.epoch(0)  # asking for other epochs before changes nothing
        for a, b in zip(one.epoch(7), two.epoch(7), strict=True):
            assert a.tolist() == b.tolist()


def test_other_epochs_and_seeds_bring_other_orders() -> None:
    pairs = [([5] * (i % 7 + 1), [6] * (i % 5 + 1)) for i in range(200)]
    with batches_of(pairs, batch_tokens=40) as one, batches_of(pairs, batch_tokens=40, seed=2) as two:
        orders = [np.concatenate(order).tolist() for order in (one.epoch(0), one.epoch(1), two.epoch(0))]
    assert orders[0] != orders[1] != orders[2] != orders[0]


@given(PAIRS)
def test_a_batch_holds_the_sentences_with_begin_and_end_marks(pairs: Pairs) -> None:
    with batches_of(pairs, batch_tokens=100) as batches:
        for indices in batches.epoch(0):
            batch = batches.collate(indices)
            for array in (batch.source, batch.decoder_input, batch.target):
                assert array.dtype == np.int64
            longest = max(len(pairs[i][1]) for i in indices) + 1
            assert batch.target.shape == batch.decoder_input.shape == (len(indices), longest)
            for row, index in enumerate(indices):
                source, target = pairs[index]
                assert trimmed(batch.source[row]) == [*source, EOS]
                assert trimmed(batch.target[row]) == [*target, EOS]
                assert batch.decoder_input[row, : len(target) + 1].tolist() == [BOS, *target]
                assert not batch.decoder_input[row, len(target) + 1 :].any()
            assert batch.num_source_tokens == np.count_nonzero(batch.source)
            assert batch.num_target_tokens == np.count_nonzero(batch.target)


def test_a_decoder_input_can_start_with_another_id() -> None:
    with batches_of([([4, 5], [6, 7])], batch_tokens=10) as batches:
        batches = BucketedBatches(batches.source, batches.target, batch_tokens=10, seed=1, start_id=EOS)
        batch = batches.collate(np.array([0]))
    assert (batch.decoder_input.tolist(), batch.target.tolist()) == ([[EOS, 6, 7]], [[6, 7, EOS]])


def trimmed(row: np.ndarray) -> list[int]:
    return [int(token) for token in row if token]


def test_sentences_of_one_length_waste_nothing() -> None:
    with batches_of([([4] * 9, [5] * 9)] * 32, batch_tokens=40) as batches:
        assert batches.efficiency(batches.epoch(0)) == {"source": 1.0, "target": 1.0, "both": 1.0}
        assert all(len(indices) == 4 for indices in batches.epoch(0))


def test_efficiency_is_the_share_of_cells_that_are_not_padding() -> None:
    pairs = [([4], [5, 5, 5]), ([4, 4, 4], [5])]
    with batches_of(pairs, batch_tokens=100) as batches:
        efficiency = batches.efficiency([np.array([0, 1])])
    assert efficiency == {"source": 6 / 8, "target": 6 / 8, "both": 12 / 16}


def test_length_bucketing_beats_random_batches_by_far() -> None:
    random = np.random.default_rng(0)
    pairs = [([4] * int(n), [5] * max(1, int(n + d))) for n, d in random.integers((2, -2), (40, 3), (3000, 2))]
    with batches_of(pairs, batch_tokens=1000) as batches:
        bucketed = batches.efficiency(batches.epoch(0))["both"]
        shuffled = batches.efficiency(np.array_split(random.permutation(3000), 120))["both"]
    assert bucketed > 0.9 > shuffled


def test_sides_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    write_arrays(tmp_path / "s", [[4], [5]])
    write_arrays(tmp_path / "t", [[4]])
    with pytest.raises(DataError, match=r"2 sentences.* 1;"):
        BucketedBatches(TokenArrays(tmp_path / "s"), TokenArrays(tmp_path / "t"), batch_tokens=10, seed=1)


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "s", [])
    with pytest.raises(DataError, match="no sentences"):
        BucketedBatches(TokenArrays(tmp_path / "s"), TokenArrays(tmp_path / "s"), batch_tokens=10, seed=1)
