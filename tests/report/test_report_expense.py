"""The report says what the run cost, how that is known, and what the papers publish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.cost.account import Rates, estimate
from fitformer.report.expense import cost_spent
from fitformer.report.inputs import read_run
from fitformer.report.wording import number
from fitformer.rundir import read_json, write_json
from fitformer.stages import energy_file

MakeRun = Callable[..., Path]


def account(run: Path) -> str:
    return str(cost_spent(read_run(run)))


def change(run: Path, stage: str, **values: Any) -> None:
    path = run / stage / "done.json"
    write_json(path, {**read_json(path), **values})


def test_a_run_of_an_older_version_is_estimated_from_its_seconds(make_run: MakeRun) -> None:
    run = make_run()
    for path in run.rglob("done.json"):
        record = read_json(path)
        record.pop("energy", None)
        write_json(path, record | {"seconds": 0})
    change(run, "supernet", seconds=7200)
    cost = estimate(device_hours=2)
    text = account(run)
    for value in (cost.device_hours, cost.kwh, cost.co2_kg, cost.price):
        assert f">{number(value)}<" in text
    assert "Energy estimated: 65 W for the processors" in text and "PUE 1.58" in text


def test_measured_energy_is_said_to_be_measured(make_run: MakeRun) -> None:
    run = make_run()
    joules = {"cpu": 3.6e6, "ram": 0.0}
    change(run, "supernet", seconds=3600, energy={"sessions": [{"seconds": 3600, "gpus": 0, "joules": joules}]})
    text = account(run)
    assert "Energy measured (processors, memory; all programs on the machine)" in text
    assert f">{number(Rates().pue * 1.0)}<" in text


def test_published_rows_stand_beside_the_run_with_their_sources(make_run: MakeRun) -> None:
    text = account(make_run())
    for words in ("Evolved Transformer, its search", "2,200,000", "HAT, its search", "12,041 times less", "this run"):
        assert words in text


def test_the_recipes_constants_are_used(make_run: MakeRun) -> None:
    run = make_run()
    recipe = run / "recipe.yaml"
    write_json(recipe, {**read_json(recipe), "cost": {"pue": 1.0, "currency": "<b>"}})
    text = account(run)
    assert "PUE 1," in text and "cloud price, &lt;b&gt;" in text and "<b>" not in text


def test_a_stage_under_way_counts_what_it_has_spent(make_run: MakeRun) -> None:
    run = make_run(until="supernet")
    path = run / "supernet" / "done.json"
    write_json(run / "supernet" / "started.json", {"inputs": read_json(path)["inputs"], "sessions": ["x"]})
    path.unlink()
    write_json(energy_file(run, "supernet"), {"sessions": [{"seconds": 36000, "gpus": 0, "joules": {}}]})
    assert "<td>supernet</td>" in account(run) and number(10.0) in account(run)


@pytest.mark.parametrize("energy", ["x", 3, {"sessions": {"a": 1}}, {"sessions": [None]}])
def test_a_damaged_account_does_not_stop_the_page(make_run: MakeRun, energy: Any) -> None:
    run = make_run()
    change(run, "supernet", energy=energy)
    assert "together" in account(run)
