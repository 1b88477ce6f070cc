"""The rehearsal of a dry run: the models that ``fit`` would train, their memory, and what the trainings would cost."""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitformer.cost.account import Rates
from fitformer.errors import NotPossibleError
from fitformer.models import Transformer, TransformerConfig
from fitformer.pipeline import dry_run, forecast, rehearsal
from fitformer.pipeline.forecast import Lengths, Rehearsed, Work
from fitformer.pipeline.memory import PeakMemory, free_bytes
from fitformer.pipeline.run import Run
from fitformer.recipe import Supernet, Training, parse_recipe
from fitformer.rundir import write_json
from fitformer.space import Architecture, SearchSpace, counting
from fitformer.tasks import TranslationTask

SPACE = {
    "encoder_embed_dim": [32, 16],
    "decoder_embed_dim": [32, 16],
    "encoder_num_layers": [2, 1],
    "decoder_num_layers": [2, 1],
    "encoder_ffn_dim": [64, 32],
    "encoder_qkv_dim": [32, 16],
    "encoder_num_heads": [2],
    "decoder_ffn_dim": [64, 32],
    "decoder_qkv_dim": [32],
    "decoder_self_heads": [2],
    "decoder_cross_heads": [2],
    "decoder_cross_span": [1],
}
TRAINING = {"batch_tokens": 256, "threads": 1, "updates": 100, "accumulate": 3, "precision": "fp32"}
RECIPE: dict[str, Any] = {
    "name": "small",
    "data": {"source_language": "en", "target_language": "de", "builtin": "numbers"},
    "prepare": {"tokenizer": {"vocab_size": 500}},
    "space": SPACE,
    "targets": [{"device": "cpu", "latency": "50%"}, {"device": "cpu", "latency": "80%"}],
    "supernet": TRAINING,
    "train": TRAINING,
}
FIXED = {
    "name": "fixed",
    "data": RECIPE["data"],
    "architecture": "enc 16: 32/16/2 | dec 16: 32/16/2/2@0",
    "train": TRAINING,
}
LENGTHS = Lengths(30, 20, "recipe")


def run_of(folder: Path, recipe: dict[str, Any], **changes: Any) -> Run:
    return Run(parse_recipe({**recipe, **changes}), folder / "run")


def finish(run: Run, stage: str, part: str = "") -> None:
    folder = run.path / stage / part
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "done.json", {"inputs": {}, "facts": {}, "seconds": 1.0, "finished": "now"})


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# -- what is rehearsed ------------------------------------------------------------------------------------------------


def test_both_trainings_of_a_space_are_rehearsed_and_nothing_is_left_behind(tmp_path: Path, scratch: Path) -> None:
    run = run_of(tmp_path, RECIPE)
    found = rehearsal.rehearse(run)
    supernet, train = found["models"]
    largest = SearchSpace.from_dict(SPACE).largest()
    assert supernet["architecture"] == train["architecture"] == largest.to_text()
    count = counting.total(largest, source_vocab_size=500, target_vocab_size=500).parameters.total
    assert supernet["params"] == train["params"] == count
    for model in (supernet, train):
        assert len(model["losses"]) == found["updates"] == 2
        assert all(abs(loss - math.log(500)) < 2 for loss in model["losses"])  # random weights know nothing
        assert model["rehearsed_tokens"] == model["batch_tokens"] == 256
        assert model["pass_seconds"] > 0 and model["here"]["device_hours"] > 0
    assert (supernet["trainings"], train["trainings"]) == (1, 2)
    assert supernet["average_share"] < 1 and train["average_share"] == 1
    hours = supernet["here"]["device_hours"] + train["here"]["device_hours"]
    assert found["here"]["device_hours"] == pytest.approx(hours, rel=1e-4)
    assert not run.path.exists() and not list(scratch.glob("fitformer*"))


def test_a_fixed_architecture_is_rehearsed_as_it_is(tmp_path: Path) -> None:
    (model,) = rehearsal.rehearse(run_of(tmp_path, FIXED), updates=1)["models"]
    assert (model["stage"], model["architecture"]) == ("train", FIXED["architecture"])
    assert len(model["losses"]) == 1


def test_the_sandwich_rule_is_rehearsed_with_all_its_architectures(tmp_path: Path) -> None:
    changes = {**TRAINING, "sampling": "sandwich", "random_architectures": 2}
    run = run_of(tmp_path, RECIPE, supernet=changes)
    (model,) = rehearsal.rehearse(run, until="supernet")["models"]
    assert model["average_share"] == 1
    plain = rehearsal.rehearse(run_of(tmp_path, RECIPE), until="supernet")["models"][0]
    assert model["flops_per_update"] > 2 * plain["flops_per_update"]


def test_only_what_is_still_to_be_done_is_rehearsed(tmp_path: Path) -> None:
    run = run_of(tmp_path, RECIPE)
    finish(run, "supernet")
    finish(run, "train", "cpu@80%")
    (model,) = rehearsal.rehearse(run)["models"]
    assert (model["stage"], model["trainings"]) == ("train", 1)
    finish(run, "train", "cpu@50%")
    found = rehearsal.rehearse(run)
    assert found["models"] == [] and found["here"]["device_hours"] == 0


@pytest.mark.parametrize(("until", "stages"), [("prepare", []), ("search", ["supernet"])])
def test_trainings_after_the_last_stage_are_not_rehearsed(tmp_path: Path, until: str, stages: list[str]) -> None:
    found = rehearsal.rehearse(run_of(tmp_path, RECIPE), until=until, updates=1)
    assert [model["stage"] for model in found["models"]] == stages


def test_sizes_and_lengths_are_the_runs_then_the_recipes_then_assumed(tmp_path: Path) -> None:
    run = run_of(tmp_path, RECIPE)
    assert rehearsal.expected_vocab_sizes(run) == rehearsal.Sizes(500, 500, "recipe")
    assert rehearsal.expected_lengths(run) == Lengths(30, 30, "assumed")
    assert rehearsal.expected_vocab_sizes(run_of(tmp_path, FIXED)).origin == "assumed"
    measured = run_of(tmp_path, RECIPE, measure={"source_length": 12, "target_length": 9})
    assert rehearsal.expected_lengths(measured) == Lengths(12, 9, "recipe")
    run.prepared.mkdir(parents=True)
    stats = {"vocab_size": {"source": 77, "target": 88}, "median_lengths": {"source": 10.0, "target": 400.0}}
    write_json(run.prepared / "stats.json", stats)
    assert rehearsal.expected_vocab_sizes(run) == rehearsal.Sizes(77, 88, "run")
    assert rehearsal.expected_lengths(run) == Lengths(11, 256, "run")  # never more than max_tokens


def test_generated_sentences_are_as_long_as_asked_and_hold_no_special_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    whole = TranslationTask.batch

    def batch(self: TranslationTask, indices: Any) -> Any:
        seen.append(whole(self, indices))
        return seen[-1]

    monkeypatch.setattr(TranslationTask, "batch", batch)
    measure = {"source_length": 20, "target_length": 12}
    rehearsal.rehearse(run_of(tmp_path, RECIPE, measure=measure), until="supernet")
    assert len(seen) == 3  # a small part of a batch first, to see how fast it goes
    for pairs in seen[1:]:
        assert 0.6 * 256 <= pairs.source.numel() <= 256
        assert 15 <= pairs.source.size(1) <= 24 and 9 <= pairs.target.size(1) <= 15
        words = np.setdiff1d(pairs.source.numpy(), [0, 3])
        assert words.min() >= 4 and words.max() < 500


# -- memory -----------------------------------------------------------------------------------------------------------


def test_scarce_memory_makes_the_batch_smaller_and_the_figures_are_scaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, RECIPE)
    job = rehearsal._jobs(run, rehearsal.expected_vocab_sizes(run), rehearsal.expected_lengths(run))[0]
    monkeypatch.setattr(rehearsal, "free_bytes", lambda device: int(job.memory.at(130) / rehearsal.USED_SHARE))
    model = rehearsal.rehearse(run, until="supernet")["models"][0]
    assert (model["rehearsed_tokens"], model["batch_tokens"]) == (128, 256)
    update = 3 * 2 * model["pass_seconds"] * model["average_share"] + model["optimizer_seconds"]
    assert model["seconds_per_update"] == pytest.approx(update)


def test_a_slow_machine_rehearses_a_part_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LONGEST_PASS_S", 1e-9)
    model = rehearsal.rehearse(run_of(tmp_path, RECIPE), until="supernet")["models"][0]
    assert 25 <= model["rehearsed_tokens"] <= 45  # one sentence
    factor = 3 * 256 / model["rehearsed_tokens"] * model["average_share"]
    assert model["seconds_per_update"] == pytest.approx(
        factor * model["pass_seconds"] + model["optimizer_seconds"], rel=1e-6
    )


def test_a_model_that_memory_does_not_hold_is_counted_and_not_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "free_bytes", lambda device: 1000)
    found = rehearsal.rehearse(run_of(tmp_path, RECIPE))
    for model in found["models"]:
        assert (model["rehearsed_tokens"], model["losses"], model["here"]) == (0, [], None)
        assert model["memory"]["basis"] == "estimated" and model["memory"]["total"] > 4 * 4 * model["params"]
        assert model["gpu"]["device_hours"] > 0
    assert found["here"] is None


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_memory_that_runs_out_after_all_is_one_line(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(TranslationTask, "loss", fail)
    with pytest.raises(NotPossibleError, match="memory is not enough for supernet with batches of 256 tokens; halve"):
        rehearsal.rehearse(run_of(tmp_path, RECIPE))
    assert not list(scratch.glob("fitformer*"))


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(TranslationTask, "loss", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        rehearsal.rehearse(run_of(tmp_path, RECIPE))


def test_a_loss_that_is_no_number_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotPossibleError, match="the loss of train is not a number"):
        fixed = {**TRAINING, "learning_rate": 1e30, "warmup": 0, "schedule": "constant"}
        rehearsal.rehearse(run_of(tmp_path, FIXED, train=fixed), updates=3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep no resettable high-water mark")
def test_the_peak_of_a_block_is_seen_also_after_a_higher_one() -> None:
    for megabytes in (96, 48):
        with PeakMemory() as memory:
            block = np.ones(megabytes << 17)
            block.sum()
            del block
        assert (megabytes - 8) << 20 <= memory.peak - memory.before <= (megabytes + 32) << 20


def test_free_memory_is_known_on_linux_and_positive() -> None:
    free = free_bytes()
    assert free is None or free > 0


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_parameters_are_counted_as_the_model_has_them(share: str, pre_norm: bool) -> None:
    arch = Architecture.from_text("enc 24: 32/16/2 | dec 16: 32/16/2/2@0 48/16/2/2@0")
    count = forecast.counts_of((40, 40), LENGTHS, share_embeddings=share, pre_norm=pre_norm)
    model = Transformer(TransformerConfig(40, 40, share_embeddings=share, pre_norm=pre_norm), arch)
    assert count(arch).parameters.total == sum(parameter.numel() for parameter in model.parameters())


def test_estimated_activations_grow_with_everything_they_depend_on() -> None:
    def estimate(text: str, lengths: Lengths = LENGTHS, *, attention: bool = False) -> int:
        return forecast.activation_bytes(Architecture.from_text(text), lengths, keeps_attention=attention)

    base = "enc 16: 32/16/2 | dec 16: 32/16/2/2@0"
    for other in (
        "enc 32: 32/16/2 | dec 16: 32/16/2/2@0",
        "enc 16: 64/16/2 | dec 16: 32/16/2/2@0",
        "enc 16: 32/16/2 32/16/2 | dec 16: 32/16/2/2@0",
        "enc 16: 32/16/2 | dec 16: 32/16/2/2@0 32/16/2/2@0",
        "enc 16: 32/16/2 | dec 16: 32/32/2/2@0",
    ):
        assert estimate(other) > estimate(base)
    assert estimate(base, attention=True) > estimate(base)
    assert estimate(base, Lengths(60, 40, "run"), attention=True) > estimate(base, attention=True)


# -- what it would cost -----------------------------------------------------------------------------------------------


def test_an_update_is_worked_out_by_hand() -> None:
    settings = Training(batch_tokens=600, accumulate=4)
    work = Work(rehearsed=100.0, average=50.0)
    found = Rehearsed("cpu", "fp32", 300, 1000, (1.0,), pass_seconds=2.0, optimizer_seconds=0.5)
    # 2 s for half a batch of the dearest; an average one is half as dear; four of them and one step
    assert forecast.seconds_per_update(settings, work, found) == 4 * (2.0 * 2 * 0.5) + 0.5
    # 600 / 30 pairs of 50 Mult-Adds, six operations each, four batches
    assert forecast.operations_per_update(settings, work, LENGTHS) == 6 * 50 * 20 * 4
    assert forecast.seconds_per_update(settings, work, Rehearsed("cpu", "fp32", 0, 1000)) is None


def test_costs_are_those_of_the_account() -> None:
    rates = Rates(gpu_price_per_hour=3.0, cpu_price_per_hour=0.5)
    operations = forecast.GPU_OPERATIONS_PER_S[16] * 36  # a hundredth of an hour per update
    found = forecast.forecast(72.0, operations, 100, rates=rates)
    assert found.here is not None
    assert (found.here.device_hours, found.here.price) == pytest.approx((2.0, 1.0))
    assert (found.gpu.device_hours, found.gpu.price) == pytest.approx((1.0, 3.0))
    slower = forecast.forecast(72.0, operations, 100, bits=32, rates=rates).gpu.device_hours
    assert slower == pytest.approx(40 / 5)
    both = forecast.together([found, found], rates)
    assert both.here is not None and both.here.device_hours == pytest.approx(4.0)
    unknown = forecast.forecast(None, operations, 100, rates=rates)
    assert forecast.together([found, unknown], rates).here is None


def test_the_work_of_a_supernet_is_that_of_its_rule() -> None:
    space = SearchSpace.from_dict(SPACE)

    def macs(arch: Architecture) -> int:
        return 300 if arch == space.largest() else 100

    def work(**changes: Any) -> Work:
        return forecast.work_of_supernet(space, Supernet(updates=10, **changes), macs)

    uniform = work()
    assert uniform.rehearsed == 300 and 100 <= uniform.average < 110
    sandwich = work(sampling="sandwich", random_architectures=2)
    assert sandwich.rehearsed == sandwich.average == pytest.approx(300 + 100 + 2 * uniform.average)
    first = work(largest_first=5)
    assert first.average == pytest.approx((300 + uniform.average) / 2)


def test_one_batch_of_hats_wmt_supernet_has_the_operations_that_its_parameters_say() -> None:
    """Six operations per weight and token: the rule that everybody uses, within what attention adds to it."""
    largest = SearchSpace.preset("hat-wmt").largest()
    lengths = Lengths(30, 30, "recipe")
    counts = forecast.counts_of((32_000, 32_000), lengths, share_embeddings="all", pre_norm=False)(largest)
    work = forecast.work_of_one(largest, lambda arch: counts.macs.total)
    operations = forecast.operations_per_update(Training(batch_tokens=4096), work, lengths)
    assert 1.0 < operations / (6 * counts.parameters.total * 4096) < 1.2


# -- the plan around it -----------------------------------------------------------------------------------------------


def test_missing_files_are_part_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "here.en").touch()
    data = {
        "source_language": "en",
        "target_language": "de",
        "train": {"source": str(tmp_path / "here.en"), "target": str(tmp_path / "there.de")},
        "valid": {"source": str(tmp_path / "here.en"), "target": str(tmp_path / "there.de")},
        "test": {"files": str(tmp_path / "no.tsv")},
    }
    run = run_of(tmp_path, FIXED, data=data)
    plan = dry_run(run, until="prepare")
    assert plan["missing_files"] == [str(tmp_path / "there.de"), str(tmp_path / "no.tsv")]
    assert plan["rehearsal"]["models"] == []
    finish(run, "prepare")
    assert dry_run(run, until="prepare")["missing_files"] == []


@pytest.mark.slow
def test_the_supertransformer_of_wmt_is_rehearsed_at_full_size(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fitformer.recipe import load_recipe

    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    small = ("supernet.batch_tokens=512", "supernet.threads=1")  # the model is what is large here
    run = Run(load_recipe(repository / "recipes" / "wmt14-ende.yaml", small), tmp_path / "run")
    plan = dry_run(run, until="supernet")
    (model,) = plan["rehearsal"]["models"]
    layers = counting.hat(SearchSpace.preset("hat-wmt").largest()).parameters.total  # as HAT counts
    assert model["params"] == layers + 32_000 * 640
    assert plan["missing_files"] and plan["space"]["size"] == 417_846_678_672_384
    assert model["memory"]["optimizer"] == 2 * 4 * model["params"]
