"""The account of a run is the sum of its stages' accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitformer.cost.account import Rates, estimate
from fitformer.pipeline.costs import account, rates
from fitformer.recipe.costs import Cost
from fitformer.rundir import write_json
from fitformer.stages import Stage, energy_file


def test_stages_add_up_and_what_was_not_done_is_left_out(tmp_path: Path) -> None:
    stages = [Stage(tmp_path, "prepare"), Stage(tmp_path, "supernet"), Stage(tmp_path, "train", "cpu@5ms")]
    write_json(tmp_path / "prepare" / "done.json", {"seconds": 3600.0})
    sessions = [{"seconds": 7200.0, "gpus": 2, "joules": {"gpu": 3.6e6}}]
    write_json(energy_file(tmp_path, "train", "cpu@5ms"), {"sessions": sessions})
    found = account(stages, Rates())
    parts = [
        estimate(device_hours=1),
        estimate(device_hours=4, gpus=2, joules={"gpu": 3.6e6}),
    ]
    assert [entry["stage"] for entry in found["stages"]] == ["prepare", "train cpu@5ms"]
    assert found["device_hours"] == 5
    for name in ("kwh", "co2_kg", "price"):
        expected = sum(getattr(part, name) for part in parts)
        assert found[name] == pytest.approx(expected, rel=1e-5)
        assert sum(entry[name] for entry in found["stages"]) == pytest.approx(expected, rel=1e-5)
    assert found["basis"] == "partly measured"


def test_a_new_run_has_spent_nothing(tmp_path: Path) -> None:
    found = account([Stage(tmp_path, "prepare")], Rates())
    assert (found["device_hours"], found["stages"]) == (0, [])
    assert found["basis_line"] == "no energy was spent yet"


def test_the_recipes_section_becomes_the_rates() -> None:
    assert rates(Cost(pue=1.1, currency="EUR")) == Rates(pue=1.1, currency="EUR")
