"""A training that is interrupted anywhere, any number of times, ends with the weights of one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fitformer import rundir
from fitformer.tasks import TranslationTask
from fitformer.training import logs, loop
from fitformer.training.checkpoint import STATE, WEIGHTS, read_tensors
from fitformer.training.logs import read_log
from fitformer.training.loop import clean_up

MakeTraining = Callable[..., Any]
EVERY_UPDATE, NEVER = 0.0, 1e9  # seconds between saves; with NEVER the state is saved at validations only
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "supernet": {"supernet": True},
    "accumulated": {"accumulate": 2},
    "averaged": {"average_last": 2, "validate_every": 2},
    "everything": {"supernet": True, "accumulate": 2, "average_last": 2, "validate_every": 3},
    "several epochs": {"batches_per_epoch": 3, "accumulate": 2},
}
UPDATES = 7


class Killed(BaseException):
    """Not an Exception, so that nothing can mistake it for an error to be handled."""


def finished(folder: Path) -> tuple[dict[str, Tensor], list[tuple[int, str]], list[Any]]:
    """Weights, and what the log says: which lines there are, and every figure in them that is not a time."""
    lines = read_log(folder)
    kinds = [(line["update"], "valid" if "valid" in line else "train") for line in lines]
    figures = [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_s")} for line in lines]
    return read_tensors(folder / WEIGHTS)[0], kinds, figures


def assert_same(folder: Path, expected: tuple[dict[str, Tensor], list[tuple[int, str]], list[Any]]) -> None:
    weights, kinds, figures = finished(folder)
    assert weights.keys() == expected[0].keys()
    for name, value in weights.items():
        assert torch.equal(value, expected[0][name]), name
    assert kinds == expected[1]  # no line is missing or there twice
    assert figures == expected[2]


@pytest.fixture(autouse=True)
def _a_log_line_per_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "UPDATES_PER_LOG_LINE", 1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of trainings that were left alone, by variant; each is computed once."""
    return {"folder": tmp_path_factory.mktemp("uninterrupted")}


def expect(cache: dict[str, Any], variant: str, make_training: MakeTraining) -> Any:
    if variant not in cache:
        folder = cache["folder"] / variant
        facts = make_training(updates=UPDATES, **VARIANTS[variant]).run(folder)
        cache[variant] = (finished(folder), facts)
    return cache[variant]


def kill_before(update: int) -> Callable[[int], None]:
    def on_select(now: int) -> None:
        if now == update:
            raise Killed

    return on_select


@pytest.mark.parametrize("saves", [EVERY_UPDATE, NEVER], ids=["saved every update", "saved at validations"])
@pytest.mark.parametrize("update", range(1, UPDATES + 1))
@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_killed_at_any_update_the_weights_and_the_log_are_the_same(
    make_training: MakeTraining,
    tmp_path: Path,
    uninterrupted: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    update: int,
    saves: float,
) -> None:
    expected, facts = expect(uninterrupted, variant, make_training)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", saves)
    training = make_training(updates=UPDATES, **VARIANTS[variant])
    training.on_select = kill_before(update)
    with pytest.raises(Killed):
        training.run(tmp_path)
    resumed = make_training(updates=UPDATES, **VARIANTS[variant])
    again = resumed.run(tmp_path)
    assert_same(tmp_path, expected)
    first = update if saves == EVERY_UPDATE else resumed.selected[0]
    assert resumed.selected == list(range(first, UPDATES + 1))  # it went on, it did not start anew
    assert {key: again[key] for key in facts if key != "seconds"} == {k: v for k, v in facts.items() if k != "seconds"}


@pytest.mark.parametrize("variant", ["supernet", "accumulated", "averaged", "several epochs"])
def test_killed_in_every_variant_the_weights_and_the_log_are_the_same(
    make_training: MakeTraining,
    tmp_path: Path,
    uninterrupted: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
) -> None:
    expected, _ = expect(uninterrupted, variant, make_training)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", EVERY_UPDATE)
    for update in (2, 5, 6):
        training = make_training(updates=UPDATES, **VARIANTS[variant])
        training.on_select = kill_before(update)
        with pytest.raises(Killed):
            training.run(tmp_path)
    make_training(updates=UPDATES, **VARIANTS[variant]).run(tmp_path)
    assert_same(tmp_path, expected)


def install_killer(monkeypatch: pytest.MonkeyPatch, rng: random.Random, share: float) -> None:
    """Make every step that touches weights, log or disk raise ``Killed`` now and then, before or after its work."""

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            if rng.random() < share:
                raise Killed
            result = function(*args, **keywords)
            if rng.random() < share:
                raise Killed
            return result

        return call

    for owner, name in (
        (loop, "save_state"),
        (loop, "write_tensors"),
        (loop.Trainer, "_keep_snapshot"),
        (loop.Trainer, "_average"),
        (logs.TrainingLog, "write"),
        (TranslationTask, "loss"),
        (TranslationTask, "validation_loss"),
        (rundir.os, "replace"),
        (torch.optim.AdamW, "step"),
    ):
        monkeypatch.setattr(owner, name, deadly(getattr(owner, name)))


@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again_at_any_step_the_weights_and_the_log_are_the_same(
    make_training: MakeTraining, tmp_path: Path, uninterrupted: dict[str, Any], seed: int
) -> None:
    expected, _ = expect(uninterrupted, "everything", make_training)
    rng, kills = random.Random(seed), 0
    for _ in range(100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "SECONDS_BETWEEN_SAVES", rng.choice([EVERY_UPDATE, NEVER]))
            install_killer(patch, rng, 0.01)
            try:
                make_training(updates=UPDATES, **VARIANTS["everything"]).run(tmp_path)
                break
            except Killed:
                kills += 1
    assert kills
    assert_same(tmp_path, expected)


def test_early_stopping_stops_at_the_same_update_after_a_kill(
    make_training: MakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [3.0, 2.0, 2.5, 2.4, 2.3, 1.0]
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", NEVER)

    def start(folder: Path, kill_at: int | None) -> Any:
        training = make_training(patience=3, validate_every=2, updates=20, average_last=2)
        validated = iter(losses)

        def validation_loss(_: dict[str, float]) -> dict[str, float]:
            update = training.selected[-1] if training.selected else 10
            return {"largest": losses[update // 2 - 1] if update < 12 else next(validated)}

        training.validation_loss = validation_loss
        if kill_at is not None:
            training.on_select = kill_before(kill_at)
        return training.run(folder)

    facts = start(tmp_path / "alone", None)
    assert facts["updates"] == 10
    for update in (4, 7, 10):
        folder = tmp_path / f"killed {update}"
        with pytest.raises(Killed):
            start(folder, update)
        assert start(folder, None)["updates"] == 10
        assert_same(folder, finished(tmp_path / "alone"))


def test_a_finished_training_that_was_not_recorded_finishes_again_without_an_update(
    make_training: MakeTraining, tmp_path: Path
) -> None:
    facts = make_training(average_last=2).run(tmp_path)
    expected = finished(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    again = make_training(average_last=2)
    assert again.run(tmp_path) == facts
    assert again.selected == []
    assert_same(tmp_path, expected)


def test_a_torn_last_log_line_is_dropped(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(updates=UPDATES)
    training.on_select = kill_before(6)
    with pytest.raises(Killed):
        training.run(tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    make_training(updates=UPDATES).run(tmp_path)
    updates = [line["update"] for line in read_log(tmp_path) if "loss" in line]
    assert updates == list(range(1, UPDATES + 1))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import SmallTraining
from fitformer.training import loop
loop.UPDATES_PER_LOG_LINE = 1
settings = {"updates": 60, "validate_every": 7, "average_last": 3, "accumulate": 2}
SmallTraining(Path(sys.argv[2]), True, settings).run(Path(sys.argv[3]))
"""


@pytest.mark.slow
def test_a_process_ended_by_kill_9_leaves_what_the_next_one_needs(
    prepared: Path, repository: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(prepared)]
    environment = {**os.environ, "PYTHONPATH": str(repository)}

    def start(folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, str(folder)], env=environment, stderr=subprocess.DEVNULL)

    assert start(tmp_path / "alone").wait() == 0
    folder = tmp_path / "killed"
    for update in (10, 25, 44):
        process = start(folder)
        while not any(line["update"] >= update for line in read_log(folder)):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (folder / WEIGHTS).exists()
        assert (folder / STATE).exists()
    assert start(folder).wait() == 0
    assert_same(folder, finished(tmp_path / "alone"))
    clean_up(folder)
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, "log.jsonl", "tensorboard"}
