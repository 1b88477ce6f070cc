"""The stopwatch: statistics by hand, what is run, and what is counted to encoder and decoder."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fitformer.errors import InputError
from fitformer.runtime.decoding import BOS, EOS, PAD
from fitformer.runtime.timing import summarize, time_model


class Clock:
    """Seconds that move only when a model says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowModel:
    """Takes a known time: the k-th encode k ms, each step 2 ms; eos is what it likes best."""

    start_id = BOS

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sources: list[Any] = []
        self.steps: list[tuple[int, int]] = []  # rows, position

    def encode(self, source: Any) -> None:
        self.sources.append(source.copy())
        self.clock.now += 1e-3 * len(self.sources)

    def step(self, state: None, tokens: Any, position: int) -> tuple[Any, None]:
        self.steps.append((len(tokens), position))
        self.clock.now += 2e-3
        logits = np.zeros((len(tokens), 12), np.float32)
        logits[:, EOS] = 5.0
        return logits, None

    def reorder(self, state: None, rows: Any) -> None:
        return None


def run(**changes: Any) -> tuple[Any, SlowModel]:
    clock = Clock()
    model = SlowModel(clock)
    options = {"source_length": 5, "target_length": 4, "vocab_size": 50, "warmup": 2, "repeats": 20} | changes
    return time_model(model, clock=clock, **options), model


def test_summary_drops_a_tenth_at_either_end_and_keeps_every_value() -> None:
    timing, _ = run()
    # Encodes 3 to 22 after two of warm-up; without two at either end 5 to 20.
    assert timing.encoder_ms == pytest.approx(tuple(range(3, 23)))
    assert timing.encoder.mean == pytest.approx(12.5)
    assert timing.encoder.std == pytest.approx(statistics.stdev(range(5, 21)))
    assert timing.encoder.median == pytest.approx(12.5)
    assert timing.encoder.min == pytest.approx(3.0)
    assert timing.decoder.mean == pytest.approx(8.0)
    assert timing.decoder.std == pytest.approx(0.0, abs=1e-9)
    assert timing.latency_ms == pytest.approx(20.5)
    assert timing.total.min == pytest.approx(11.0)


@pytest.mark.parametrize(("count", "kept"), [(1, 1), (9, 9), (10, 8), (19, 17), (20, 16)])
def test_number_of_values_dropped_is_a_tenth_rounded_down(count: int, kept: int) -> None:
    summary = summarize([float(i) for i in range(count)])
    assert summary.mean == pytest.approx((count - 1) / 2)
    edge = (count - kept) // 2
    expected = statistics.stdev(range(edge, count - edge)) if kept > 1 else 0.0
    assert summary.std == pytest.approx(expected)


def test_order_of_the_values_does_not_matter() -> None:
    values = [3.0, 1.0, 100.0, 2.0, 5.0, 4.0, 0.0, 6.0, 7.0, 8.0]
    assert summarize(values) == summarize(sorted(values))
    assert summarize(values).mean == pytest.approx(4.5)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("target_length", [1, 2, 7])
def test_every_repeat_runs_exactly_the_steps_asked_for(beam: int, target_length: int) -> None:
    _, model = run(target_length=target_length, beam=beam, warmup=1, repeats=2, batch_size=2)
    positions = [position for _, position in model.steps]
    assert positions == [*range(target_length)] * 3
    assert {rows for rows, position in model.steps if position > 0} <= {2 * beam}


def test_source_is_random_but_fixed_without_padding_and_ends_with_eos() -> None:
    _, model = run(batch_size=3, vocab_size=6)
    first = model.sources[0]
    assert first.shape == (3, 5)
    assert all(np.array_equal(source, first) for source in model.sources)
    assert (first[:, -1] == EOS).all()
    assert set(first[:, :-1].flatten().tolist()) == {4, 5}
    assert PAD not in first
    assert np.array_equal(run(batch_size=3, vocab_size=6)[1].sources[0], first)


def test_facts_are_json_and_complete() -> None:
    timing, _ = run()
    facts = json.loads(json.dumps(timing.to_dict()))
    assert set(facts) == {
        "latency_ms", "encoder", "decoder", "total", "encoder_ms", "decoder_ms",
        "source_length", "target_length", "batch_size", "beam", "warmup", "repeats",
    }  # fmt: skip
    assert set(facts["encoder"]) == {"mean", "std", "median", "min"}
    assert len(facts["encoder_ms"]) == facts["repeats"] == 20


@pytest.mark.parametrize("setting", ["source_length", "target_length", "batch_size", "beam", "repeats", "vocab_size"])
def test_settings_that_cannot_be_run_are_named(setting: str) -> None:
    with pytest.raises(InputError, match=setting):
        run(**{setting: 0})


def test_timing_needs_only_numpy_and_onnxruntime() -> None:
    # What is copied to a board: everything else is made impossible to import.
    blocked = ["torch", "onnx", "pydantic", "yaml", "sklearn", "sentencepiece", "sacrebleu", "rich", "typer"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        "import fitformer.runtime.decoding, fitformer.runtime.session, fitformer.runtime.timing"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_translating_loads_no_training_library() -> None:
    code = (
        "import sys, fitformer.runtime.translator, fitformer.runtime.evaluate, fitformer.runtime.verify\n"
        "found = {'torch', 'onnx', 'pydantic', 'yaml', 'sklearn', 'sentencepiece', 'sacrebleu'} & set(sys.modules)\n"
        "assert not found, found"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
