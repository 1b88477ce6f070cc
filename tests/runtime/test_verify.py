"""A bundle proves its own numbers, and scores and speed come with documented keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.device import device_card
from fitformer.errors import BundleError, InputError, NotPossibleError
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.evaluate import evaluate
from fitformer.runtime.timing import Summary, Timing
from fitformer.runtime.verify import golden_target, verify

MakeBundle = Callable[..., Path]

GOLDEN = {
    "source": "ich bin da",
    "source_ids": [34, 35, 37],
    "target_ids": [34, 35, 37],
    "text": "ich bin da",
}
LATENCY = {
    "device": {"cpu": device_card(1)["cpu"]},
    "threads": 1,
    "source_length": 5,
    "target_length": 6,
    "latency_ms": 4.0,
    "limit_ms": 5.0,
    "warmup": 1,
    "repeats": 2,
}


class Stopwatch:
    """Tells the given times, one per call, and remembers what it was asked to time."""

    def __init__(self, *times: float) -> None:
        self.times, self.asked = list(times), [dict[str, Any]() for _ in range(0)]

    def __call__(self, model: object, **asked: Any) -> Timing:
        self.asked.append(asked)
        ms = self.times.pop(0)
        part = Summary(ms / 2, 0.0, ms / 2, ms / 2)
        return Timing(ms, part, part, part, (ms / 2,), (ms / 2,), 5, 6, 1, 1, 1, 1)


def test_a_sound_bundle_is_verified_with_every_fact(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle(golden=[GOLDEN], latency=[LATENCY]))
    stopwatch = Stopwatch(4.2)
    facts = verify(bundle, time_it=stopwatch)
    assert json.loads(json.dumps(facts)) == facts
    assert set(facts) == {"files", "golden", "latency", "device"}
    assert (facts["files"], facts["golden"]) == (3, 1)
    expected = {"recorded_ms": 4.0, "measured_ms": 4.2, "limit_ms": 5.0, "same_device": True, "kept": True}
    assert facts["latency"] == [expected]
    assert stopwatch.asked[0]["source_length"] == 5 and stopwatch.asked[0]["repeats"] == 2


def test_latency_is_really_measured(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle(latency=[LATENCY | {"limit_ms": None}]))
    (record,) = verify(bundle)["latency"]
    assert record["measured_ms"] > 0
    assert record["kept"] is None


def test_a_slow_moment_is_measured_again_but_a_broken_limit_is_not_hidden(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle(latency=[LATENCY]))
    assert verify(bundle, time_it=Stopwatch(9.0, 4.9))["latency"][0]["measured_ms"] == 4.9
    with pytest.raises(NotPossibleError, match=r"latency 5.50 ms is over the limit of 5 ms"):
        verify(bundle, time_it=Stopwatch(9.0, 6.0, 5.5))


def test_a_limit_of_another_processor_is_told_but_not_enforced(make_bundle: MakeBundle) -> None:
    record = LATENCY | {"device": {"cpu": "something else"}}
    (facts,) = verify(Bundle.load(make_bundle(latency=[record])), time_it=Stopwatch(99.0))["latency"]
    assert (facts["same_device"], facts["kept"], facts["measured_ms"]) == (False, None, 99.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_ids": [34, 35, 36]}, "golden output 1 differs: 'ich bin da'"),
        ({"source": "ich bin hier"}, "golden input 1 is tokenized differently"),
        ({"text": "ich bin weg"}, "reads differently"),
    ],
)
def test_a_golden_pair_that_differs_is_named(make_bundle: MakeBundle, change: dict[str, Any], message: str) -> None:
    bundle = Bundle.load(make_bundle(golden=[GOLDEN | change]))
    with pytest.raises(NotPossibleError, match=message):
        verify(bundle)


def test_a_changed_file_is_found_even_if_loading_did_not_look(make_bundle: MakeBundle) -> None:
    folder = make_bundle(golden=[GOLDEN])
    with (folder / "vocabulary").open("a") as file:
        file.write("more\n")
    with pytest.raises(NotPossibleError, match="checksum of vocabulary"):
        verify(Bundle.load(folder, check=False))


def test_golden_output_is_the_same_with_and_without_a_closing_eos(make_bundle: MakeBundle) -> None:
    model = Bundle.load(make_bundle()).step_model(1)
    rule = DecodeSettings()
    assert golden_target(model, [5, 6], rule, limit=9) == golden_target(model, [5, 6, 3], rule, limit=9) == [5, 6]


def test_evaluation_scores_a_perfect_copy_with_a_hundred(make_bundle: MakeBundle) -> None:
    lines = ["w1 w2 w3 w4 ich bin da", "", "w5 w6 w7 w8 hier da"] * 3
    bundle = Bundle.load(make_bundle())
    facts = evaluate(bundle, lines, lines, latency_lines=2, keep_translations=True)
    assert json.loads(json.dumps(facts)) == facts
    assert set(facts) == {
        "sentences", "bleu", "chrf", "sentences_per_s", "seconds", "batch_size", "latency_ms", "decoding", "device",
        "translations",
    }  # fmt: skip
    assert facts["sentences"] == 9
    assert facts["bleu"]["score"] == pytest.approx(100)
    assert facts["translations"] == lines
    assert facts["latency_ms"]["sentences"] == 2
    assert facts["latency_ms"]["median"] > 0


def test_evaluation_adds_the_scores_of_papers_when_asked(make_bundle: MakeBundle) -> None:
    pytest.importorskip("sacremoses")
    lines = ["w1 w2 w3 w4 ich bin da."] * 2
    upper = [line.upper() for line in lines]
    facts = evaluate(Bundle.load(make_bundle()), lines, upper, legacy_bleu=True, lowercase_bleu=True)
    assert "smooth:exp" in facts["lowercase_bleu"]["signature"]
    assert "smooth:none" in facts["legacy_bleu"]["signature"]
    assert facts["legacy_bleu"]["score"] == 0 <= facts["bleu"]["score"] < facts["lowercase_bleu"]["score"]


def test_evaluation_of_files_that_do_not_pair_up_counts_both(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle())
    with pytest.raises(InputError, match="2 lines but the reference 1"):
        evaluate(bundle, ["a", "b"], ["a"])
    with pytest.raises(InputError, match="no lines"):
        evaluate(bundle, [], [])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"golden": 3}, "the key 'golden' is not of the type list"),
        ({"golden": [{"source": "a"}]}, "golden 1: 'source_ids' is missing"),
        ({"latency": [3]}, "latency 1: 'latency_ms' is missing"),
        ({"latency": [{"latency_ms": 1, "source_length": "2"}]}, "latency 1: 'source_length' is missing or of the"),
    ],
)
def test_records_that_cannot_be_read_are_named(make_bundle: MakeBundle, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleError, match=named):
        verify(Bundle.load(make_bundle(**changes)))
