"""Learning rates, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.recipe import Training
from fitformer.training.schedule import learning_rate

SCHEDULES = ("cosine", "inverse_sqrt", "linear", "constant")


def settings(**changes: Any) -> Training:
    defaults = {"updates": 1000, "warmup": 100, "learning_rate": 1.0, "final_learning_rate": 0.0}
    return Training(**{**defaults, **changes})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_is_a_straight_line_to_the_peak(schedule: str) -> None:
    given_settings = settings(schedule=schedule)
    for update, rate in ((1, 0.01), (50, 0.5), (99, 0.99), (100, 1.0)):
        assert learning_rate(given_settings, update) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("schedule", "update", "rate"),
    [
        ("cosine", 325, 0.5 * (1 + math.cos(math.pi / 4))),
        ("cosine", 550, 0.5),
        ("cosine", 1000, 0.0),
        ("linear", 325, 0.75),
        ("linear", 550, 0.5),
        ("linear", 1000, 0.0),
        ("inverse_sqrt", 400, 0.5),
        ("inverse_sqrt", 900, 1 / 3),
        ("constant", 550, 1.0),
        ("constant", 1000, 1.0),
    ],
)
def test_the_way_down_is_as_computed_by_hand(schedule: str, update: int, rate: float) -> None:
    assert learning_rate(settings(schedule=schedule), update) == pytest.approx(rate, abs=1e-12)


def test_warm_up_is_a_straight_line_from_the_initial_rate() -> None:
    chosen = settings(initial_learning_rate=0.2)
    for update, rate in ((1, 0.208), (50, 0.6), (100, 1.0)):
        assert learning_rate(chosen, update) == pytest.approx(rate)


HAT_COSINE = {"updates": 40_000, "learning_rate": 1e-3, "final_learning_rate": 1e-7, "schedule": "cosine"}
HAT_INVERSE_SQRT = {"updates": 50_000, "learning_rate": 5e-4, "schedule": "inverse_sqrt"}


@pytest.mark.parametrize("warmup", [10_000, 4_000])
@pytest.mark.parametrize("base", [HAT_COSINE, HAT_INVERSE_SQRT], ids=["wmt", "iwslt"])
def test_rates_are_those_of_fairseq(base: dict[str, Any], warmup: int) -> None:
    """Its two schedulers as it computes them: a step per update in the warm-up, then one half period or a decay factor.

    ``cosine``: --lr 1e-7 --max-lr 1e-3 --lr-shrink 1, period = max-update - warmup-updates; --warmup-init-lr 1e-7.
    """
    chosen = settings(**base, warmup=warmup, initial_learning_rate=1e-7)
    peak = base["learning_rate"]
    lr_step = (peak - 1e-7) / warmup
    decay_factor = peak * warmup**0.5
    period = base["updates"] - warmup
    for num_updates in (1, 2, warmup // 2, warmup, warmup + 1, 12_345, 25_000, base["updates"] - 1):
        if num_updates <= warmup:
            expected = 1e-7 + num_updates * lr_step
        elif base["schedule"] == "inverse_sqrt":
            expected = decay_factor * num_updates**-0.5
        else:
            t_curr = num_updates - warmup
            expected = 1e-7 + 0.5 * (peak - 1e-7) * (1 + math.cos(math.pi * t_curr / period))
        assert learning_rate(chosen, num_updates) == pytest.approx(expected, rel=1e-12)


def test_cosine_is_the_one_of_hat() -> None:
    """lr = 1e-7 + (1e-3 - 1e-7) / 2 * (1 + cos(pi t / T)), T = 40,000 updates less 10,000 of warm-up."""
    hat = settings(updates=40_000, warmup=10_000, learning_rate=1e-3, final_learning_rate=1e-7, schedule="cosine")
    for update in (10_001, 17_500, 25_000, 39_999, 40_000):
        expected = 1e-7 + 0.5 * (1e-3 - 1e-7) * (1 + math.cos(math.pi * (update - 10_000) / 30_000))
        assert learning_rate(hat, update) == pytest.approx(expected, rel=1e-12)


def test_a_final_rate_is_reached_and_not_undercut() -> None:
    for schedule in ("cosine", "linear"):
        chosen = settings(schedule=schedule, final_learning_rate=0.2)
        assert learning_rate(chosen, 1000) == pytest.approx(0.2)
        assert min(learning_rate(chosen, update) for update in range(100, 1001)) == pytest.approx(0.2)


def test_without_warm_up_the_first_update_is_near_the_peak() -> None:
    assert learning_rate(settings(schedule="cosine", warmup=0), 1) == pytest.approx(1, rel=1e-4)
    assert learning_rate(settings(schedule="inverse_sqrt", warmup=0), 4) == pytest.approx(0.5)


@given(st.sampled_from(SCHEDULES), st.integers(1, 60), st.integers(0, 80), st.floats(1e-6, 1), st.floats(0, 1))
def test_the_rate_rises_to_the_peak_and_never_again(
    schedule: str, updates: int, warmup: int, peak: float, start: float
) -> None:
    given_rates = {"learning_rate": peak, "initial_learning_rate": start * peak}
    chosen = settings(schedule=schedule, updates=updates, warmup=warmup, **given_rates)
    rates = [learning_rate(chosen, update) for update in range(1, updates + 1)]
    assert all(0 <= rate <= peak * (1 + 1e-12) for rate in rates)
    rising, falling = rates[:warmup], rates[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
