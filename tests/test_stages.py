"""Bookkeeping of a run: skip what is done, go on with what was begun, refuse contradictions, one process at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fitformer import rundir
from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import read_json
from fitformer.stages import DONE, STAGES, STARTED, Stage, forget, locked

INPUTS: dict[str, Any] = {"supernet": {"updates": 10, "betas": (0.9, 0.98)}, "seed": 1, "prepare": "abc"}


class Killed(BaseException):
    pass


def work(folder: Path) -> dict[str, Any]:
    (folder / "result").write_text("x")
    return {"loss": 1.5}


def never(folder: Path) -> dict[str, Any]:
    raise AssertionError("it was to be skipped")


def killed(folder: Path) -> dict[str, Any]:
    raise Killed


def test_a_stage_is_done_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path, "supernet")
    assert not stage.is_done
    assert stage.perform(INPUTS, work) == {"loss": 1.5}
    assert stage.is_done
    assert stage.perform(INPUTS, never) == {"loss": 1.5}
    assert stage.facts == {"loss": 1.5}
    assert (tmp_path / "supernet" / "result").exists()
    assert not (tmp_path / "supernet" / STARTED).exists()
    assert capsys.readouterr().err.splitlines() == ["supernet: finished in 0 s", "supernet: done before"]


def test_the_record_has_its_promised_keys(tmp_path: Path) -> None:
    Stage(tmp_path, "supernet").perform(INPUTS, work)
    record = read_json(tmp_path / "supernet" / DONE)
    assert set(record) >= {"inputs", "facts", "seconds", "finished"}
    assert record["inputs"] == {**INPUTS, "supernet": {"updates": 10, "betas": [0.9, 0.98]}}


def test_a_stage_with_parts_has_a_folder_per_part(tmp_path: Path) -> None:
    first, second = Stage(tmp_path, "search", "cpu@50%"), Stage(tmp_path, "search", "cpu@5ms")
    first.perform(INPUTS, work)
    assert (first.folder, first.title) == (tmp_path / "search" / "cpu@50%", "search cpu@50%")
    assert first.is_done
    assert not second.is_done
    assert Stage(tmp_path, "prepare").title == "prepare"


def test_the_seconds_are_those_that_the_work_counted_over_all_sessions(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "supernet")
    stage.perform(INPUTS, lambda folder: {"seconds": 1234.56})
    assert stage.seconds == 1234.6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 2}, "seed: is 2, but supernet was finished with 1 in "),
        (
            {"supernet": {"updates": 20, "betas": [0.9, 0.98]}},
            "supernet.updates: is 20, but supernet was finished with 10",
        ),
        ({"supernet": {"updates": 10, "betas": [0.9, 0.99]}}, "supernet.betas: is [0.9, 0.99], but"),
        (
            {"supernet": {"updates": 10, "betas": [0.9, 0.98], "new": 1}},
            "supernet.new: is 1, but supernet was finished with None",
        ),
        ({"supernet": {"betas": [0.9, 0.98]}}, "supernet.updates: is None, but supernet was finished with 10"),
        ({"prepare": "abd"}, "prepare: is 'abd', but"),
        ({"more": True}, "more: is True, but"),
    ],
)
def test_changed_inputs_of_a_finished_stage_are_refused_with_the_setting_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    stage = Stage(tmp_path, "supernet")
    stage.perform(INPUTS, work)
    before = (stage.folder / DONE).read_bytes()
    with pytest.raises(InputError) as caught:
        stage.perform({**INPUTS, **changes}, never)
    assert str(caught.value).startswith(message)
    assert "nothing was changed; use --rerun supernet" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (stage.folder / DONE).read_bytes() == before
    assert {path.name for path in stage.folder.iterdir()} == {DONE, "result"}


def test_of_several_changes_the_first_setting_is_named(tmp_path: Path) -> None:
    stage, names = Stage(tmp_path, "supernet"), [f"setting{i}" for i in range(20)]
    stage.perform(dict.fromkeys(names, 1), work)
    with pytest.raises(InputError, match=r"^setting3: is 2"):
        stage.perform({name: 1 if i < 3 else 2 for i, name in enumerate(names)}, never)


def test_changed_inputs_of_a_begun_stage_are_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "supernet")
    with pytest.raises(Killed):
        stage.perform(INPUTS, killed)
    with pytest.raises(InputError, match="seed: is 2, but supernet was begun with 1"):
        stage.perform({**INPUTS, "seed": 2}, never)
    assert stage.perform(INPUTS, work) == {"loss": 1.5}


def test_a_begun_stage_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(tmp_path, "supernet")
    for _ in range(2):
        with pytest.raises(Killed):
            stage.perform(INPUTS, killed)
        assert not stage.is_done
    stage.perform(INPUTS, work)
    assert "supernet: continues" in capsys.readouterr().err
    assert len(read_json(stage.folder / DONE)["sessions"]) == 3


def test_paths_and_tuples_are_the_same_inputs_when_read_back(tmp_path: Path) -> None:
    stage, inputs = Stage(tmp_path, "prepare"), {"files": {"a": Path("/x/a.en")}, "sizes": (1, 2), "none": None}
    stage.perform(inputs, work)
    assert stage.perform(inputs, never) == {"loss": 1.5}


@pytest.mark.parametrize("name", [DONE, STARTED])
def test_a_damaged_record_is_named(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path, "supernet")
    stage.folder.mkdir()
    (stage.folder / name).write_text('{"inputs": {')
    with pytest.raises(InputError, match=rf"supernet/{name}: not a whole JSON file"):
        stage.perform(INPUTS, never)


def test_the_identity_follows_from_the_inputs_alone(tmp_path: Path) -> None:
    def identity(run: str, inputs: dict[str, Any], facts: dict[str, Any]) -> str:
        stage = Stage(tmp_path / run, "supernet")
        stage.perform(inputs, lambda folder: facts)
        return stage.identity

    first = identity("a", INPUTS, {"loss": 1.0})
    assert identity("b", dict(reversed(INPUTS.items())), {"loss": 2.0}) == first
    assert identity("c", {**INPUTS, "seed": 2}, {"loss": 1.0}) != first


def test_killed_at_any_write_the_next_try_finishes(tmp_path: Path) -> None:
    for seed in range(30):
        rng, stage, tries = random.Random(seed), Stage(tmp_path / str(seed), "supernet"), 0
        results = []
        while not results:
            tries += 1
            assert tries < 200
            with pytest.MonkeyPatch.context() as patch:
                for name in ("replace", "fsync"):
                    patch.setattr(rundir.os, name, deadly(getattr(os, name), rng))
                try:
                    results.append(stage.perform(INPUTS, work))
                except Killed:
                    continue
        assert results == [{"loss": 1.5}]
        assert stage.perform(INPUTS, never) == {"loss": 1.5}
        assert {path.name for path in stage.folder.iterdir()} <= {DONE, STARTED, "result"}


def deadly(function: Callable[..., Any], rng: random.Random) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if rng.random() < 0.1:
            raise Killed
        result = function(*args)
        if rng.random() < 0.1:
            raise Killed
        return result

    return call


# -- rerun ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_forgetting_a_stage_deletes_it_and_later_ones_only(tmp_path: Path, stage: str) -> None:
    for name in STAGES:
        (tmp_path / name / "cpu@5ms").mkdir(parents=True)
        (tmp_path / name / "cpu@5ms" / "result").write_text("x")
    (tmp_path / "recipe.yaml").write_text("x")
    (tmp_path / "notes of the user").mkdir()
    forget(tmp_path, stage)
    kept = set(STAGES[: STAGES.index(stage)])
    assert {path.name for path in tmp_path.iterdir()} == kept | {"recipe.yaml", "notes of the user"}


def test_forgetting_what_was_never_done_is_no_error(tmp_path: Path) -> None:
    forget(tmp_path / "none", "search")


def test_an_unknown_stage_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--rerun: no stage 'serch' \(did you mean 'search'\?\); stages: prepare, "):
        forget(tmp_path, "serch")


def test_a_forgotten_stage_takes_new_inputs(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "supernet")
    stage.perform(INPUTS, work)
    forget(tmp_path, "supernet")
    assert stage.perform({**INPUTS, "seed": 2}, work) == {"loss": 1.5}


# -- the lock ---------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from fitformer.stages import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
linux_locks = pytest.mark.skipif(os.name != "posix", reason="advisory locks")


@contextmanager
def another_process(run: Path, repository: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its standard input ends."""
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", HOLD, str(run)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@linux_locks
def test_a_second_process_is_kept_out_until_the_first_ends(tmp_path: Path, repository: Path) -> None:
    run = tmp_path / "new" / "run"
    with another_process(run, repository) as process:
        with (
            pytest.raises(NotPossibleError, match="another fitformer process works in this folder") as caught,
            locked(run),
        ):
            pass
        assert str(run) in str(caught.value)
        process.communicate()
    with locked(run):
        pass


@linux_locks
def test_kill_9_releases_the_lock(tmp_path: Path, repository: Path) -> None:
    with another_process(tmp_path, repository) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locked(tmp_path):
            pass


@linux_locks
def test_an_error_releases_the_lock_and_passes(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(InputError, match="mine"), locked(tmp_path):
            raise InputError("mine")


def test_a_run_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(NotPossibleError, match="run: cannot be written"), locked(tmp_path / "run"):
        pass


def test_a_wrong_input_of_a_new_stage_leaves_no_trace_to_contradict_the_corrected_one(tmp_path: Path) -> None:
    def refuse(folder: Path) -> dict[str, Any]:
        (folder / "half").write_text("x")
        raise InputError("nope.txt: no such file")

    stage = Stage(tmp_path, "prepare")
    with pytest.raises(InputError, match="no such file"):
        stage.perform({"files": "nope.txt"}, refuse)
    assert not stage.folder.exists()
    assert stage.perform({"files": "text.txt"}, work) == {"loss": 1.5}


def test_a_wrong_input_deletes_nothing_of_a_stage_that_was_begun_before(tmp_path: Path) -> None:
    def refuse(folder: Path) -> dict[str, Any]:
        raise InputError("state: damaged")

    stage = Stage(tmp_path, "supernet")
    with pytest.raises(Killed):
        stage.perform(INPUTS, killed)
    (stage.folder / "state").write_text("x")
    with pytest.raises(InputError, match="damaged"):
        stage.perform(INPUTS, refuse)
    assert (stage.folder / "state").exists() and (stage.folder / STARTED).exists()


@pytest.mark.parametrize("name", [DONE, STARTED])
def test_a_truncated_record_says_how_to_go_on(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path, "search", "cpu@5ms")
    stage.perform(INPUTS, work)
    (stage.folder / DONE).rename(stage.folder / name)
    (stage.folder / name).write_text('{"inp')
    with pytest.raises(InputError, match=rf"{name}: not a whole JSON file .*; use --rerun search"):
        stage.perform(INPUTS, never)


def test_a_setting_that_an_older_version_did_not_know_had_its_default(tmp_path: Path) -> None:
    Stage(tmp_path, "train").perform({"train": {"updates": 5}}, lambda folder: {})
    newer = Stage(tmp_path, "train", defaults={"train": {"updates": 9, "teacher": None}, "cost": {"watts": 65}})
    assert newer.perform({"train": {"updates": 5, "teacher": None}}, fail) == {}
    with pytest.raises(InputError, match=r"train.teacher: is 'x', but train was finished with None"):
        newer.perform({"train": {"updates": 5, "teacher": "x"}}, fail)
    with pytest.raises(InputError, match=r"train.updates: is 9, but train was finished with 5"):
        newer.perform({"train": {"updates": 9, "teacher": None}}, fail)


def test_a_setting_that_no_longer_counts_may_change(tmp_path: Path) -> None:
    Stage(tmp_path, "compress").perform({"export": {"beam": 4, "check_sentences": 200}}, lambda folder: {})
    newer = Stage(tmp_path, "compress", defaults={"export": {"beam": 4, "check_sentences": 200}})
    assert newer.perform({"export": {"beam": 4}}, fail) == {}
    with pytest.raises(InputError, match=r"export.beam: is 5, but compress was finished with 4"):
        newer.perform({"export": {"beam": 5}}, fail)
    unknown = Stage(tmp_path, "compress", defaults={"export": {"beam": 4}})
    with pytest.raises(InputError, match=r"export.check_sentences: is None"):  # no setting of ours: not to be ignored
        unknown.perform({"export": {"beam": 4}}, fail)


def test_an_input_that_came_later_counts_once_it_is_recorded(tmp_path: Path) -> None:
    stage, other = Stage(tmp_path, "export"), Stage(tmp_path, "compress")
    stage.perform({"beam": 4}, lambda folder: {})
    assert stage.perform({"beam": 4, "device": {"threads": 2}}, fail, later=("device",)) == {}
    with pytest.raises(InputError, match=r"device: is .*'threads': 2"):
        stage.perform({"beam": 4, "device": {"threads": 2}}, fail)
    other.perform({"beam": 4, "device": {"threads": 1}}, lambda folder: {}, later=("device",))
    with pytest.raises(InputError, match=r"device.threads: is 2, but compress was finished with 1"):
        other.perform({"beam": 4, "device": {"threads": 2}}, fail, later=("device",))


def fail(folder: Path) -> dict[str, object]:
    raise AssertionError("done before, so it must not be done again")
