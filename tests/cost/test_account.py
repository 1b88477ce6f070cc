"""The account by hand: the formula of Strubell et al. (2019), its constants, and the published rows."""

from __future__ import annotations

from typing import Any

import pytest

from fitformer.cost.account import KG_PER_LB, PUBLISHED, Cost, Rates, basis_line, estimate, of_stage, rates_line, total
from fitformer.recipe.costs import Cost as CostSettings

RATES = Rates(cpu_watts=100, ram_watts=20, gpu_watts=200, pue=1.5, co2_kg_per_kwh=0.4, currency="EUR")


def test_energy_is_pue_times_hours_times_watts() -> None:
    cost = estimate(device_hours=10, rates=RATES)
    assert cost.kwh == pytest.approx(1.5 * 10 * (100 + 20) / 1000)
    assert cost.co2_kg == pytest.approx(1.8 * 0.4)
    assert cost.price == pytest.approx(10 * RATES.cpu_price_per_hour)
    assert (cost.device_hours, cost.currency, cost.basis) == (10, "EUR", "estimated")


def test_with_gpus_hours_are_those_of_all_and_the_processors_count_once() -> None:
    cost = estimate(device_hours=8, gpus=4, rates=RATES)  # four GPUs for two hours
    assert cost.kwh == pytest.approx(1.5 * 2 * (100 + 20 + 4 * 200) / 1000)
    assert cost.price == pytest.approx(8 * RATES.gpu_price_per_hour)


def test_measured_energy_takes_the_place_of_the_watts_part_by_part() -> None:
    kwh = 3.6e6
    all_of_it = estimate(device_hours=1, rates=RATES, joules={"cpu": 2 * kwh, "ram": 1 * kwh})
    assert all_of_it.kwh == pytest.approx(1.5 * 3)
    assert all_of_it.basis == "measured"
    partly = estimate(device_hours=1, gpus=1, rates=RATES, joules={"cpu": 2 * kwh})
    assert partly.kwh == pytest.approx(1.5 * (2 + 0.02 + 0.2))
    assert (partly.basis, partly.estimated) == ("partly measured", {"ram", "gpu"})
    without_gpu = estimate(device_hours=1, rates=RATES, joules={"gpu": kwh})
    assert without_gpu.basis == "estimated"  # a GPU that was not at work is no part of it


def test_the_constants_are_those_of_the_papers() -> None:
    rates = Rates()
    assert rates.pue == 1.58
    assert rates.co2_kg_per_kwh == pytest.approx(0.954 * KG_PER_LB, abs=5e-5)


def test_the_price_and_the_watts_of_a_gpu_follow_from_the_published_row() -> None:
    row = next(row for row in PUBLISHED if row.name.startswith("Evolved Transformer"))
    rates = Rates(cpu_watts=0, ram_watts=0)
    cost = estimate(device_hours=row.gpu_hours, gpus=1, rates=rates)
    assert cost.price == pytest.approx(row.price_usd)
    assert cost.co2_kg == pytest.approx(row.co2_kg, rel=0.01)


def test_hats_row_is_the_published_ratio_below_evolved_transformers() -> None:
    evolved, hat = PUBLISHED[:2]
    for name in ("gpu_hours", "co2_lb", "price_usd"):
        assert getattr(evolved, name) / getattr(hat, name) == pytest.approx(12_041)
    assert "worked out" in hat.source
    assert all(row.source for row in PUBLISHED)


def test_sessions_add_up_those_that_were_killed_too() -> None:
    sessions = [
        {"seconds": 3600, "gpus": 0, "joules": {"cpu": 3.6e6}},
        {"seconds": 7200, "gpus": 0, "joules": {}},
    ]
    cost = of_stage({"seconds": 10800, "energy": {"sessions": sessions}}, RATES)
    assert cost.device_hours == pytest.approx(3)
    assert cost.kwh == pytest.approx(1.5 * (1 + 0.02 + 2 * 0.12))
    assert cost.basis == "partly measured"


def test_time_that_no_session_accounts_for_is_estimated() -> None:
    old = of_stage({"seconds": 3600.0}, RATES)
    assert old == estimate(device_hours=1, rates=RATES)
    begun_by_an_older_version = {"seconds": 7200, "energy": {"sessions": [{"seconds": 3600, "gpus": 2, "joules": {}}]}}
    assert of_stage(begun_by_an_older_version, RATES).device_hours == pytest.approx(4)
    rounded = {"seconds": 100.4, "energy": {"sessions": [{"seconds": 99.9, "joules": {}}]}}
    assert of_stage(rounded, RATES).device_hours == pytest.approx(99.9 / 3600)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"seconds": None},
        {"seconds": "long"},
        {"seconds": -5},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": True},
        {"energy": "x"},
        {"energy": {"sessions": "x"}},
        {"energy": {"sessions": [3, None]}},
        {"energy": {"sessions": [{"seconds": [], "gpus": "x", "joules": 4}]}},
    ],
)
def test_a_damaged_record_counts_nothing(record: dict[str, Any]) -> None:
    assert of_stage(record, RATES).device_hours == 0


def test_damaged_joules_count_nothing_and_do_not_fail() -> None:
    sessions = [{"seconds": 3600, "gpus": 0, "joules": {"cpu": "x", "ram": -1, "sun": 5}}]
    assert of_stage({"energy": {"sessions": sessions}}, RATES).kwh == 0


def test_the_total_of_nothing_is_nothing_in_the_recipes_currency() -> None:
    assert total([], RATES) == Cost(currency="EUR")
    assert basis_line(total([], RATES), RATES) == "no energy was spent yet"


def test_a_line_says_what_was_measured_and_what_was_estimated() -> None:
    cost = estimate(device_hours=1, gpus=1, rates=RATES, joules={"cpu": 1.0})
    line = basis_line(cost, RATES)
    assert line == (
        "energy measured (processors; all programs on the machine); the rest estimated: 20 W for the memory, "
        "200 W for each GPU"
    )
    assert basis_line(estimate(device_hours=1, rates=RATES), RATES).startswith("energy estimated: 100 W")
    assert "PUE 1.5, 0.4 kg CO2 per kWh" in rates_line(RATES)


def test_the_recipes_section_holds_every_rate_with_the_same_default() -> None:
    assert Rates(**CostSettings().model_dump()) == Rates()
    assert set(CostSettings.model_fields) == {*Rates.__dataclass_fields__}


@pytest.mark.parametrize("settings", [None, 3, [], {"pue": "x", "more": 1, "cpu_watts": None, "currency": 4}])
def test_a_recipe_that_cannot_be_used_gives_the_defaults(settings: object) -> None:
    assert Rates.from_settings(settings) == Rates()


def test_settings_of_a_recipe_are_used() -> None:
    assert Rates.from_settings({"pue": 1, "currency": "EUR"}) == Rates(pue=1.0, currency="EUR")
