"""``status`` tells what is done and what may go, and never calls something deletable that is still needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.stages import STAGES

Command = Callable[..., Any]


def done(folder: Path, seconds: float = 1.0, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {"inputs": {}, "facts": {}, "seconds": seconds, "finished": "2026-01-01T00:00:00+00:00"}
    (folder / "done.json").write_text(json.dumps(record))
    for name, content in files.items():
        (folder / name.replace("_json", ".json")).write_text(content)


def begun(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "started.json").write_text('{"inputs": {}, "sessions": []}')


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is in the middle of training its first target."""
    run = tmp_path / "runs" / "demo"
    done(run / "prepare", 60)
    done(run / "supernet", 3600)
    (run / "supernet" / "state.safetensors").write_bytes(b"x" * 1000)
    done(run / "measure" / "cpu")
    done(run / "search" / "cpu@50%")
    done(run / "search" / "cpu@25%")
    begun(run / "train" / "cpu@50%")
    (run / "train" / "cpu@50%" / "state.safetensors").write_bytes(b"x" * 500)
    (run / "train" / "cpu@50%" / "log.jsonl").write_text('{"update": 50}\n{"update": 100, "loss": 2}\n{"upd')
    return run


def finish(run: Path) -> None:
    for stage in ("train", "compress", "export"):
        shutil.rmtree(run / stage, ignore_errors=True)
        done(run / stage / "cpu@50%")
        done(run / stage / "cpu@25%")
    (run / "export" / "cpu@50%" / "fitformer.json").write_text("{}")
    (run / "report").mkdir()
    (run / "report" / "index.html").write_text("<html>")


def test_each_stage_and_part_has_its_state(document: Command, run: Path) -> None:
    stages = {(s["stage"], s["part"]): s for s in document("status", run)["stages"]}
    assert stages["supernet", ""]["state"] == "done" and stages["supernet", ""]["seconds"] == 3600
    assert stages["search", "cpu@25%"]["state"] == "done"
    assert (stages["train", "cpu@50%"]["state"], stages["train", "cpu@50%"]["update"]) == ("begun", 100)
    assert stages["report", ""]["state"] == "to do"
    assert {stage for stage, _ in stages} == set(STAGES)


def test_sizes_add_up(document: Command, run: Path) -> None:
    facts = document("status", run)
    assert facts["bytes"] == sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert sum(stage["bytes"] for stage in facts["stages"]) == facts["bytes"]


def test_people_see_the_same(cli: Command, run: Path) -> None:
    result = cli("status", run)
    assert result.exit_code == 0
    assert "1 h 00 min" in result.stdout and "begun, update 100" in result.stdout


def test_what_an_unfinished_stage_needs_is_not_deletable(document: Command, run: Path) -> None:
    (run / "prepare" / ".train.bin.abc.tmp").write_text("half")
    paths = [entry["path"] for entry in document("status", run)["deletable"]]
    assert paths == [str(run / "prepare" / ".train.bin.abc.tmp"), str(run / "supernet" / "state.safetensors")]


def test_when_all_is_done_everything_but_the_result_may_go(document: Command, run: Path) -> None:
    finish(run)
    facts = document("status", run)
    folders = {Path(entry["path"]).name for entry in facts["deletable"] if Path(entry["path"]).is_dir()}
    assert folders == set(STAGES) - {"export", "report"}
    assert facts["bundles"] == [str(run / "export" / "cpu@50%")]
    assert facts["report"] == str(run / "report" / "index.html")


def test_a_target_still_to_be_trained_keeps_everything(document: Command, run: Path) -> None:
    finish(run)
    begun(run / "train" / "cpu@10%")
    assert [Path(entry["path"]).name for entry in document("status", run)["deletable"]] == ["state.safetensors"]


def test_the_searching_stages_of_a_fixed_architecture_are_skipped(document: Command, tmp_path: Path) -> None:
    done(tmp_path / "prepare")
    begun(tmp_path / "train" / "model")
    states = {stage["stage"]: stage["state"] for stage in document("status", tmp_path)["stages"]}
    assert [states[name] for name in ("supernet", "measure", "search")] == ["skipped"] * 3
    assert states["compress"] == "to do"


def test_what_is_no_run_is_refused(refusal: Command, run: Path, tmp_path: Path) -> None:
    assert "no such run (did you mean 'demo'?)" in refusal(2, "status", run.with_name("dmeo"))
    assert "no such run" in refusal(2, "status", tmp_path / "a" / "b")
    assert "not the folder of a run" in refusal(2, "status", tmp_path)
    assert "is a file" in refusal(2, "status", run / "prepare" / "done.json")


def test_a_damaged_record_is_named(refusal: Command, run: Path) -> None:
    (run / "prepare" / "done.json").write_text('{"inputs"')
    assert "prepare/done.json: not a whole JSON file" in refusal(2, "status", run)


def test_an_old_folder_with_only_a_recipe_is_a_run(document: Command, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").touch()
    assert {stage["state"] for stage in document("status", tmp_path)["stages"]} == {"to do"}


def test_a_bundle_that_is_not_checked_yet_is_none(document: Command, run: Path) -> None:
    done(run / "export" / ".cpu@50%.unchecked", fitformer_json="{}")
    assert document("status", run)["bundles"] == []


def test_time_has_its_cost_with_the_recipes_constants(document: Command, cli: Command, run: Path) -> None:
    (run / "recipe.yaml").write_text(
        "cost: {cpu_watts: 90, ram_watts: 10, pue: 2, cpu_price_per_hour: 3, currency: EUR}"
    )
    facts = document("status", run)
    stages = {stage["stage"]: stage["cost"] for stage in facts["stages"] if not stage["part"]}
    assert stages["supernet"] == {
        "device_hours": 1.0,
        "kwh": 0.2,
        "co2_kg": pytest.approx(0.2 * 0.4327, rel=1e-3),
        "price": 3.0,
        "currency": "EUR",
        "basis": "estimated",
    }
    assert facts["cost"]["device_hours"] == pytest.approx((60 + 3600 + 3) / 3600, rel=1e-5)
    shown = cli("status", run).stdout
    assert "device-hours" in shown and "energy estimated: 90 W" in shown and "PUE 2" in shown


@pytest.mark.parametrize("recipe", ["cost: 3", "a: [", "\x00", "3", "cost: {pue: -1, cpu_watts: .inf}"])
def test_a_recipe_that_cannot_be_used_does_not_stop_the_account(document: Command, run: Path, recipe: str) -> None:
    (run / "recipe.yaml").write_text(recipe)
    assert document("status", run)["cost"]["device_hours"] > 1


def test_the_teacher_and_the_bundle_of_a_training_are_named(document: Command, cli: Command, run: Path) -> None:
    assert document("status", run)["other_models"] == []
    finish(run)
    known = {"name": "big", "folder": "models/big", "identity": "abc"}
    taught = {"lines": 1000, "translated": 990, "targets": "beside"}
    record = {
        "inputs": {},
        "facts": {"teacher": known, "distillation": taught, "began_with": {**known, "dequantised": True}},
        "seconds": 1.0,
        "finished": "2026-01-01T00:00:00+00:00",
    }
    (run / "train" / "cpu@50%" / "done.json").write_text(json.dumps(record))
    (run / "distillation" / "abc").mkdir(parents=True)
    facts = document("status", run)
    assert [(model["part"], model["role"]) for model in facts["other_models"]] == [
        ("cpu@50%", "teacher"),
        ("cpu@50%", "bundle trained on"),
    ]
    assert str(run / "distillation") in [entry["path"] for entry in facts["deletable"]]
    printed = cli("status", run).stdout
    assert "train cpu@50%: teacher big (models/big), 990 of 1000 lines learned in its translation, beside" in printed
    assert "bundle trained on big (models/big), its 8-bit weights made float again" in printed


def test_translations_are_kept_while_there_is_something_to_train(document: Command, run: Path) -> None:
    (run / "distillation" / "abc").mkdir(parents=True)
    assert str(run / "distillation") not in [entry["path"] for entry in document("status", run)["deletable"]]
