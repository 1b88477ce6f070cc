"""``accelerate launch -m fitformer``: one line where it fails, nobody left behind, the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fitformer.rundir import read_json
from fitformer.stages import DONE, locked

LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
LAUNCH += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
RECIPE = """
name: launched
seed: 3
data: {source_language: en, target_language: de, builtin: numbers, builtin_pairs: 800, held_out_pairs: 40}
prepare: {tokenizer: {vocab_size: 300}}
architecture: "enc 32: 64/32/2 | dec 32: 64/32/2/2@0"
train: {updates: 200, batch_tokens: 256, warmup: 10, dropout: 0.0, validate_every: 50, threads: 1, precision: fp32}
measure: {repeats: 3, warmup: 1}
compress: {int8: false}
export: {check_sentences: 5}
"""
pytestmark = pytest.mark.slow
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    (tmp_path / "recipe.yaml").write_text(RECIPE)

    def start(run: str, *options: str, launch: bool = True, stage: str = "train") -> subprocess.Popen[str]:
        command = [*(LAUNCH if launch else [sys.executable]), "-m", "fitformer", stage, "recipe.yaml", "--run", run]
        return subprocess.Popen(
            [*command, *options],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def children(launcher: int) -> dict[int, int]:
    """Process ids by rank."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "environ").read_bytes().split(b"\0") if parent == launcher else []
        except (OSError, ValueError):
            continue
        found |= {int(word[5:]): int(entry.name) for word in words if word.startswith(b"RANK=")}
    return found


def is_running(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_one_killed_ends_all_and_the_same_command_goes_on(start: Start, tmp_path: Path) -> None:
    first = start("run", "--set", "train.updates=201")
    state, began = tmp_path / "run/train/model/tensorboard", time.monotonic()
    while not state.exists() and first.poll() is None and time.monotonic() - began < 120:
        time.sleep(0.05)
    ranks = children(first.pid)
    assert set(ranks) == {0, 1}, first.communicate()
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1
    assert not any(is_running(process) for process in ranks.values())
    assert sum(line.startswith("error: ") for line in errors.splitlines()) <= 1, errors
    assert not (tmp_path / "run/train/model" / DONE).exists()

    again = start("run", "--set", "train.updates=201", "--json")
    output, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert json.loads(output.splitlines()[-1])["run"] == "run"  # the other process prints nothing
    assert len(output.splitlines()) == 1
    assert read_json(tmp_path / "run/train/model" / DONE)["facts"]["updates"] == 201


def test_what_fails_in_the_main_process_is_one_line_and_its_exit_code(start: Start, tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        process = start("run")
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert output == ""
    ours = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert ours == ["error: run: another fitformer process works in this folder; wait or use --run"]
    assert "terminate called" not in errors


def test_a_wrong_setting_is_one_line_and_exit_code_2(start: Start) -> None:
    process = start("run", "--set", "train.updats=3")
    _, errors = process.communicate(timeout=120)
    ours = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(ours) == 1 and "train.updats: no such setting (did you mean 'updates'?)" in ours[0]
    assert "exitcode  : 2" in errors  # what accelerate reports of the main process; its own is 1


def test_a_damaged_file_of_the_training_is_one_line(start: Start, tmp_path: Path) -> None:
    """Both processes find it; the main one says so."""
    assert start("run", launch=False, stage="prepare").communicate() is not None
    folder = tmp_path / "run/train/model"
    folder.mkdir(parents=True)
    (folder / "state.safetensors").write_bytes(b"no such thing")
    process = start("run")
    _, errors = process.communicate(timeout=120)
    ours = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(ours) == 1 and "state.safetensors: damaged" in ours[0], errors
