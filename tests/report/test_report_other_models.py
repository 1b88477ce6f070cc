"""The report names the bundle that a training went on from, and its teacher."""

from __future__ import annotations

from typing import Any

from fitformer.report import background
from fitformer.report.inputs import StageState


def training(facts: dict[str, Any]) -> str:
    state = StageState("train", "cpu@12ms", "done", inputs={"train": {"updates": 10}}, facts={"updates": 10, **facts})
    return str(background.training((), state, "train"))


def test_a_teacher_is_named_with_what_was_learned_from_it() -> None:
    teacher = {"name": "big<b>", "kind": "fitformer bundle", "beam": 5}
    page = training({"teacher": teacher, "distillation": {"lines": 1000, "translated": 990, "targets": "beside"}})
    assert "big&lt;b&gt; (fitformer bundle, beam 5)" in page
    assert "990 of 1,000 lines, beside those of the text" in page
    assert "1,000 lines<" in training({"teacher": teacher, "distillation": {"lines": 1000, "translated": 1000}})


def test_a_bundle_is_named_with_how_its_weights_were_read() -> None:
    assert "small (fp32)" in training({"began_with": {"name": "small", "dequantised": False}})
    assert "small (its 8-bit weights made float again)" in training(
        {"began_with": {"name": "small", "dequantised": True}}
    )


def test_an_ordinary_training_names_no_other_model() -> None:
    page = training({})
    assert "teacher" not in page and "bundle" not in page
    assert "teacher" not in training({"teacher": "damaged", "distillation": 7, "began_with": []})
