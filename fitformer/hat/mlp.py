"""Trains HAT's latency predictor as HAT does: a network of ReLU layers on ten averages, squared error, Adam.

The published optimisation is kept to the letter, slow as it is: learning rate 1e-5 without schedule or weight decay,
5,000 steps of 128 rows drawn without replacement, last weights kept. The paper has three hidden layers of 400; the code
that was released has four (``first_layer`` and three more).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from fitformer.errors import InputError
from fitformer.latency.features import HAT_FEATURE_NAMES, Floats
from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM, MlpPredictor

# Divisors of the latency in HAT's search configurations, in milliseconds, by a part of the device's name.
LAT_NORM_MS = {"titanxp": 200.0, "xeon": 300.0, "raspberrypi": 5000.0}
STEPS_BETWEEN_NEWS = 100


@dataclass(frozen=True)
class MlpSettings:
    """The published settings; ``hidden_layers`` is the paper's."""

    hidden_layers: int = 3
    width: int = 400
    steps: int = 5000
    batch_size: int = 128
    learning_rate: float = 1e-5

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise InputError(f"mlp.{name}: {value} must be above 0")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, ready for JSON."""
        return asdict(self)


def published_lat_norm(name: str) -> float | None:
    """HAT's divisor for the device that ``name`` (of a device or file) mentions, or ``None``."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    return next((norm for device, norm in LAT_NORM_MS.items() if device in plain), None)


def train_mlp(
    averages: Floats,
    latency_ms: Floats,
    *,
    lat_norm_ms: float,
    settings: MlpSettings | None = None,
    seed: int = 0,
    feature_norm: tuple[float, ...] = HAT_FEATURE_NORM,
    on_steps: Callable[[int], None] = lambda steps: None,
) -> MlpPredictor:
    """Train a network on rows of HAT's averages [rows, 10] and total milliseconds [rows].

    Args:
        on_steps: told how many steps are done, now and then.
    """
    settings = settings or MlpSettings()
    inputs = torch.from_numpy(averages / np.array(feature_norm)).float()
    targets = torch.from_numpy(latency_ms / lat_norm_ms).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _network(settings)
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    for step in range(settings.steps):
        rows = torch.randperm(len(inputs), generator=draw)[: settings.batch_size]
        loss = nn.functional.mse_loss(model(inputs[rows])[:, 0], targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % STEPS_BETWEEN_NEWS == 0 or step + 1 == settings.steps:
            on_steps(step + 1)
    linears = [module for module in model if isinstance(module, nn.Linear)]
    layers = tuple((linear.weight.detach().numpy().copy(), linear.bias.detach().numpy().copy()) for linear in linears)
    return MlpPredictor(layers, feature_norm, lat_norm_ms)


def _network(settings: MlpSettings) -> nn.Sequential:
    widths = [len(HAT_FEATURE_NAMES), *[settings.width] * settings.hidden_layers]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))
