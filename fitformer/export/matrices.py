"""How a graph stores its matrices and multiplies by them: the place where another number format plugs in.

The exporter asks a ``Matrices`` for every projection, embedding and output layer; ``FloatMatrices`` is
float32. Weights are given as PyTorch holds them, ``[out, in]``; values are ``[N, in]`` with one row per
token.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fitformer.export.builder import FUSED_DOMAIN, GraphBuilder

Array = NDArray[np.float32]


def array(tensor: Tensor) -> Array:
    """A parameter as a float32 array."""
    values: Any = tensor.detach().cpu().float().numpy()
    return np.asarray(values, np.float32)


class Matrices(Protocol):
    """Stores matrices in a graph and adds the nodes that multiply by them."""

    precision: str  # as it stands in the bundle
    facts: dict[str, Any]  # how the numbers are stored, for the bundle; empty for float32
    fuses_attention: bool  # whether ONNX Runtime's Attention operator may hold the encoder's query-key-value projection

    def linear(
        self, graph: GraphBuilder, x: str, weight: Tensor, bias: Tensor, name: str, *, relu: bool = False
    ) -> str:
        """``x [N, in] @ weight^T + bias``, optionally through ReLU."""
        ...

    def embed(self, graph: GraphBuilder, ids: str, table: Tensor, name: str) -> str:
        """sqrt(D) * rows of ``table [V, D]``: ids ``[...]`` to ``[..., D]``. ``name`` is also the stored table's."""
        ...

    def logits(self, graph: GraphBuilder, h: str, table: Tensor, name: str, *, shared: str | None) -> str:
        """``h [N, D] @ table^T``; ``shared`` names the stored table if ``embed`` has stored the same one."""
        ...


class FloatMatrices:
    """Float32. A shared table is stored once, with the embedding's factor in it; the output divides it out again."""

    precision = "fp32"
    fuses_attention = True

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def linear(
        self, graph: GraphBuilder, x: str, weight: Tensor, bias: Tensor, name: str, *, relu: bool = False
    ) -> str:
        """See ``Matrices``; one node."""
        inputs = [x, graph.weight(f"{name}.weight", array(weight).T), graph.weight(f"{name}.bias", array(bias))]
        if relu:
            return graph.node("FusedGemm", inputs, name, domain=FUSED_DOMAIN, activation="Relu")
        return graph.node("Gemm", inputs, name)

    def embed(self, graph: GraphBuilder, ids: str, table: Tensor, name: str) -> str:
        """See ``Matrices``; one node."""
        scaled = array(table) * np.float32(math.sqrt(table.size(1)))
        return graph.node("Gather", [graph.weight(f"{name}.weight", scaled), ids], name)

    def logits(self, graph: GraphBuilder, h: str, table: Tensor, name: str, *, shared: str | None) -> str:
        """See ``Matrices``; one node."""
        if shared is None:
            return graph.node("Gemm", [h, graph.weight(f"{name}.weight", array(table))], name, transB=1)
        return graph.node("Gemm", [h, f"{shared}.weight"], name, transB=1, alpha=1 / math.sqrt(table.size(1)))
