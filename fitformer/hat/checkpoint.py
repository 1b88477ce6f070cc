"""Opens checkpoints of the original HAT (and the fairseq 0.8 within it) without running anything that is in them.

Such a file is a pickle, and a pickle can call any function on loading. PyTorch's own restricted reader
(``weights_only``) builds tensors and plain values only; beside them it is allowed the one class that holds the
arguments, and empty stand-ins for the counters that the training loop left, which are not looked at. Both containers
are read: the zip of today and the one that PyTorch wrote before 1.6.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fitformer.errors import InputError
from fitformer.hat.options import dashed

REASON = 160  # characters of another library's error that are passed on

# What the training loop leaves beside the weights: counters, and numbers of NumPy.
_IGNORED = (
    "fairseq.meters.AverageMeter",
    "fairseq.meters.TimeMeter",
    "fairseq.meters.StopwatchMeter",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
)


@dataclass(frozen=True)
class Checkpoint:
    """What is used of a checkpoint.

    Attributes:
        path: the file, for messages.
        args: options of the training, with underscores.
        weights: tensors under the original's names, as they are stored (half or single precision).
    """

    path: Path
    args: Mapping[str, Any]
    weights: Mapping[str, Tensor]

    @property
    def sub_options(self) -> dict[str, Any]:
        """The options of the SubTransformer that was trained, as in its configuration; none for a SuperTransformer."""
        return {
            dashed(key): value
            for key, value in self.args.items()
            if key.endswith("_subtransformer") and not key.startswith(("train_", "validate_")) and value is not None
        }


def read_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint of HAT.

    Raises:
        InputError: the file is missing, truncated, no checkpoint, or would run code on loading (it does not here).
    """
    content = read_pickled(path)
    if not isinstance(content, dict) or not {"args", "model"} <= set(content):
        found = f"it holds {', '.join(map(str, list(content)[:4]))}" if isinstance(content, dict) and content else ""
        raise InputError(
            f"{path}: not a checkpoint of HAT, which has 'args' and 'model'" + (f"; {found}"[:REASON] if found else "")
        )
    args, weights = content["args"], content["model"]
    if not isinstance(args, argparse.Namespace) or not all(isinstance(key, str) for key in vars(args)):
        raise InputError(f"{path}: not a checkpoint of HAT ('args' is no list of options)")
    if not isinstance(weights, dict) or not weights:
        raise InputError(f"{path}: not a checkpoint of HAT ('model' holds no weights)")
    for name, value in weights.items():
        _check_tensor(path, name, value)
    return Checkpoint(path, vars(args), weights)


def read_pickled(path: Path) -> Any:
    """What ``torch.save`` wrote into a file, if it is plain values and tensors, HAT's arguments and counters.

    Raises:
        InputError: the file is missing, truncated, something else, or would run code on loading (it does not here).
    """
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise InputError(f"{path}: the file is empty")
        # Opened here, so that what the system refuses is told from what the content is.
        with path.open("rb") as stream, warnings.catch_warnings(), torch.serialization.safe_globals(_allowed()):
            warnings.simplefilter("ignore")  # about old containers, which are what is expected here
            return _load(path, stream)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _load(path: Path, stream: Any) -> Any:
    try:
        return torch.load(stream, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the bytes lead to: the reader has no error class of its own
        asked = re.search(r"GLOBAL (\S+)|reduce for unrecognized function (\S.*)", str(error))
        if asked:
            what = (asked[1] or asked[2]).rstrip(".,")[:REASON]
            raise InputError(
                f"{path}: refused: loading it would call {what}, which no checkpoint of HAT needs; nothing was run"
            ) from None
        reason = str(error).rpartition("WeightsUnpickler error:")[2].strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path}: not a whole checkpoint of PyTorch ({reason[0][:REASON]}); is the copy complete?"
        ) from None


class _Ignored:
    """Stands in for a class that a checkpoint names, and forgets what it is given."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


def _allowed() -> list[Any]:
    """What a checkpoint may name beside PyTorch's own list: arguments, and stand-ins that do nothing."""
    return [argparse.Namespace, *((_Ignored, name) for name in _IGNORED)]


def _check_tensor(path: Path, name: object, value: object) -> None:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        raise InputError(f"{path}: 'model' holds something that is no tensor ({str(name)[:REASON]})")
    if value.layout is not torch.strided or value.is_quantized or not value.is_floating_point():
        raise InputError(f"{path}: {name}: not a plain tensor of real numbers ({value.dtype})")
    # A view may claim any size of a few bytes, and would be written out in full.
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise InputError(f"{path}: {name}: claims {value.numel():,} numbers and holds fewer")
