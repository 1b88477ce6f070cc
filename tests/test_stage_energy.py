"""Stages keep account of their energy over all sessions, whatever ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fitformer.cost import power
from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import read_json, write_json
from fitformer.stages import DONE, Stage, energy_file, energy_sessions, forget, record_of

INPUTS = {"seed": 1}


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The counter of a processor in a tree like the kernel's, in microjoules."""
    package = tmp_path / "powercap" / "intel-rapl:0"
    package.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", "100000000")):
        (package / name).write_text(content)
    original = power.Rapl
    monkeypatch.setattr(power, "Rapl", lambda: original(package.parent))
    return package / "energy_uj"


def spend(counter: Path, joules: int, error: BaseException | None = None) -> Any:
    def work(folder: Path) -> dict[str, Any]:
        counter.write_text(str(int(counter.read_text()) + joules * 1_000_000))
        if error is not None:
            raise error
        return {}

    return work


def test_a_finished_stage_records_its_energy(tmp_path: Path, counter: Path) -> None:
    stage = Stage(tmp_path / "run", "train", "cpu@5ms", gpus=0)
    stage.perform(INPUTS, spend(counter, 7))
    (session,) = read_json(stage.folder / DONE)["energy"]["sessions"]
    assert session["joules"] == {"cpu": 7.0}
    assert session["started"] and session["seconds"] >= 0 and session["gpus"] == 0
    assert list((tmp_path / "run").iterdir()) == [tmp_path / "run" / "train"]  # nothing else is left


@pytest.mark.parametrize("error", [KeyboardInterrupt(), NotPossibleError("full"), SystemExit(1)])
def test_sessions_that_were_interrupted_count(tmp_path: Path, counter: Path, error: BaseException) -> None:
    stage = Stage(tmp_path / "run", "supernet")
    for joules in (3, 4):
        with pytest.raises(type(error)):
            stage.perform(INPUTS, spend(counter, joules, error))
    assert [entry["joules"]["cpu"] for entry in energy_sessions(stage.run, "supernet")] == [3.0, 4.0]
    assert len(record_of(stage.run, "supernet")["energy"]["sessions"]) == 2
    stage.perform(INPUTS, spend(counter, 5))
    assert [e["joules"]["cpu"] for e in record_of(stage.run, "supernet")["energy"]["sessions"]] == [3.0, 4.0, 5.0]


def test_a_wrong_input_that_leaves_no_trace_leaves_no_account(tmp_path: Path, counter: Path) -> None:
    stage = Stage(tmp_path / "run", "prepare")
    with pytest.raises(InputError):
        stage.perform(INPUTS, spend(counter, 3, InputError("no")))
    assert list((tmp_path / "run").iterdir()) == []


def test_an_account_without_its_stage_counts_for_no_other(tmp_path: Path, counter: Path) -> None:
    stage = Stage(tmp_path / "run", "prepare")
    write_json(energy_file(stage.run, "prepare"), {"sessions": [{"seconds": 5.0, "joules": {"cpu": 9.0}}]})
    stage.perform(INPUTS, spend(counter, 1))
    assert [entry["joules"] for entry in record_of(stage.run, "prepare")["energy"]["sessions"]] == [{"cpu": 1.0}]


def test_a_stage_that_is_done_again_begins_a_new_account(tmp_path: Path, counter: Path) -> None:
    stage = Stage(tmp_path / "run", "train", "cpu@5ms")
    with pytest.raises(KeyboardInterrupt):
        stage.perform(INPUTS, spend(counter, 3, KeyboardInterrupt()))
    forget(stage.run, "supernet")
    assert list(stage.run.glob(".*")) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sessions": 3}', '{"sessions": [1, {}]}', "\x00"])
def test_a_damaged_account_ends_nothing(tmp_path: Path, counter: Path, content: str) -> None:
    stage = Stage(tmp_path / "run", "supernet")
    with pytest.raises(KeyboardInterrupt):
        stage.perform(INPUTS, spend(counter, 3, KeyboardInterrupt()))
    energy_file(stage.run, "supernet").write_text(content)
    stage.perform(INPUTS, spend(counter, 4))
    assert record_of(stage.run, "supernet")["energy"]["sessions"][-1]["joules"] == {"cpu": 4.0}


def test_an_account_that_cannot_be_written_ends_nothing(
    tmp_path: Path, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "run", "supernet")
    energy_file(stage.run, "supernet").mkdir(parents=True)  # a folder in its place
    with pytest.raises(KeyboardInterrupt):
        stage.perform(INPUTS, spend(counter, 3, KeyboardInterrupt()))


def test_a_missing_or_damaged_record_is_none(tmp_path: Path) -> None:
    assert record_of(tmp_path, "train", "x") == {"energy": {"sessions": []}}
    (tmp_path / "train" / "x").mkdir(parents=True)
    (tmp_path / "train" / "x" / DONE).write_text("{")
    assert record_of(tmp_path, "train", "x") == {"energy": {"sessions": []}}


KILLED = """
import os, signal, sys, time
from pathlib import Path
from fitformer.stages import Stage, energy_sessions
def work(folder):
    while not energy_sessions(Path(sys.argv[1]), "supernet"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
Stage(Path(sys.argv[1]), "supernet").perform({}, work)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_session_that_was_killed_without_warning_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    (session,) = energy_sessions(tmp_path, "supernet")
    assert session["seconds"] > 0
    stage = Stage(tmp_path, "supernet")
    stage.perform({}, lambda folder: {})
    assert len(record_of(tmp_path, "supernet")["energy"]["sessions"]) == 2
