"""8-bit weights for ONNX Runtime: one scale per block of a row of weights, and per block of a row of activations.

Of ONNX Runtime's forms of int8, this one (``MatMulNBits`` with 8 bits and integer arithmetic) is used because
the scale of an activation comes from its own row and from nothing else: a line's translation does not depend
on the lines it is batched with, which per-tensor dynamic quantization (``quantize_dynamic``) cannot promise;
it needs no calibration, which static quantization does; and for the single row of a decoder step it is the
fastest of the three, and the closest to float32. Dynamic quantization is the faster one for many rows at
once. ``benchmarks/decode.py`` compares.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fitformer.export.builder import FUSED_DOMAIN, GraphBuilder
from fitformer.export.graphs import graph_bytes
from fitformer.export.matrices import Array, array
from fitformer.models import Transformer

BLOCK_SIZES = (64, 32)  # larger blocks are a little faster, smaller ones a little more accurate
ZERO_POINT = 128  # what ONNX Runtime takes for unsigned bytes when no zero points are given
LARGEST_STEP = 127
INTEGER_ARITHMETIC = 4  # accuracy level: activations become int8 too, per row and block


class BlockwiseInt8:
    """A ``Matrices`` with 8-bit weights in blocks along the input axis; biases, norms and attention stay float32."""

    precision = "int8"
    fuses_attention = False

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"form": "blockwise", "bits": 8, "rows_independent": True}

    def linear(
        self, graph: GraphBuilder, x: str, weight: Tensor, bias: Tensor, name: str, *, relu: bool = False
    ) -> str:
        """See ``Matrices``; one node, and one for ReLU."""
        levels, scales = quantize_rows(array(weight))
        stored = graph.weight(f"{name}.weight", levels), graph.weight(f"{name}.scale", scales)
        inputs = [x, *stored, "", "", graph.weight(f"{name}.bias", array(bias))]
        product = _multiply(graph, inputs, f"{name}.product" if relu else name, weight.shape)
        return graph.node("Relu", [product], name) if relu else product

    def embed(self, graph: GraphBuilder, ids: str, table: Tensor, name: str) -> str:
        """See ``Matrices``. The table is stored as ``[V, padded D]``, which both the look-up and the output can use."""
        levels, scales = quantize_rows(array(table))
        width, padded, block = table.size(1), levels[0].size, levels.shape[-1]
        stored = graph.weight(f"{name}.weight", levels.reshape(len(levels), padded))
        scale = graph.weight(f"{name}.scale", scales * np.float32(math.sqrt(width)))
        options = {"bits": 8, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
        found = name if padded == width else f"{name}.padded"
        graph.node("GatherBlockQuantized", [stored, ids, scale], found, domain=FUSED_DOMAIN, **options)
        if padded > width:
            graph.node("Slice", [found, *map(graph.integers, (0, width, -1))], name)
        return name

    def logits(self, graph: GraphBuilder, h: str, table: Tensor, name: str, *, shared: str | None) -> str:
        """See ``Matrices``."""
        levels, scales = quantize_rows(array(table))
        if shared is None:
            stored = graph.weight(f"{name}.weight", levels)
        else:  # the reshape is done once, when ONNX Runtime loads the graph
            stored = graph.node("Reshape", [f"{shared}.weight", graph.integers(*levels.shape)], f"{name}.weight")
        return _multiply(graph, [h, stored, graph.weight(f"{name}.scale", scales)], name, table.shape)


def int8_graphs(model: Transformer) -> dict[str, bytes]:
    """The ``encoder`` and ``decoder`` graph of a model with 8-bit weights, as the bytes of their files."""
    return graph_bytes(model, matrices=BlockwiseInt8())


def quantize_rows(weight: Array) -> tuple[NDArray[np.uint8], Array]:
    """``weight [R, C]`` as levels ``[R, blocks, block]`` (padded with zero weights) and scales ``[R, blocks]``.

    A weight is ``(level - 128) * scale``; the scale puts the block's largest magnitude at 127 steps (symmetric absmax).
    """
    rows, columns = weight.shape
    block = _block_size(columns)
    padded = np.pad(weight, ((0, 0), (0, -columns % block))).reshape(rows, -1, block)
    scales = np.abs(padded).max(axis=-1) / np.float32(LARGEST_STEP)
    scales = np.where(scales > 0, scales, np.float32(1)).astype(np.float32)
    levels = np.rint(padded / scales[..., None]) + ZERO_POINT
    return levels.astype(np.uint8), scales


def _multiply(graph: GraphBuilder, inputs: list[str], name: str, shape: tuple[int, ...]) -> str:
    outputs, width = shape
    options = {"K": width, "N": outputs, "bits": 8, "block_size": _block_size(width)}
    options["accuracy_level"] = INTEGER_ARITHMETIC
    return graph.node("MatMulNBits", inputs, name, domain=FUSED_DOMAIN, **options)


def _block_size(width: int) -> int:
    return next((size for size in BLOCK_SIZES if width % size == 0), BLOCK_SIZES[-1])
