"""HAT's latency predictor, a small network of ReLU layers on ten averages, as numbers and NumPy: no PyTorch needed.

HAT's own files hold the weights alone, and whoever pairs them with other normalisers gets nonsense. The file here
holds weights, normalisers, the names of the features and the device.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitformer.errors import InputError
from fitformer.latency.features import HAT_FEATURE_NAMES, Floats, hat_features
from fitformer.latency.records import Conditions
from fitformer.rundir import read_json, write_json
from fitformer.space import Architecture

FORMAT_VERSION = 1
KIND = "hat mlp"
MOST_WEIGHTS = 100_000_000
# The divisors of HAT's released predictors; lat_norm is 200 (TITAN Xp), 300 (Xeon) or 5000 (Raspberry Pi).
HAT_FEATURE_NORM = (640.0, 6.0, 2048.0, 6.0, 640.0, 6.0, 2048.0, 6.0, 6.0, 2.0)

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]  # weight [out, in], bias [out]


@dataclass(frozen=True)
class MlpPredictor:
    """A feed-forward network; milliseconds = network(averages / feature_norm) * lat_norm_ms.

    Attributes:
        layers: weight [out, in] and bias [out] of each layer; ReLU between them, one output.
        feature_norm: divisor of each of ``HAT_FEATURE_NAMES``.
        lat_norm_ms: what the network's output is multiplied with.
        device: facts of the device that the latencies are of.

    Raises:
        InputError: shapes that do not fit together, or a number that is none.
    """

    layers: tuple[Layer, ...]
    feature_norm: tuple[float, ...]
    lat_norm_ms: float
    device: dict[str, Any] = field(default_factory=dict)

    conditions: Conditions | None = None  # HAT's files do not hold them

    def __post_init__(self) -> None:
        width = len(HAT_FEATURE_NAMES)
        if len(self.feature_norm) != width or not all(math.isfinite(n) and n > 0 for n in self.feature_norm):
            raise InputError(f"feature_norm must be {width} numbers above 0, one for each of HAT's features")
        if not math.isfinite(self.lat_norm_ms) or self.lat_norm_ms <= 0:
            raise InputError(f"lat_norm: {self.lat_norm_ms:g} must be a number above 0, in milliseconds")
        if not self.layers:
            raise InputError("a network without layers")
        for number, (weight, bias) in enumerate(self.layers, start=1):
            if weight.ndim != 2 or bias.shape != weight.shape[:1] or weight.shape[1] != width:
                raise InputError(
                    f"layer {number}: weight {list(weight.shape)} and bias {list(bias.shape)} do not fit {width} inputs"
                )
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise InputError(f"layer {number}: holds numbers that are not finite")
            width = weight.shape[0]
        if width != 1:
            raise InputError(f"the last layer has {width} outputs; a predictor has one")

    @property
    def num_hidden_layers(self) -> int:
        """Layers that a ReLU follows."""
        return len(self.layers) - 1

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""
        return sum(weight.size + bias.size for weight, bias in self.layers)

    # -- predicting ---------------------------------------------------------------------------------------------

    def predict_ms(self, arch: Architecture) -> float:
        """Latency of ``arch`` in milliseconds per batch."""
        return float(self.predict_averages(hat_features(arch)[None])[0])

    def predict_averages(self, averages: Floats) -> Floats:
        """Latency in milliseconds for rows of HAT's ten averages: [rows, 10] -> [rows]."""
        values = (averages / np.array(self.feature_norm)).astype(np.float32)
        for weight, bias in self.layers[:-1]:
            values = np.maximum(values @ weight.T + bias, 0)
        weight, bias = self.layers[-1]
        result: Floats = (values @ weight.T + bias)[:, 0].astype(np.float64) * self.lat_norm_ms
        return result

    def outside_range(self, arch: Architecture) -> list[str]:
        """HAT's files do not say what the network was fitted to, so nothing is known to be outside."""
        return []

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the predictor as JSON; weights are little-endian float32 in base64."""
        content = {
            "format_version": FORMAT_VERSION,
            "kind": KIND,
            "unit": "ms per batch",
            "features": list(HAT_FEATURE_NAMES),
            "feature_norm": list(self.feature_norm),
            "lat_norm_ms": self.lat_norm_ms,
            "activation": "relu",
            "layers": [{"weight": _packed(weight), "bias": _packed(bias)} for weight, bias in self.layers],
            "num_parameters": self.num_parameters,
            "conditions": self.conditions.to_dict() if self.conditions else None,
            "device": self.device,
        }
        write_json(path, content)

    @classmethod
    def load(cls, path: Path) -> MlpPredictor:
        """Read what ``save`` wrote.

        Raises:
            InputError: the file is missing, damaged, of another kind or format.
        """
        content = read_json(path)
        try:
            return cls._from_dict(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{path}: not a whole latency predictor of kind '{KIND}' ({error!r})") from None

    @classmethod
    def _from_dict(cls, content: dict[str, Any]) -> MlpPredictor:
        if content["kind"] != KIND:
            raise InputError(f"a predictor of kind '{content['kind']}', not '{KIND}'")
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"predictor format {content['format_version']}, this version reads {FORMAT_VERSION}")
        if tuple(content["features"]) != HAT_FEATURE_NAMES or content["activation"] != "relu":
            raise InputError("a network of other features or activation than HAT's")
        layers = tuple((_unpacked(layer["weight"]), _unpacked(layer["bias"])) for layer in content["layers"])
        conditions = Conditions(**content["conditions"]) if content["conditions"] else None
        norm = tuple(float(value) for value in content["feature_norm"])
        return cls(layers, norm, float(content["lat_norm_ms"]), dict(content["device"]), conditions)


def _packed(values: NDArray[np.float32]) -> dict[str, Any]:
    return {"shape": list(values.shape), "float32": base64.b64encode(values.astype("<f4").tobytes()).decode()}


def _unpacked(data: dict[str, Any]) -> NDArray[np.float32]:
    shape: Sequence[int] = [int(size) for size in data["shape"]]
    try:
        content = base64.b64decode(data["float32"], validate=True)
    except binascii.Error as error:
        raise InputError(f"weights that are not base64 ({error})") from None
    count = math.prod(shape)
    if not 0 < count <= MOST_WEIGHTS or len(content) != 4 * count or min(shape) < 1:
        raise InputError(f"{len(content)} bytes of weights do not make a tensor of shape {list(shape)}")
    return np.frombuffer(content, dtype="<f4").astype(np.float32).reshape(shape)
