"""The blocks of a Transformer as ONNX nodes: residual connections, attention, feed-forward network.

Between blocks every value is ``[N, D]`` with one row per token (N = B * S in the encoder, N = B in a decoder
step), so that a projection with its bias is one node. Letters: B batch, S source length, T target length so
far, M memory length, D width, Q width of queries, keys and values, H heads, K = Q / H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from fitformer.export.builder import FUSED_DOMAIN, GraphBuilder
from fitformer.export.matrices import Matrices, array
from fitformer.models.attention import CrossAttention, SelfAttention
from fitformer.models.layers import Block

PADDING_SCORE = -1e9  # added to a score, it makes its weight exactly 0 in float32
GROUPED_HEAD_MULTIPLE = 8  # ONNX Runtime's GroupQueryAttention takes heads of such widths only


@dataclass(frozen=True)
class Blocks:
    """Adds blocks to ``graph``, with ``matrices`` for all that multiplies."""

    graph: GraphBuilder
    matrices: Matrices

    def linear(self, x: str, leaf: nn.Module, name: str, *, relu: bool = False) -> str:
        """``x [N, in]`` through a linear layer to ``[N, out]``."""
        assert isinstance(leaf, nn.Linear)
        return self.matrices.linear(self.graph, x, leaf.weight, leaf.bias, name, relu=relu)

    def norm(self, x: str, leaf: nn.Module, name: str) -> str:
        """Layer normalisation over the last axis."""
        assert isinstance(leaf, nn.LayerNorm)
        graph = self.graph
        weights = [graph.weight(f"{name}.weight", array(leaf.weight)), graph.weight(f"{name}.bias", array(leaf.bias))]
        return graph.node("LayerNormalization", [x, *weights], name, axis=-1, epsilon=leaf.eps)

    def sublayer(self, x: str, block: Block, norm: nn.Module, function: Callable[[str], str], name: str) -> str:
        """Residual connection around ``function``, normalised before or after as ``block`` has it."""
        if block.pre_norm:
            return self.graph.node("Add", [x, function(self.norm(x, norm, f"{name}.norm"))], f"{name}.sum")
        return self.norm(self.graph.node("Add", [x, function(x)], f"{name}.sum"), norm, f"{name}.norm")

    def feed_forward(self, x: str, block: Block, name: str) -> str:
        """``fc2(ReLU(fc1(x)))``."""
        return self.linear(self.linear(x, block.fc1, f"{name}.fc1", relu=True), block.fc2, f"{name}.fc2")

    def rows(self, x: str, width: int, name: str) -> str:
        """``x [..., width]`` as one row per token."""
        return self.graph.node("Reshape", [x, self.graph.integers(-1, width)], name)

    def sentences(self, x: str, batch: str, inner: tuple[int, ...], name: str) -> str:
        """``x [N, ...]`` as ``[B, N / B, *inner]``; ``batch`` holds B as a vector of one."""
        graph = self.graph
        shape = f"{batch}_by_" + "_".join(map(str, inner))
        if not graph.has(shape):
            graph.node("Concat", [batch, graph.integers(-1, *inner)], shape, axis=0)
        return graph.node("Reshape", [x, shape], name)

    def encoder_self_attention(self, h: str, layer: SelfAttention, batch: str, kept: str, name: str) -> str:
        """Self-attention of ``h [B * S, D]``; ``kept [B, S]`` int32 is 1 at tokens and 0 at padding."""
        graph, width = self.graph, layer.out_proj.in_features
        options = {"num_heads": layer.num_heads, "mask_filter_value": PADDING_SCORE}
        projection = layer.in_proj
        attended = f"{name}.attended"
        if self.matrices.fuses_attention:
            h = self.sentences(h, batch, (projection.in_features,), f"{name}.input")
            weight = graph.weight(f"{name}.in_proj.weight", array(projection.weight).T)
            bias = graph.weight(f"{name}.in_proj.bias", array(projection.bias))
            inputs, sizes = [h, weight, bias, kept], [width] * 3
            graph.node("Attention", inputs, attended, domain=FUSED_DOMAIN, qkv_hidden_sizes=sizes, **options)
        else:
            packed = self.linear(h, projection, f"{name}.in_proj")
            parts = self._split(self.sentences(packed, batch, (3 * width,), f"{name}.packed"), name)
            graph.node("MultiHeadAttention", [*parts, "", kept], attended, domain=FUSED_DOMAIN, **options)
        return self.linear(self.rows(attended, width, f"{name}.rows"), layer.out_proj, f"{name}.out_proj")

    def decoder_self_attention(
        self, h: str, layer: SelfAttention, past: tuple[str, str], lengths: tuple[str, str], name: str
    ) -> str:
        """Self-attention of one new token per row, ``h [B, D]``, to the past ``[B, H, T, K]`` and to itself.

        The grown past comes out as ``next_`` + the names of ``past``; ``lengths`` are T per row ``[B]``
        and T + 1 ``[1]``.
        """
        graph, width = self.graph, layer.out_proj.in_features
        packed = self.linear(h, layer.in_proj, f"{name}.in_proj")
        packed = graph.node("Reshape", [packed, graph.integers(-1, 1, 3 * width)], f"{name}.packed")
        results = [f"{name}.attended", *(f"next_{state}" for state in past)]
        if takes_grouped(layer):
            inputs, heads = [packed, "", "", *past, *lengths], layer.num_heads
            options = {"num_heads": heads, "kv_num_heads": heads}
            graph.nodes("GroupQueryAttention", inputs, results, domain=FUSED_DOMAIN, **options)
        else:
            inputs = [*self._split(packed, name), "", "", "", *past]
            graph.nodes("MultiHeadAttention", inputs, results, domain=FUSED_DOMAIN, num_heads=layer.num_heads)
        return self.linear(self.rows(results[0], width, f"{name}.rows"), layer.out_proj, f"{name}.out_proj")

    def cross_attention(self, h: str, layer: CrossAttention, memory: tuple[str, str], mask: str, name: str) -> str:
        """Attention of ``h [B, D]`` to ``memory``, keys and values ``[B, H, M, K]``; additive ``mask [B, 1, 1, M]``."""
        graph, width = self.graph, layer.out_proj.in_features
        query = self.linear(h, layer.q_proj, f"{name}.q_proj")
        query = graph.node("Reshape", [query, graph.integers(-1, 1, width)], f"{name}.query")
        inputs, options = [query, *memory, "", "", mask], {"num_heads": layer.num_heads}
        attended = graph.node("MultiHeadAttention", inputs, f"{name}.attended", domain=FUSED_DOMAIN, **options)
        return self.linear(self.rows(attended, width, f"{name}.rows"), layer.out_proj, f"{name}.out_proj")

    def keys_values(self, memory: str, layer: CrossAttention, batch: str, names: tuple[str, str], name: str) -> None:
        """Project ``memory [B * M, D]`` to the cross-attention's keys and values ``[B, H, M, K]`` called ``names``."""
        graph, heads = self.graph, layer.num_heads
        packed = self.linear(memory, layer.kv_proj, f"{name}.kv_proj")
        inner = 2 * heads, layer.out_proj.in_features // heads
        packed = self.sentences(packed, batch, inner, f"{name}.heads")
        packed = graph.node("Transpose", [packed], f"{name}.transposed", perm=[0, 2, 1, 3])
        graph.nodes("Split", [packed], list(names), axis=1)

    def _split(self, packed: str, name: str) -> list[str]:
        return self.graph.nodes("Split", [packed], [f"{name}.{part}" for part in ("query", "key", "value")], axis=-1)


def takes_grouped(layer: SelfAttention) -> bool:
    """Whether GroupQueryAttention, which is faster for one token because it splits and appends itself, can be used."""
    return layer.out_proj.in_features // layer.num_heads % GROUPED_HEAD_MULTIPLE == 0
