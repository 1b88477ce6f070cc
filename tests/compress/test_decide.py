"""int8 is kept only if it is faster and loses little enough."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.compress import decide

POSITIVE = st.floats(0.01, 1e4)
BLEU = st.floats(0, 100)


@pytest.mark.parametrize(
    ("int8_ms", "int8_bleu", "kept", "words"),
    [
        (5.0, 30.0, "int8", "2.00 times the speed"),
        (5.0, 29.7, "int8", "loses 0.30 BLEU"),  # exactly the allowed loss
        (5.0, 30.4, "int8", "gains 0.40 BLEU"),
        (5.0, 29.6, "fp32", "more than the allowed 0.30"),
        (10.0, 30.0, "fp32", "not faster"),
        (20.0, 31.0, "fp32", "0.50 times the speed"),
        (20.0, 0.0, "fp32", "not faster"),
    ],
)
def test_decision_follows_speed_and_loss(int8_ms: float, int8_bleu: float, kept: str, words: str) -> None:
    decision = decide(fp32_ms=10.0, int8_ms=int8_ms, fp32_bleu=30.0, int8_bleu=int8_bleu, allowed_loss=0.3)
    assert decision.kept == kept
    assert words in decision.reason
    assert decision.reason.startswith(f"{kept} is kept") and decision.reason.count("\n") == 0


@given(POSITIVE, POSITIVE, BLEU, BLEU, st.floats(0, 5))
def test_int8_is_kept_exactly_when_it_pays(
    fp32_ms: float, int8_ms: float, fp32_bleu: float, int8_bleu: float, allowed: float
) -> None:
    decision = decide(fp32_ms=fp32_ms, int8_ms=int8_ms, fp32_bleu=fp32_bleu, int8_bleu=int8_bleu, allowed_loss=allowed)
    pays = int8_ms < fp32_ms and fp32_bleu - int8_bleu <= allowed + 1e-8
    if abs(fp32_bleu - int8_bleu - allowed) > 1e-8:
        assert (decision.kept == "int8") == pays


def test_decision_is_json() -> None:
    decision = decide(fp32_ms=4.0, int8_ms=2.0, fp32_bleu=30.0, int8_bleu=29.9, allowed_loss=0.3)
    facts = json.loads(json.dumps(decision.to_dict()))
    assert facts["kept"] == "int8" and facts["speedup"] == 2.0
    assert facts["bleu_loss"] == pytest.approx(0.1)
