"""State and weights on disk: damage is one clear line, a full disk costs nothing that was saved before."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboardX.proto.event_pb2 import Event, SessionLog
from torch import Tensor

from fitformer import rundir
from fitformer.errors import InputError, NotPossibleError
from fitformer.training import loop
from fitformer.training.checkpoint import (
    STATE,
    WEIGHTS,
    Position,
    load_state,
    load_weights,
    read_tensors,
    save_state,
    unique_parameters,
    write_tensors,
)
from fitformer.training.logs import LOG, TrainingLog, read_log

MakeTraining = Callable[..., Any]


class Killed(BaseException):
    pass


@pytest.fixture
def unfinished(make_training: MakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a training that was killed after its fourth update."""

    def kill(update: int) -> None:
        if update == 5:
            raise Killed

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    training = make_training(average_last=2)
    training.on_select = kill
    with pytest.raises(Killed):
        training.run(tmp_path)
    assert read_tensors(tmp_path / STATE)[1]["update"] == 4
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*") if path.is_file()}


# -- damage -----------------------------------------------------------------------------------------------------------


def test_a_state_truncated_anywhere_is_one_line_and_stays_as_it_is(
    make_training: MakeTraining, unfinished: Path
) -> None:
    path = unfinished / STATE
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for length in (0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"state.safetensors: damaged .* --rerun") as caught:
            make_training(average_last=2).run(unfinished)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == whole[:length]
    path.write_bytes(whole)
    assert make_training(average_last=2).run(unfinished)["updates"] == 12


@pytest.mark.parametrize(
    "content",
    [b"\0" * 4096, b"\xff" * 64, b"not safetensors at all", (2).to_bytes(8, "little") + b"[]"],
    ids=["zeros", "ones", "text", "a list"],
)
def test_a_file_of_another_kind_is_one_line(make_training: MakeTraining, unfinished: Path, content: bytes) -> None:
    (unfinished / STATE).write_bytes(content)
    with pytest.raises(InputError, match=r"state\.safetensors: damaged"):
        make_training(average_last=2).run(unfinished)


def test_a_truncated_snapshot_is_one_line(make_training: MakeTraining, unfinished: Path) -> None:
    path = unfinished / "snapshot-4.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"snapshot-4\.safetensors: damaged"):
        make_training(average_last=3).run(unfinished)
    assert not (unfinished / WEIGHTS).exists()


def test_missing_weights_are_one_line(make_training: MakeTraining, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"weights\.safetensors: no such file"):
        load_weights(tmp_path / WEIGHTS, make_training().make_model())


# -- files of another model -------------------------------------------------------------------------------------------


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


@pytest.mark.parametrize("change", ["name", "shape", "missing"])
def test_a_state_of_another_model_is_refused(make_training: MakeTraining, unfinished: Path, change: str) -> None:
    tensors, metadata = read_tensors(unfinished / STATE)
    key = "model.decoder.norm.weight"
    value = tensors.pop(key)
    if change != "missing":
        tensors[key + "s" * (change == "name")] = value[:4].clone() if change == "shape" else value
    write_tensors(unfinished / STATE, tensors, metadata=metadata)
    model = make_training().make_model()
    with pytest.raises(
        InputError, match=r"state\.safetensors: belongs to another model; run the stage again with --rerun"
    ):
        load_state(unfinished, model, optimizer_of(model))


def test_a_state_without_a_position_is_refused(make_training: MakeTraining, unfinished: Path) -> None:
    """Else its weights would be trained from the first update on once more."""
    write_tensors(unfinished / STATE, read_tensors(unfinished / STATE)[0])
    model = make_training().make_model()
    with pytest.raises(InputError, match="belongs to another model"):
        load_state(unfinished, model, optimizer_of(model))


def test_weights_of_another_model_are_refused_with_the_first_difference(
    make_training: MakeTraining, tmp_path: Path
) -> None:
    model = make_training().make_model()
    tensors: dict[str, Tensor] = {**unique_parameters(model)}
    write_tensors(tmp_path / WEIGHTS, tensors)
    load_weights(tmp_path / WEIGHTS, model)
    write_tensors(tmp_path / WEIGHTS, {**tensors, "decoder.norm.bias": torch.zeros(3)})
    with pytest.raises(InputError, match=r"does not fit the model; first difference: decoder\.norm\.bias"):
        load_weights(tmp_path / WEIGHTS, model)


# -- round trips ------------------------------------------------------------------------------------------------------


def test_state_round_trips_weights_moments_and_position(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(supernet=True)
    model, task = training.make_model(), training.make_task()
    optimizer = optimizer_of(model)
    model.set_active(model.space.smallest())  # so that unused layers have no moments
    task.loss(model, task.batch(task.epoch(0)[0])).smoothed.backward()
    optimizer.step()
    position = Position(7, 1, 3, 999, 1.5, float("inf"), 2, [3, 6])
    save_state(tmp_path, model, optimizer, position)
    other = make_training(supernet=True).make_model()
    other_optimizer = optimizer_of(other)
    assert load_state(tmp_path, other, other_optimizer) == position
    moments = 0
    for name, parameter in unique_parameters(model).items():
        twin = other.get_parameter(name)
        assert torch.equal(twin, parameter)
        mine, theirs = optimizer.state.get(parameter, {}), other_optimizer.state.get(twin, {})
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[key]) for key, value in mine.items())
        moments += bool(mine)
    assert 0 < moments < len(unique_parameters(model))


def test_a_shared_table_is_stored_once(make_training: MakeTraining) -> None:
    names = set(unique_parameters(make_training().make_model()))
    assert "encoder.embed_tokens.weight" in names
    assert "decoder.embed_tokens.weight" not in names


def test_without_a_state_training_begins_at_the_beginning(make_training: MakeTraining, tmp_path: Path) -> None:
    model = make_training().make_model()
    assert load_state(tmp_path, model, optimizer_of(model)) == Position()


def test_metadata_travels_in_the_header(tmp_path: Path) -> None:
    facts = {"text": 'äöü "quoted"', "numbers": [1, 2.5], "nothing": None}
    write_tensors(tmp_path / "x.safetensors", {"a": torch.ones(2, 3).t()}, metadata=facts)
    tensors, again = read_tensors(tmp_path / "x.safetensors")
    assert again == facts
    assert torch.equal(tensors["a"], torch.ones(3, 2))


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_weights_can_be_read_by_others(tmp_path: Path) -> None:
    """safetensors puts a private file of its own in place of the one it is given."""
    write_tensors(tmp_path / WEIGHTS, {"a": torch.ones(2)})
    assert (tmp_path / WEIGHTS).stat().st_mode & 0o777 == 0o644


# -- a full disk ------------------------------------------------------------------------------------------------------


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_while_saving_leaves_the_state_before_loadable(
    make_training: MakeTraining, unfinished: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    before = contents(unfinished)
    training = make_training(average_last=2)
    training.on_select = lambda update: monkeypatch.setattr(rundir.os, function, refuse)
    with pytest.raises(NotPossibleError, match="no space left on the disk; nothing was overwritten") as caught:
        training.run(unfinished)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    after = contents(unfinished)
    assert after.pop(LOG).startswith(before.pop(LOG))
    assert after == before
    assert make_training(average_last=2).run(unfinished)["updates"] == 12


def test_a_full_disk_while_logging_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(NotPossibleError, match=r"log\.jsonl: no space left on the disk"),
        TrainingLog(tmp_path, update=0) as log,
    ):
        log.write(1, loss=1.0)
        log._stream.close()
        monkeypatch.setattr(log, "_stream", FullStream())
        log.write(2, loss=2.0)
    assert [line["update"] for line in read_log(tmp_path)] == [1]


def test_a_full_disk_under_tensorboard_ends_the_training_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tensorboardX's own writer it ends a thread, and after some more figures the training waits for ever."""
    with (
        pytest.raises(NotPossibleError, match="no space left on the disk") as caught,
        TrainingLog(tmp_path, update=0) as log,
    ):
        log.write(1, loss=1.0, valid={"largest": 2.0})
        monkeypatch.setattr(log._board._records, "flush", refuse)
        for update in range(2, 40):
            log.write(update, loss=1.0)
    assert "\n" not in str(caught.value)
    assert [line["update"] for line in read_log(tmp_path)] == [1, 2]


def test_tensorboard_gets_every_figure_and_hides_what_a_killed_run_left(tmp_path: Path) -> None:
    with TrainingLog(tmp_path, update=0) as log:
        log.write(50, loss=1.5, valid={"largest": 2.0})
        log.write(100, loss=1.25)
    with TrainingLog(tmp_path, update=50) as log:
        log.write(100, loss=1.0)
    first, second = (list(events(path)) for path in sorted((tmp_path / "tensorboard").iterdir()))
    assert [event.file_version for event in (first[0], second[0])] == ["brain.Event:2"] * 2
    assert [(e.step, v.tag, v.simple_value) for e in first for v in e.summary.value] == [
        (50, "loss", 1.5),
        (50, "valid/largest", 2.0),
        (100, "loss", 1.25),
    ]
    assert (second[1].session_log.status, second[1].step) == (SessionLog.START, 51)


def events(path: Path) -> Iterator[Event]:
    """The records of an event file: length, its checksum, content, its checksum."""
    data = path.read_bytes()
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        yield Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]


class FullStream:
    """A file on a full disk; what could not be written is tried again on closing, as real ones do."""

    flush = close = staticmethod(refuse)

    def write(self, text: str) -> int:
        return len(text)


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from fitformer.errors import NotPossibleError
from fitformer.training.checkpoint import read_tensors, write_tensors
path = Path(sys.argv[1])
write_tensors(path, {"a": torch.zeros(10)}, metadata={"update": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    write_tensors(path, {"a": torch.zeros(100_000)}, metadata={"update": 2})
except NotPossibleError as error:
    print(error)
"""


def test_a_write_that_the_system_refuses_midway_is_one_line_and_changes_nothing(
    repository: Path, tmp_path: Path
) -> None:
    """A real refusal, by a limit on file sizes: safetensors has its own way to report it."""
    pytest.importorskip("resource")
    path = tmp_path / "folder" / STATE
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", LIMITED, str(path)]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{path}: cannot be written (")
    assert read_tensors(path)[1] == {"update": 1}
    assert [item.name for item in path.parent.iterdir()] == [STATE]


# -- the log ----------------------------------------------------------------------------------------------------------


def test_a_continued_log_drops_what_came_after_the_state(tmp_path: Path) -> None:
    lines = [{"update": update, "loss": 1.0} for update in (1, 2, 3, 3, 4)]
    (tmp_path / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"update": 5, "lo')
    assert read_log(tmp_path) == lines
    with TrainingLog(tmp_path, update=3) as log:
        log.write(4, loss=2.0)
    assert [(line["update"], line["loss"]) for line in read_log(tmp_path)] == [(1, 1), (2, 1), (3, 1), (3, 1), (4, 2)]


def test_a_log_that_was_never_begun_is_empty(tmp_path: Path) -> None:
    assert read_log(tmp_path) == []


def test_only_a_damaged_state_is_to_be_deleted(tmp_path: Path) -> None:
    """A finished stage is not done again because its weights are gone."""
    for name, hint in ((STATE, True), (WEIGHTS, False)):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match=r"damaged .* use --rerun") as caught:
            read_tensors(tmp_path / name)
        assert ("delete it" in str(caught.value)) == hint
