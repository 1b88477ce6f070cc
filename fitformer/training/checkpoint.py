"""The state of an unfinished training: one file, written atomically, from which it continues bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import atomic_path

STATE = "state.safetensors"
WEIGHTS = "weights.safetensors"


@dataclass
class Position:
    """Where a training stands: all of the loop's state that is not a tensor."""

    update: int = 0
    epoch: int = 0
    next_batch: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    best_loss: float = float("inf")
    validations_since_best: int = 0
    snapshots: list[int] = field(default_factory=list)


def save_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, position: Position) -> None:
    """Write weights, optimizer moments and position to ``folder/state.safetensors``."""
    tensors: dict[str, Tensor] = {f"model.{name}": value for name, value in unique_parameters(model).items()}
    for name, parameter in unique_parameters(model).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{key}"] = value
    write_tensors(folder / STATE, tensors, metadata=asdict(position))


def load_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Position:
    """Continue from ``folder/state.safetensors``, or from the beginning when there is none.

    Raises:
        InputError: the file is damaged or belongs to another model.
    """
    path = folder / STATE
    if not path.exists():
        return Position()
    tensors, metadata = read_tensors(path)
    parameters = unique_parameters(model)
    stored = {name: tuple(value.shape) for name, value in tensors.items() if name.startswith("model.")}
    wanted = {f"model.{name}": tuple(value.shape) for name, value in parameters.items()}
    if stored != wanted or metadata.keys() != asdict(Position()).keys():
        raise InputError(f"{path}: belongs to another model; run the stage again with --rerun")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"model.{name}"])
    for name, parameter in parameters.items():
        prefix = f"optimizer.{name}."
        entries = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
        if entries:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in entries.items()}
    return Position(**metadata)


def unique_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, a shared one under its first name only."""
    return dict(model.named_parameters())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: dict[str, Any] | None = None) -> None:
    """Write a safetensors file atomically; ``metadata`` travels in its header as JSON.

    Raises:
        NotPossibleError: the disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        with atomic_path(path) as temporary:
            save_file(contiguous, temporary, metadata={"json": json.dumps(metadata or {})})
    except SafetensorError as error:  # what safetensors makes of the system's refusal to write
        raise NotPossibleError(f"{path}: cannot be written ({error}); nothing was overwritten") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file and its metadata.

    Raises:
        InputError: the file is missing, truncated or otherwise damaged.
    """
    try:
        with safe_open(path, framework="pt") as stream:
            metadata = stream.metadata() or {}
        return load_file(path), json.loads(metadata.get("json", "{}"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; use --rerun for the stage that made it") from None
    except (SafetensorError, ValueError, OSError) as error:
        # A finished stage is not done again for want of its weights, an unfinished one begins anew without its state.
        way_out = "delete it to begin this training anew, or " if path.name == STATE else ""
        raise InputError(f"{path}: damaged ({error}); {way_out}use --rerun for the stage that made it") from None


def load_weights(path: Path, model: nn.Module) -> None:
    """Load a model's weights from a safetensors file.

    Raises:
        InputError: the file is damaged or its names or shapes do not fit the model.
    """
    tensors, _ = read_tensors(path)
    parameters = unique_parameters(model)
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    wanted = {name: tuple(value.shape) for name, value in parameters.items()}
    if shapes != wanted:
        wrong = sorted(name for name in shapes.keys() | wanted.keys() if shapes.get(name) != wanted.get(name))
        raise InputError(f"{path}: does not fit the model; first difference: {wrong[0]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
