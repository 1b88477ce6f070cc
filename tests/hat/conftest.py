"""Checkpoints of the original HAT: the genuine toy one, those of the fixtures, and files made from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fitformer.hat.checkpoint import Checkpoint, read_checkpoint, read_pickled

LoadFixture = Callable[[str], dict[str, Any]]
SaveCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def load_fixture(shared_data: Path) -> LoadFixture:
    """A tiny SuperTransformer with what the original computed with it, by name."""

    def load(name: str) -> dict[str, Any]:
        path = shared_data / "hat" / "fixtures" / f"{name}.pt"
        if not path.exists():
            pytest.skip(f"no {path}: HAT's fixtures are not in FITFORMER_DATA")
        content: dict[str, Any] = read_pickled(path)
        return content

    return load


@pytest.fixture(scope="session")
def toy(shared_data: Path) -> Path:
    """The folder of the genuine toy checkpoint, its dictionaries and texts."""
    folder = shared_data / "hat" / "fixtures" / "toy_checkpoint"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: HAT's fixtures are not in FITFORMER_DATA")
    return folder


@pytest.fixture(scope="session")
def toy_checkpoint(toy: Path) -> Checkpoint:
    return read_checkpoint(toy / "checkpoint_last.pt")


@pytest.fixture
def save_checkpoint(tmp_path: Path) -> SaveCheckpoint:
    """Write a checkpoint file as the original training does; ``zipped`` or as PyTorch did before 1.6."""

    def save(args: Mapping[str, Any], weights: Mapping[str, Tensor], *, zipped: bool = True, **more: Any) -> Path:
        content = {"args": argparse.Namespace(**args), "model": dict(weights), "optimizer_history": [], **more}
        torch.save(content, tmp_path / "made.pt", _use_new_zipfile_serialization=zipped)
        return tmp_path / "made.pt"

    return save
