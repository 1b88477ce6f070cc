"""What a stage's record holds is what it depends on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.pipeline import Run, shipping
from fitformer.recipe import parse_recipe
from fitformer.rundir import write_json
from fitformer.stages import DONE, Stage

RECIPE: dict[str, Any] = {
    "name": "fixed",
    "data": {"source_language": "en", "target_language": "de", "builtin": "numbers"},
    "architecture": "enc 32: 64/32/2 | dec 32: 64/32/2/2@0",
}


@pytest.fixture
def inputs_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A function that returns the inputs of a stage of a fixed architecture under a setting."""

    def perform(stage: Stage, inputs: dict[str, Any], *_: Any, later: Any = ()) -> dict[str, Any]:
        return {"inputs": inputs, "later": later}

    def inputs_of(stage: str, *overrides: str) -> dict[str, Any]:
        for name in ("train", "compress"):
            write_json(tmp_path / name / "model" / DONE, {"inputs": {}, "facts": {}, "seconds": 1.0})
        run = Run(parse_recipe(dict(RECIPE), overrides=overrides), tmp_path)
        return getattr(shipping, stage)(run, None)["inputs"]  # type: ignore[no-any-return]

    monkeypatch.setattr(Stage, "perform", perform)
    return inputs_of


def test_sentences_of_the_export_check_do_not_touch_compression(inputs_of: Callable[..., dict[str, Any]]) -> None:
    more = "export.check_sentences=300"
    assert inputs_of("compress") == inputs_of("compress", more)
    assert inputs_of("export") != inputs_of("export", more)
    assert inputs_of("compress") != inputs_of("compress", "export.beam=2")


@pytest.mark.parametrize("stage", ["compress", "export"])
@pytest.mark.parametrize("setting", ["devices.cpu.threads=2", "measure.beam=3"])
def test_what_a_fixed_architecture_is_timed_under_is_recorded(
    inputs_of: Callable[..., dict[str, Any]], stage: str, setting: str
) -> None:
    assert inputs_of(stage) != inputs_of(stage, setting)


@pytest.mark.parametrize("stage", ["compress", "export"])
def test_run_folders_from_before_stay_valid(tmp_path: Path, stage: str) -> None:
    """Records that do not hold the device, but the sentences of the check."""
    run = Run(parse_recipe(dict(RECIPE)), tmp_path)
    write_json(tmp_path / "train" / "model" / DONE, {"inputs": {}, "facts": {}, "seconds": 1.0})
    for name, sections in (("compress", ("compress", "export")), ("export", ("export", "measure"))):
        before = run.stage("train" if name == "compress" else "compress", "model").identity
        inputs = {**run.section(*sections), "train" if name == "compress" else "compress": before}
        if name == "compress":
            inputs["exporter_version"] = shipping.EXPORTER_VERSION
        write_json(tmp_path / name / "model" / DONE, {"inputs": inputs, "facts": {"was": "done"}, "seconds": 1.0})
    assert getattr(shipping, stage)(run, None) == {"was": "done"}
