"""A ``Transformer`` as two ONNX graphs: the encoder, run once per sentence, and one step of the decoder.

Graph contract 1. Encoder: ``source`` int64 [B, S] (right-padded with 0) to, for each decoder layer i, the
cross-attention's ``cross_key_i`` and ``cross_value_i`` [B, H, M, K], and for each number n of attended
encoder layers in use the additive ``cross_mask_n`` [B, 1, 1, n * S]. Decoder: ``token`` int64 [B],
``position`` int64 [1], all of the above, and the past ``self_key_i``, ``self_value_i`` [B, H, T, K] to
``logits`` [B, V], ``next_self_key_i``, ``next_self_value_i``. Axis 0 is the batch everywhere; ``next_X`` of a
step is ``X`` of the following one; T starts at 0 and ``position`` equals it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from fitformer.export.blocks import PADDING_SCORE, Blocks, takes_grouped
from fitformer.export.builder import GraphBuilder
from fitformer.export.matrices import FloatMatrices, Matrices, array
from fitformer.models import SuperTransformer
from fitformer.models.layers import DecoderLayer, EncoderLayer
from fitformer.models.transformer import PAD, Stack, Transformer
from fitformer.rundir import atomic_path

# Rises with every change of the graphs: latencies measured with another version are not comparable.
EXPORTER_VERSION = 1

EMBEDDING = "embed_tokens"
FLOAT32 = FloatMatrices()


def write_graphs(model: Transformer, folder: Path, *, matrices: Matrices = FLOAT32) -> dict[str, Path]:
    """Write ``encoder.onnx`` and ``decoder.onnx`` into ``folder`` and return their paths by those stems."""
    paths = {}
    for name, content in graph_bytes(model, matrices=matrices).items():
        paths[name] = folder / f"{name}.onnx"
        with atomic_path(paths[name]) as temporary:
            temporary.write_bytes(content)
    return paths


def graph_bytes(model: Transformer, *, matrices: Matrices = FLOAT32) -> dict[str, bytes]:
    """What ``write_graphs`` writes, by ``encoder`` and ``decoder``; the same model gives the same bytes."""
    graphs = {"encoder": encoder_graph(model, matrices=matrices), "decoder": decoder_graph(model, matrices=matrices)}
    return {name: graph.SerializeToString(deterministic=True) for name, graph in graphs.items()}


def encoder_graph(model: Transformer, *, matrices: Matrices = FLOAT32) -> onnx.ModelProto:
    """The encoder, with the projections of its outputs for every decoder layer."""
    assert not isinstance(model, SuperTransformer), "extract an architecture first"
    graph, arch, stack = GraphBuilder("encoder"), model.arch, model.encoder
    blocks = Blocks(graph, matrices)
    source = graph.input("source", ["B", "S"], integer=True)
    batch = graph.node("Shape", [source], "batch", start=0, end=1)
    padding = graph.node("Equal", [source, graph.integers(PAD)], "padding")
    kept = graph.node("Cast", [graph.node("Not", [padding], "tokens")], "kept", to=onnx.TensorProto.INT32)
    x = matrices.embed(graph, source, stack.embed_tokens.active_parameters()["weight"], EMBEDDING)
    length = graph.node("Shape", [source], "length", start=1)
    places = [_positions(graph, stack), graph.integers(0), length, graph.integers(0)]
    x = graph.node("Add", [x, graph.node("Slice", places, "places")], "placed")
    x = blocks.rows(x, arch.encoder_embed_dim, "rows")
    outputs = _Outputs.of(model)
    for index in range(arch.encoder_num_layers):
        layer, name = stack.layers[index], f"layers.{index}"
        assert isinstance(layer, EncoderLayer)
        x = _encoder_layer(blocks, x, layer, batch, kept, name)
        if index in outputs.normed_layers:
            outputs.normed[index] = blocks.norm(x, stack.norm, f"{name}.memory") if model.config.pre_norm else x
        if index in outputs.plain_layers:
            outputs.plain[index] = x
    _memories(blocks, model, outputs, batch)
    _cross_masks(graph, model, padding)
    return graph.build(str(EXPORTER_VERSION))


def decoder_graph(model: Transformer, *, matrices: Matrices = FLOAT32) -> onnx.ModelProto:
    """One step of the decoder."""
    assert not isinstance(model, SuperTransformer), "extract an architecture first"
    graph, config, stack = GraphBuilder("decoder"), model.config, model.decoder
    blocks = Blocks(graph, matrices)
    token = graph.input("token", ["B"], integer=True)
    position = graph.input("position", [1], integer=True)
    memories, masks = _memory_inputs(graph, model)
    x = matrices.embed(graph, token, stack.embed_tokens.active_parameters()["weight"], EMBEDDING)
    x = graph.node("Add", [x, graph.node("Gather", [_positions(graph, stack), position], "place")], "placed")
    lengths = _past_lengths(graph, model, token, position)
    for index, layers in enumerate(model.arch.decoder_cross_layers):
        layer = stack.layers[index]
        assert isinstance(layer, DecoderLayer)
        x = _decoder_layer(blocks, x, layer, memories[index], masks[len(layers)], lengths, index)
    if config.pre_norm:
        x = blocks.norm(x, stack.norm, "norm")
    shared = None if config.share_embeddings == "none" else EMBEDDING
    matrices.logits(graph, x, model.output_weight(), "logits", shared=shared)
    graph.output("logits", ["B", config.target_vocab_size])
    return graph.build(str(EXPORTER_VERSION))


def _encoder_layer(blocks: Blocks, x: str, layer: EncoderLayer, batch: str, kept: str, name: str) -> str:
    def attend(h: str) -> str:
        return blocks.encoder_self_attention(h, layer.self_attn, batch, kept, f"{name}.self_attn")

    x = blocks.sublayer(x, layer, layer.self_attn_norm, attend, f"{name}.self_attn")
    return blocks.sublayer(x, layer, layer.ffn_norm, lambda h: blocks.feed_forward(h, layer, name), f"{name}.ffn")


def _decoder_layer(
    blocks: Blocks,
    x: str,
    layer: DecoderLayer,
    memory: tuple[str, str],
    mask: str,
    lengths: tuple[str, str],
    index: int,
) -> str:
    name, graph, heads = f"layers.{index}", blocks.graph, layer.self_attn.num_heads
    head_dim = layer.self_attn.out_proj.in_features // heads
    key, value = (graph.input(f"self_{part}_{index}", ["B", heads, "T", head_dim]) for part in ("key", "value"))

    def attend(h: str) -> str:
        return blocks.decoder_self_attention(h, layer.self_attn, (key, value), lengths, f"{name}.self_attn")

    def attend_memory(h: str) -> str:
        return blocks.cross_attention(h, layer.cross_attn, memory, mask, f"{name}.cross_attn")

    x = blocks.sublayer(x, layer, layer.self_attn_norm, attend, f"{name}.self_attn")
    x = blocks.sublayer(x, layer, layer.cross_attn_norm, attend_memory, f"{name}.cross_attn")
    x = blocks.sublayer(x, layer, layer.ffn_norm, lambda h: blocks.feed_forward(h, layer, name), f"{name}.ffn")
    for state in (key, value):
        graph.output(f"next_{state}", ["B", heads, "T_next", head_dim])
    return x


@dataclass
class _Outputs:
    """Outputs of the attended encoder layers by index: through the last norm (which is only there in pre-norm), and
    as they are, where the norm is for the first of a decoder layer's memories only.
    """

    normed_layers: set[int]
    plain_layers: set[int]
    normed: dict[int, str] = field(default_factory=dict)
    plain: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Transformer) -> _Outputs:
        """Which outputs the decoder layers of ``model`` attend to."""
        every = model.config.norm_every_memory or not model.config.pre_norm
        attended = model.arch.decoder_cross_layers
        normed = {index for layers in attended for index in (layers if every else layers[:1])}
        return cls(normed, set() if every else {index for layers in attended for index in layers[1:]})

    def is_normed(self, place: int) -> bool:
        """Whether the output at that place of a decoder layer's memory is normed."""
        return place == 0 or not self.plain_layers


def _memories(blocks: Blocks, model: Transformer, outputs: _Outputs, batch: str) -> None:
    """Concatenate the attended encoder outputs along the sequence and project them for every decoder layer."""
    graph, width = blocks.graph, model.arch.encoder_embed_dim
    memories: dict[tuple[int, ...], str] = {(index,): output for index, output in outputs.normed.items()}
    by_sentence: dict[bool, dict[int, str]] = {True: {}, False: {}}
    for index, layers in enumerate(model.arch.decoder_cross_layers):
        if layers not in memories:
            parts = [(i, outputs.is_normed(place)) for place, i in enumerate(layers)]
            for normed, kind in ((True, "sentences"), (False, "plain_sentences")):
                values, known = outputs.normed if normed else outputs.plain, by_sentence[normed]
                for i in {i for i, is_normed in parts if is_normed == normed} - set(known):
                    known[i] = blocks.sentences(values[i], batch, (width,), f"layers.{i}.{kind}")
            name = "memory_" + "_".join(map(str, layers))
            joined = graph.node("Concat", [by_sentence[normed][i] for i, normed in parts], name, axis=1)
            memories[layers] = blocks.rows(joined, width, f"{name}.rows")
        layer = model.decoder.layers[index]
        assert isinstance(layer, DecoderLayer)
        names = f"cross_key_{index}", f"cross_value_{index}"
        blocks.keys_values(memories[layers], layer.cross_attn, batch, names, f"cross.{index}")
        for name in names:
            graph.output(name, _memory_shape(model, index))


def _cross_masks(graph: GraphBuilder, model: Transformer, padding: str) -> None:
    mask = graph.node("Cast", [padding], "padding_float", to=onnx.TensorProto.FLOAT)
    mask = graph.node("Mul", [mask, graph.weight("padding_score", np.array([PADDING_SCORE], np.float32))], "mask")
    mask = graph.node("Unsqueeze", [mask, graph.integers(1, 2)], "mask_by_head")
    for span in _spans(model):
        graph.node("Concat", [mask] * span, f"cross_mask_{span}", axis=3)
        graph.output(f"cross_mask_{span}", ["B", 1, 1, f"M{span}"])


def _memory_inputs(graph: GraphBuilder, model: Transformer) -> tuple[list[tuple[str, str]], dict[int, str]]:
    memories = []
    for index in range(model.arch.decoder_num_layers):
        shape = _memory_shape(model, index)
        key, value = (graph.input(f"cross_{part}_{index}", shape) for part in ("key", "value"))
        memories.append((key, value))
    masks = {span: graph.input(f"cross_mask_{span}", ["B", 1, 1, f"M{span}"]) for span in _spans(model)}
    return memories, masks


def _past_lengths(graph: GraphBuilder, model: Transformer, token: str, position: str) -> tuple[str, str]:
    """T for every row ``[B]`` and T + 1 ``[1]``, int32, as GroupQueryAttention wants them."""
    if not any(takes_grouped(layer.self_attn) for layer in _decoder_layers(model)):
        return "", ""
    before = graph.node("Cast", [position], "past_length", to=onnx.TensorProto.INT32)
    each = graph.node("Expand", [before, graph.node("Shape", [token], "batch")], "past_lengths")
    return each, graph.node("Add", [before, graph.weight("one", np.array([1], np.int32))], "length")


def _decoder_layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]


def _memory_shape(model: Transformer, index: int) -> list[int | str]:
    arch = model.arch
    heads, span = arch.decoder_cross_heads[index], len(arch.decoder_cross_layers[index])
    return ["B", heads, f"M{span}", arch.decoder_qkv_dim[index] // heads]


def _spans(model: Transformer) -> list[int]:
    return sorted({len(layers) for layers in model.arch.decoder_cross_layers})


def _positions(graph: GraphBuilder, stack: Stack) -> str:
    return graph.weight("positions", array(stack.positions[:, : stack.embed_tokens.active_dim]))
