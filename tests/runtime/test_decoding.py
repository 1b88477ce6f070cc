"""Greedy and beam search against exhaustive search on toy models; independence of batch mates and padding."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitformer.errors import InputError
from fitformer.runtime.decoding import BOS, EOS, PAD, DecodeSettings, Hypothesis, beam_search, greedy


@dataclass(frozen=True)
class ToyState:
    keys: tuple[int, ...]  # one number per row that stands for its source
    prefixes: tuple[tuple[int, ...], ...]


class ToyModel:
    """Logits are a random but fixed function of the source (without padding) and the whole prefix."""

    start_id = BOS

    def __init__(self, vocab: int, *, seed: int = 0, grid: float | None = None) -> None:
        self.vocab, self.seed, self.grid = vocab, seed, grid
        self.steps: list[int] = []  # rows of each step

    def logits_of(self, key: int, prefix: tuple[int, ...]) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng([self.seed, key, *prefix])
        values = 2 * rng.standard_normal(self.vocab)
        return np.round(values / self.grid) * self.grid if self.grid else values.astype(np.float32)

    def encode(self, source: np.ndarray[Any, Any]) -> ToyState:
        keys = tuple(hash(tuple(int(t) for t in row if t != PAD)) % 2**32 for row in source)
        return ToyState(keys, ((),) * len(keys))

    def step(self, state: ToyState, tokens: Any, position: int) -> tuple[np.ndarray[Any, Any], ToyState]:
        assert all(len(prefix) == position for prefix in state.prefixes)
        self.steps.append(len(tokens))
        prefixes = tuple((*prefix, int(t)) for prefix, t in zip(state.prefixes, tokens, strict=True))
        rows = [self.logits_of(key, prefix) for key, prefix in zip(state.keys, prefixes, strict=True)]
        return np.stack(rows), ToyState(state.keys, prefixes)

    def reorder(self, state: ToyState, rows: Any) -> ToyState:
        return ToyState(tuple(state.keys[r] for r in rows), tuple(state.prefixes[r] for r in rows))


def log_probs(model: ToyModel, key: int, ids: tuple[int, ...]) -> list[float]:
    """Log-probability of every id and of eos, straight from the definition."""
    found = []
    for i, token in enumerate((*ids, EOS)):
        logits = model.logits_of(key, (BOS, *ids[:i])).astype(np.float64)
        found.append(float(logits[token] - np.log(np.exp(logits).sum())))
    return found


def every_output(vocab: int, cap: int) -> list[tuple[int, ...]]:
    words = [t for t in range(vocab) if t not in (PAD, BOS, EOS)]
    return [ids for length in range(cap + 1) for ids in itertools.product(words, repeat=length)]


def source(*rows: list[int]) -> np.ndarray[Any, Any]:
    width = max(len(row) for row in rows)
    return np.array([row + [PAD] * (width - len(row)) for row in rows], np.int64)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_wide_beam_finds_what_exhaustive_search_finds(seed: int, penalty: float) -> None:
    # As many hypotheses as there are outputs: nothing is pruned and every output ends, so the whole order must agree.
    model, cap = ToyModel(6, seed=seed), 3
    outputs = every_output(6, cap)
    key = model.encode(source([5, 4, EOS])).keys[0]
    oracle = sorted(
        ((sum(log_probs(model, key, ids)) / (len(ids) + 1) ** penalty, list(ids)) for ids in outputs),
        reverse=True,
    )
    wide = DecodeSettings(beam=len(outputs), n_best=len(outputs), length_penalty=penalty)
    found = beam_search(model, source([5, 4, EOS]), wide, [cap])[0]
    assert [h.ids for h in found] == [ids for _, ids in oracle]
    assert [h.score for h in found] == pytest.approx([score for score, _ in oracle], abs=1e-5)


def reference_beam(model: ToyModel, key: int, rule: DecodeSettings, cap: int) -> list[tuple[list[int], float]]:
    """The search rule written down naively for one sentence."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[list[int], float]] = []
    position = 0
    while len(ended) < rule.beam and live:
        choices = []
        for rank, (ids, total) in enumerate(live):
            logits = model.logits_of(key, (BOS, *ids)).astype(np.float64)
            normal = np.log(np.exp(logits).sum())
            for token in range(model.vocab):
                if token in (PAD, BOS) or (position == cap and token != EOS):
                    continue
                choices.append((-(total + float(logits[token] - normal)), rank, token))
        choices = sorted(choices)[: 2 * rule.beam]
        for negative, rank, token in choices[: rule.beam]:
            if token == EOS and len(ended) < rule.beam:
                ended.append((list(live[rank][0]), -negative / (position + 1) ** rule.length_penalty))
        live = [((*live[rank][0], token), -negative) for negative, rank, token in choices if token != EOS][: rule.beam]
        position += 1
    return sorted(ended, key=lambda pair: -pair[1])


@given(seed=st.integers(0, 10**6), beam=st.integers(1, 5), vocab=st.integers(5, 9), cap=st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_beam_search_follows_the_written_rule(seed: int, beam: int, vocab: int, cap: int) -> None:
    model = ToyModel(vocab, seed=seed)
    batch = source([4, 4, EOS], [4, EOS], [1, 4, 4, 4, EOS])
    rule = DecodeSettings(beam=beam, n_best=beam, length_penalty=0.6)
    found = beam_search(model, batch, rule, [cap, cap + 1, cap])
    for row, key in enumerate(model.encode(batch).keys):
        expected = reference_beam(model, key, rule, cap + (row == 1))
        assert [h.ids for h in found[row]] == [ids for ids, _ in expected]
        assert [h.score for h in found[row]] == pytest.approx([score for _, score in expected], abs=1e-5)


@given(
    seed=st.integers(0, 10**6),
    no_repeat=st.integers(0, 3),
    least=st.integers(0, 4),
    grid=st.sampled_from([None, 2]),
)
@settings(max_examples=60, deadline=None)
def test_beam_of_one_equals_greedy(seed: int, no_repeat: int, least: int, grid: float | None) -> None:
    model = ToyModel(7, seed=seed, grid=grid)
    batch, caps = source([4, 5, EOS], [5, EOS], [6, 6, 6, EOS]), [12, 5, 1]
    rule = DecodeSettings(beam=1, no_repeat_ngram=no_repeat, min_length=least)
    plain = greedy(model, batch, max_lengths=caps, min_length=least, no_repeat_ngram=no_repeat)
    assert [found[0].ids for found in beam_search(model, batch, rule, caps)] == plain


@pytest.mark.parametrize("start", [BOS, EOS])
def test_decoding_starts_from_the_models_own_id(start: int) -> None:
    class Started(ToyModel):
        start_id = start

        def step(self, state: ToyState, tokens: Any, position: int) -> tuple[np.ndarray[Any, Any], ToyState]:
            assert position > 0 or set(tokens.tolist()) == {start}
            return super().step(state, tokens, position)

    model, batch = Started(7, seed=4), source([4, EOS], [5, 5, EOS])
    outputs = greedy(model, batch, max_lengths=[5, 5])
    found = beam_search(model, batch, DecodeSettings(beam=1), [5, 5])
    assert [hypotheses[0].ids for hypotheses in found] == outputs
    assert all(start not in ids for ids in outputs)


def test_greedy_takes_the_most_probable_token_until_eos() -> None:
    model = ToyModel(6, seed=3)
    batch = source([4, EOS])
    key = model.encode(batch).keys[0]
    expected: list[int] = []
    while len(expected) < 50:
        logits = model.logits_of(key, (BOS, *expected)).copy()
        logits[[PAD, BOS]] = -np.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        expected.append(token)
    assert greedy(model, batch, max_lengths=[50]) == [expected]


@given(
    rows=st.lists(st.lists(st.integers(4, 8), min_size=1, max_size=6), min_size=1, max_size=7),
    beam=st.integers(1, 4),
    padding=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_result_does_not_depend_on_batch_mates_or_padding(rows: list[list[int]], beam: int, padding: int) -> None:
    model = ToyModel(9)
    rule = DecodeSettings(beam=beam, n_best=beam, length_penalty=0.6)
    caps = [2 * len(row) for row in rows]
    batch = np.pad(source(*rows), ((0, 0), (0, padding)))
    together = beam_search(model, batch, rule, caps)
    alone = [beam_search(model, source(row), rule, [cap])[0] for row, cap in zip(rows, caps, strict=True)]
    assert together == alone
    greedy_alone = [greedy(model, source(row), max_lengths=[cap])[0] for row, cap in zip(rows, caps, strict=True)]
    assert greedy(model, batch, max_lengths=caps) == greedy_alone


def test_ties_go_to_the_lowest_id() -> None:
    class Flat(ToyModel):
        def logits_of(self, key: int, prefix: tuple[int, ...]) -> np.ndarray[Any, Any]:
            return np.zeros(self.vocab, np.float32)

    # 1 is the lowest id that may be chosen; without it among the candidates eos (3) would be.
    assert greedy(Flat(6), source([EOS]), max_lengths=[3]) == [[1, 1, 1]]
    found = beam_search(Flat(6), source([EOS]), DecodeSettings(beam=2, n_best=2), [3])[0]
    assert [h.ids for h in found] == [[], [1]]


def test_hypothesis_scores_are_the_models_own_log_probabilities() -> None:
    model = ToyModel(8, seed=5)
    batch = source([4, 6, EOS])
    key = model.encode(batch).keys[0]
    for found in beam_search(model, batch, DecodeSettings(beam=4, n_best=4, length_penalty=0.6), [5])[0]:
        expected = log_probs(model, key, tuple(found.ids))
        assert found.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert found.log_prob == pytest.approx(math.fsum(expected), abs=1e-5)
        assert found.score == pytest.approx(found.log_prob / (len(found.ids) + 1) ** 0.6)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_n_best_is_a_sorted_start_of_the_full_list_without_repeats(beam: int) -> None:
    model, batch = ToyModel(9, seed=1), source([4, EOS], [5, 7, EOS])
    full = beam_search(model, batch, DecodeSettings(beam=beam, n_best=beam), [6, 6])
    for found in full:
        assert len(found) == beam
        assert len({tuple(h.ids) for h in found}) == beam
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    best = beam_search(model, batch, DecodeSettings(beam=beam, n_best=1), [6, 6])
    assert best == [found[:1] for found in full]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_sequence_of_the_forbidden_length_occurs_twice(beam: int, size: int) -> None:
    model, batch = ToyModel(6, seed=2), source([4, EOS], [5, EOS], [4, 4, EOS])
    rule = DecodeSettings(beam=beam, n_best=beam, no_repeat_ngram=size, min_length=6)
    free = beam_search(model, batch, replace(rule, no_repeat_ngram=0), [20] * 3)
    outputs = [h.ids for found in beam_search(model, batch, rule, [20] * 3) for h in found]
    outputs += greedy(model, batch, max_lengths=[20] * 3, no_repeat_ngram=size, min_length=6)
    for ids in outputs:
        pieces = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
        assert len(pieces) == len(set(pieces))
    assert [h.ids for found in free for h in found] != outputs


@pytest.mark.parametrize("beam", [1, 3])
def test_lengths_stay_between_minimum_and_cap(beam: int) -> None:
    model, batch = ToyModel(5, seed=4), source(*[[4] * n + [EOS] for n in range(1, 9)])
    caps = [3, 4, 5, 6, 7, 8, 9, 10]
    found = beam_search(model, batch, DecodeSettings(beam=beam, n_best=beam, min_length=3), caps)
    assert all(3 <= len(h.ids) <= cap for hs, cap in zip(found, caps, strict=True) for h in hs)
    outputs = greedy(model, batch, max_lengths=caps, min_length=3)
    assert all(3 <= len(ids) <= cap for ids, cap in zip(outputs, caps, strict=True))
    ignoring = greedy(model, batch, max_lengths=caps, ignore_eos=True)
    assert [len(ids) for ids in ignoring] == caps


def test_finished_rows_leave_the_greedy_batch() -> None:
    model = ToyModel(5)
    batch = source(*[[4] * n + [EOS] for n in range(1, 9)])
    greedy(model, batch, max_lengths=[1, 1, 1, 1, 30, 30, 30, 30], min_length=30)
    assert model.steps == [8] + [4] * 29


def test_nothing_to_decode_gives_nothing() -> None:
    model, nothing = ToyModel(5), np.zeros((0, 4), np.int64)
    assert greedy(model, nothing, max_lengths=[]) == []
    assert beam_search(model, nothing, DecodeSettings(beam=2), []) == []
    assert greedy(model, source([4, EOS]), max_lengths=[0]) == [[]]


def test_length_cap_follows_the_source_and_never_passes_the_limit() -> None:
    rule = DecodeSettings(max_length_ratio=1.1, max_length_offset=0)
    assert rule.length_cap(10, limit=100) == 11
    assert rule.length_cap(11, limit=100) == 13
    assert replace(rule, max_length_offset=5).length_cap(10, limit=12) == 12
    assert rule.length_cap(0, limit=100) == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("beam", 0),
        ("n_best", 0),
        ("n_best", 2),
        ("no_repeat_ngram", -1),
        ("min_length", -1),
        ("max_length_ratio", -1.0),
        ("beam", 10**6),
        ("length_penalty", 1e308),
        ("length_penalty", -11.0),
    ],
)
def test_impossible_settings_are_named(setting: str, value: Any) -> None:
    with pytest.raises(InputError, match=setting):
        DecodeSettings(**{setting: value})


def test_hypotheses_compare_by_value() -> None:
    assert Hypothesis([4], -1.0, -2.0, [-1.0, -1.0]) == Hypothesis([4], -1.0, -2.0, [-1.0, -1.0])
