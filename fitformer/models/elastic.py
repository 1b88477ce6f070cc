"""Elastic leaf layers: the largest weight is stored, the first-N slice of it is used (HAT, section 2.1).

A leaf's ``active_parameters`` is the one slicing rule; ``forward`` and ``SuperTransformer.extract`` both use it.
Every other module is ordinary PyTorch and takes its leaves from a ``Leaves`` set, plain or elastic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ElasticLinear(nn.Linear):
    """A linear layer of which the leading inputs and the leading outputs of each block are active.

    With ``num_blocks`` of 3 the output is three equal blocks (queries, keys, values in one projection), and the
    leading rows of each block are taken, so that a narrower layer keeps the meaning of its channels.
    """

    def __init__(self, in_features: int, out_features: int, *, num_blocks: int = 1) -> None:
        super().__init__(in_features, out_features)
        self.num_blocks = num_blocks
        self.set_active(in_features, out_features)

    def set_active(self, in_features: int, out_features: int) -> None:
        """Use the first ``in_features`` inputs and ``out_features`` outputs (all blocks together)."""
        self.active_in, self.active_out = in_features, out_features

    def active_parameters(self) -> dict[str, Tensor]:
        """The active slices of weight ``[out, in]`` and bias ``[out]``, as views where the blocks allow it."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if self.active_in < self.in_features:
            weight = weight[:, : self.active_in]
        if self.active_out < self.out_features:
            if self.num_blocks == 1:
                weight, bias = weight[: self.active_out], bias[: self.active_out]
            else:
                rows = self.active_out // self.num_blocks
                weight = weight.unflatten(0, (self.num_blocks, -1))[:, :rows].flatten(0, 1)
                bias = bias.view(self.num_blocks, -1)[:, :rows].flatten()
        return {"weight": weight, "bias": bias}

    def forward(self, input: Tensor) -> Tensor:
        """Map ``[..., active_in]`` to ``[..., active_out]``."""
        active = self.active_parameters()
        weight = active["weight"]
        if not torch.is_autocast_enabled(input.device.type):  # which makes a copy of its own
            # Matrix products read a contiguous copy up to three times as fast as a slice with long rows.
            weight = weight.contiguous()
        return F.linear(input, weight, active["bias"])


class ElasticLayerNorm(nn.LayerNorm):
    """Layer normalisation over the active leading channels, with the leading weights."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.set_active(dim)

    def set_active(self, dim: int) -> None:
        """Use the first ``dim`` channels."""
        self.active_dim = dim

    def active_parameters(self) -> dict[str, Tensor]:
        """The active slices of weight and bias, ``[dim]`` each."""
        return {"weight": self.weight[: self.active_dim], "bias": self.bias[: self.active_dim]}

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``[..., active_dim]`` over its last axis."""
        return F.layer_norm(input, (self.active_dim,), eps=self.eps, **self.active_parameters())


class ElasticEmbedding(nn.Embedding):
    """A table of which the first ``active_dim`` columns are used.

    One table can serve encoder, decoder and output with different widths: the modules share the weight and each has
    its own ``active_dim`` (plain models use it too, when encoder and decoder widths differ).
    """

    def __init__(self, num_embeddings: int, dim: int) -> None:
        super().__init__(num_embeddings, dim)
        self.set_active(dim)

    def set_active(self, dim: int) -> None:
        """Use the first ``dim`` columns."""
        self.active_dim = dim

    def active_parameters(self) -> dict[str, Tensor]:
        """The active columns of the table, ``[num_embeddings, dim]``."""
        return {"weight": self.weight[:, : self.active_dim]}

    def forward(self, input: Tensor) -> Tensor:
        """Look up ids ``[...]`` and return ``[..., active_dim]``."""
        # Whole rows are looked up and then cut: the gradient of a cut table would be written out twice.
        return F.embedding(input, self.weight)[..., : self.active_dim]


@dataclass(frozen=True)
class Leaves:
    """The leaf layers that blocks are built from."""

    linear: Callable[..., nn.Linear]
    layer_norm: Callable[[int], nn.LayerNorm]


def _plain_linear(in_features: int, out_features: int, *, num_blocks: int = 1) -> nn.Linear:
    return nn.Linear(in_features, out_features)


PLAIN = Leaves(linear=_plain_linear, layer_norm=nn.LayerNorm)
ELASTIC = Leaves(linear=ElasticLinear, layer_norm=ElasticLayerNorm)


def copy_active(source: nn.Module, target: nn.Module) -> None:
    """Copy the active parameters of an elastic leaf into a plain leaf of that size."""
    assert isinstance(source, ElasticLinear | ElasticLayerNorm | ElasticEmbedding)
    parameters = source.active_parameters()
    if isinstance(source, ElasticEmbedding) and isinstance(target, ElasticEmbedding):
        # A table shared by two widths is as wide as the wider one, whichever side is copied.
        parameters = {"weight": source.weight[:, : target.embedding_dim]}
    with torch.no_grad():
        for name, value in parameters.items():
            parameter = getattr(target, name)
            assert parameter.shape == value.shape, (name, parameter.shape, value.shape)
            parameter.copy_(value)
