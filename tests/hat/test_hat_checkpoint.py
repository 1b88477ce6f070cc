"""Checkpoint files of HAT are opened without running anything in them, or refused in one line."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import random
import re
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fitformer.errors import InputError
from fitformer.hat.checkpoint import Checkpoint, read_checkpoint, read_pickled

ARGS = {"arch": "transformersuper_iwslt_de_en", "qkv_dim": 32}
WEIGHTS = {"encoder.embed_tokens.weight": torch.arange(12.0).reshape(6, 2)}
SaveCheckpoint = Callable[..., Path]


class Touch:
    """On loading, makes a file: what any command could be."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.marker}'",)


class Evaluate(Touch):
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (f"open({str(self.marker)!r}, 'w').close()",)


class Hidden(argparse.Namespace):
    """Arguments with a class of their own."""


def message(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_checkpoint(path)
    text = str(caught.value)
    assert text.startswith(str(path)) and "\n" not in text and len(text) < 500
    return text


def test_the_genuine_checkpoint_is_read(toy_checkpoint: Checkpoint) -> None:
    assert toy_checkpoint.args["qkv_dim"] == 32 and toy_checkpoint.args["encoder_embed_choice"] == [40, 32]
    assert len(toy_checkpoint.weights) == 97 and toy_checkpoint.sub_options == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_both_containers_and_precisions_are_read(
    save_checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch, zipped: bool, dtype: torch.dtype
) -> None:
    """With what else the original training leaves in the file: counters of a module that is not installed."""
    meters: Any = types.ModuleType("fairseq.meters")
    meters.TimeMeter = type("TimeMeter", (), {"__module__": "fairseq.meters"})
    meters.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)
    counter = meters.TimeMeter()
    counter.n, counter.mean = 3, meters.AverageMeter()
    weights = {name: value.to(dtype) for name, value in WEIGHTS.items()}
    extra = {"train_meters": {"wps": counter}, "best": torch.tensor(1.0).numpy()[()]}
    path = save_checkpoint(ARGS, weights, zipped=zipped, extra_state=extra)
    assert zipfile.is_zipfile(path) == zipped
    monkeypatch.delitem(sys.modules, "fairseq.meters")
    monkeypatch.delitem(sys.modules, "fairseq")
    found = read_checkpoint(path)
    assert dict(found.args) == ARGS
    assert found.weights["encoder.embed_tokens.weight"].dtype == dtype
    assert torch.equal(found.weights["encoder.embed_tokens.weight"].float(), WEIGHTS["encoder.embed_tokens.weight"])
    assert "fairseq" not in sys.modules


@pytest.mark.parametrize("place", ["args", "model", "extra_state", "everything"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(("hostile", "name"), [(Touch, "system"), (Evaluate, "eval")])
def test_nothing_runs_on_loading(
    save_checkpoint: SaveCheckpoint, tmp_path: Path, place: str, zipped: bool, hostile: type[Touch], name: str
) -> None:
    marker = tmp_path / "marker"
    bad = hostile(marker)
    args = ARGS | ({"dropout": bad} if place == "args" else {})
    weights: dict[str, Any] = WEIGHTS | ({"decoder.embed_out": bad} if place == "model" else {})
    path = save_checkpoint(args, weights, zipped=zipped, extra_state=bad if place == "extra_state" else {})
    if place == "everything":
        torch.save(bad, path, _use_new_zipfile_serialization=zipped)
    text = message(path)
    assert "refused" in text and name in text and "nothing was run" in text
    assert not marker.exists()
    torch.load(path, weights_only=False)  # what the file would have done
    assert marker.exists()


def test_a_bare_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "bare.pt"
    path.write_bytes(pickle.dumps({"args": argparse.Namespace(**ARGS), "model": Touch(marker)}, protocol=2))
    assert "checkpoint" in message(path)
    assert not marker.exists()


def test_only_the_plain_class_of_arguments_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "class.pt"
    torch.save({"args": Hidden(**ARGS), "model": WEIGHTS}, path)
    assert "Hidden" in message(path)
    torch.save({"args": ARGS, "model": WEIGHTS}, path)
    assert "'args' is no list of options" in message(path)


def test_arguments_cannot_reach_beyond_the_options(tmp_path: Path) -> None:
    """A namespace may be given any attribute; they stay entries of a dictionary."""
    args = argparse.Namespace()
    vars(args).update(ARGS | {"__class__": "x", "__reduce__": [1], "__dict__": {"a": 1}})
    torch.save({"args": args, "model": WEIGHTS}, path := tmp_path / "reach.pt")
    assert read_checkpoint(path).args["__class__"] == "x"
    assert not hasattr(argparse.Namespace(), "qkv_dim")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_file_cut_or_changed_is_one_line_or_still_read(save_checkpoint: SaveCheckpoint, zipped: bool) -> None:
    path = save_checkpoint(ARGS, WEIGHTS | {f"w{i}": torch.ones(50) for i in range(5)}, zipped=zipped)
    content, rng = path.read_bytes(), random.Random(3)
    for length in sorted(rng.randrange(len(content)) for _ in range(25)):
        path.write_bytes(content[:length])
        message(path)
    for _ in range(60):
        changed = bytearray(content)
        changed[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            read_checkpoint(path)
        except InputError as error:
            assert "\n" not in str(error)


def test_what_is_no_checkpoint_is_said_so(tmp_path: Path, save_checkpoint: SaveCheckpoint) -> None:
    path = tmp_path / "file.pt"
    assert message(path).endswith("no such file")
    assert "cannot be read" in message(tmp_path)
    path.touch()
    assert message(path).endswith("the file is empty")
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "not a whole checkpoint of PyTorch" in message(path)
    for content, expected in (
        ([1, 2], "which has 'args' and 'model'"),
        ({"state_dict": {}, "epoch": 3}, "it holds state_dict, epoch"),
        ({"args": argparse.Namespace(), "model": {}}, "'model' holds no weights"),
        ({"args": argparse.Namespace(), "model": {"a": 1}}, "holds something that is no tensor (a)"),
        ({"args": argparse.Namespace(), "model": {1: torch.ones(1)}}, "holds something that is no tensor (1)"),
        ({"args": argparse.Namespace(), "model": {"a": torch.ones(2, dtype=torch.int64)}}, "torch.int64"),
    ):
        torch.save(content, path)
        assert expected in message(path)


def test_a_tensor_cannot_claim_more_numbers_than_the_file_has(save_checkpoint: SaveCheckpoint) -> None:
    huge: Tensor = torch.zeros(1).expand(1 << 20, 1 << 20)
    assert "claims 1,099,511,627,776 numbers" in message(save_checkpoint(ARGS, {"fc1.weight": huge}))
    sparse = torch.eye(3).to_sparse()
    assert re.search(r"fc1.weight: not a plain tensor", message(save_checkpoint(ARGS, {"fc1.weight": sparse})))


def test_plain_values_of_any_kind_are_read(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.save({"a": (1, 2.5, None, True, "x"), "t": torch.ones(2)}, stream)
    (tmp_path / "plain.pt").write_bytes(stream.getvalue())
    assert read_pickled(tmp_path / "plain.pt")["a"] == (1, 2.5, None, True, "x")
