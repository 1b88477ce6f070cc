"""Reads a latency predictor that HAT's code saved: a state dict of linear layers, without normalisers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fitformer.errors import InputError
from fitformer.hat.checkpoint import read_pickled
from fitformer.latency.features import HAT_FEATURE_NAMES
from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM, Layer, MlpPredictor

_INNER = re.compile(r"layers\.(\d+)\.weight")
MOST_LAYERS = 100


def read_released_predictor(
    path: Path,
    *,
    lat_norm_ms: float,
    feature_norm: tuple[float, ...] = HAT_FEATURE_NORM,
    device: dict[str, Any] | None = None,
) -> MlpPredictor:
    """Read HAT's ``.pt``: ``first_layer``, ``layers.0`` and so on, ``predict``, each with weight and bias.

    Nothing in the file is ever run. The normalisers are not in it and cannot be guessed from it.

    Raises:
        InputError: the file is missing, truncated, hostile or something else, or a layer is missing or misshapen.
    """
    state = read_pickled(path)
    if not isinstance(state, dict) or not state:
        raise InputError(f"{path}: not a latency predictor of HAT (it holds no layers)")
    numbers = sorted(int(match[1]) for key in state if (match := _INNER.fullmatch(str(key))))
    if numbers != list(range(len(numbers))) or len(numbers) > MOST_LAYERS:
        raise InputError(f"{path}: not a latency predictor of HAT (layers are missing)")
    names = ["first_layer", *(f"layers.{number}" for number in numbers), "predict"]
    keys = [f"{name}.{part}" for name in names for part in ("weight", "bias")]
    if set(state) != set(keys):
        wrong = sorted(map(str, set(state) ^ set(keys)))
        raise InputError(
            f"{path}: not a latency predictor of HAT, which holds first_layer, layers.N and predict; "
            f"missing or unknown: {', '.join(wrong)[:120]}"
        )
    parts = {key: _numbers(path, key, state[key]) for key in keys}
    layers: tuple[Layer, ...] = tuple((parts[f"{name}.weight"], parts[f"{name}.bias"]) for name in names)
    inputs = layers[0][0].shape[1] if layers[0][0].ndim == 2 else 0
    if inputs != len(HAT_FEATURE_NAMES):
        raise InputError(f"{path}: a network of {inputs} features; HAT's predictors have {len(HAT_FEATURE_NAMES)}")
    try:
        return MlpPredictor(layers, feature_norm, lat_norm_ms, device or {})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _numbers(path: Path, key: str, value: Any) -> NDArray[np.float32]:
    good = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized
    if not good or not value.is_floating_point():
        raise InputError(f"{path}: {key} is no tensor of real numbers")
    # A view may claim any size of a few bytes, and would be written out in full.
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise InputError(f"{path}: {key} claims {value.numel():,} numbers and holds fewer")
    numbers: NDArray[np.float32] = value.detach().float().contiguous().numpy().copy()
    return numbers
