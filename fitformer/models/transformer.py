"""``Transformer``: a plain encoder-decoder for one ``Architecture`` (Vaswani et al. 2017, with HAT's freedoms).

HAT's freedoms are per-layer sizes, an encoder and a decoder of different width, and arbitrary encoder-decoder attention
(section 2.1): a decoder layer may attend to the outputs of several encoder layers, concatenated along the sequence.
Inputs are ids, right-padded with 0; a source ends with the end-of-sentence id, a decoder input begins with
``config.start_id``. Letters: B batch, S source length, T target length, M memory length, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fitformer.models.attention import KeyValue
from fitformer.models.config import TransformerConfig
from fitformer.models.dropout import Dropout, MaskPool
from fitformer.models.elastic import PLAIN, ElasticEmbedding, Leaves
from fitformer.models.layers import DecoderLayer, EncoderLayer
from fitformer.space import Architecture

PAD = 0


class DecodeState(NamedTuple):
    """What decoding one more token needs: projected memories with their masks, and the past of self-attention."""

    cross: list[KeyValue]
    masks: list[Tensor | None]
    past: list[KeyValue | None]


def sinusoidal_positions(count: int, dim: int) -> Tensor:
    """Table ``[count, dim]`` of sines (first half) and cosines, frequencies exp(-i ln(10000) / (dim/2 - 1))."""
    half = dim // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(count, dtype=torch.float64)[:, None] * frequencies
    table = torch.zeros(count, dim)
    table[:, :half], table[:, half : 2 * half] = angles.sin(), angles.cos()
    return table


def padding_mask(source: Tensor) -> Tensor | None:
    """Additive mask ``[B, 1, 1, S]``, -inf at padding; ``None`` when nothing is padded, which attention runs faster."""
    padded = source == PAD
    if not bool(padded[:, -1].any()):  # right-padded: a row with padding ends in it
        return None
    mask = torch.zeros(padded.shape, device=source.device).masked_fill_(padded, float("-inf"))
    return mask[:, None, None, :]


class Stack(nn.Module):
    """Embedding, layers and, in pre-norm, a last norm: what encoder and decoder have in common.

    ``positions`` [max_positions, reference width] begins with the row of the first token.
    """

    positions: Tensor

    def __init__(
        self,
        layers: list[EncoderLayer] | list[DecoderLayer],
        embed_tokens: ElasticEmbedding,
        *,
        config: TransformerConfig,
        reference_dim: int,
        leaves: Leaves,
        pool: MaskPool,
    ) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.layers = nn.ModuleList(layers)
        self.norm = leaves.layer_norm(embed_tokens.active_dim) if config.pre_norm else nn.Identity()
        self.dropout = Dropout(config.dropout, pool, reference_dim=reference_dim)
        offset = config.position_offset
        positions = sinusoidal_positions(offset + config.max_positions, reference_dim)[offset:]
        self.register_buffer("positions", positions, persistent=False)

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        """sqrt(D) * token + position, then dropout: ids ``[B, T]`` from position ``start`` on to ``[B, T, D]``."""
        dim = self.embed_tokens.active_dim
        positions = self.positions[start : start + ids.size(1), :dim]
        embedded: Tensor = self.dropout(torch.add(positions, self.embed_tokens(ids), alpha=math.sqrt(dim)))
        return embedded


class Transformer(nn.Module):
    """The whole model. ``arch`` is what it computes; only a SuperTransformer changes it."""

    def __init__(self, config: TransformerConfig, arch: Architecture, *, leaves: Leaves = PLAIN) -> None:
        super().__init__()
        self.config = replace(
            config,
            encoder_reference_dim=config.encoder_reference_dim or arch.encoder_embed_dim,
            decoder_reference_dim=config.decoder_reference_dim or arch.decoder_embed_dim,
        )
        self.arch, self.mask_pool = arch, MaskPool()
        pool, config = self.mask_pool, self.config
        source, target = self._tables()
        encoder_layers = [
            EncoderLayer(arch, i, config=config, leaves=leaves, pool=pool) for i in range(arch.encoder_num_layers)
        ]
        decoder_layers = [
            DecoderLayer(arch, i, config=config, leaves=leaves, pool=pool) for i in range(arch.decoder_num_layers)
        ]
        self.encoder = Stack(
            encoder_layers,
            source,
            config=config,
            reference_dim=config.encoder_reference_dim,
            leaves=leaves,
            pool=pool,
        )
        self.decoder = Stack(
            decoder_layers,
            target,
            config=config,
            reference_dim=config.decoder_reference_dim,
            leaves=leaves,
            pool=pool,
        )
        if config.share_embeddings == "none":
            self.output = ElasticEmbedding(config.target_vocab_size, arch.decoder_embed_dim)
        self._initialise()

    def _tables(self) -> tuple[ElasticEmbedding, ElasticEmbedding]:
        config, encoder_dim, decoder_dim = self.config, self.arch.encoder_embed_dim, self.arch.decoder_embed_dim
        if config.share_embeddings != "all":
            source = ElasticEmbedding(config.source_vocab_size, encoder_dim)
            return source, ElasticEmbedding(config.target_vocab_size, decoder_dim)
        # One table as wide as the wider side; each side uses its first columns.
        source = ElasticEmbedding(config.source_vocab_size, max(encoder_dim, decoder_dim))
        target = ElasticEmbedding(config.source_vocab_size, max(encoder_dim, decoder_dim))
        target.weight = source.weight
        source.set_active(encoder_dim)
        target.set_active(decoder_dim)
        return source, target

    def _initialise(self) -> None:
        """Xavier-uniform projections (a packed one as one matrix), zero biases, N(0, D^-1/2) tables (HAT's code)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, ElasticEmbedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
                with torch.no_grad():
                    module.weight[PAD].zero_()

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The encoder layers that the architecture uses."""
        return cast("list[EncoderLayer]", list(self.encoder.layers)[: self.arch.encoder_num_layers])

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder layers that the architecture uses."""
        return cast("list[DecoderLayer]", list(self.decoder.layers)[: self.arch.decoder_num_layers])

    def output_weight(self) -> Tensor:
        """The output layer's matrix ``[V, D]``: the target table unless it has one of its own. There is no bias."""
        table = self.output if self.config.share_embeddings == "none" else self.decoder.embed_tokens
        return table.active_parameters()["weight"]

    def encode(self, source: Tensor) -> DecodeState:
        """Run the encoder on ids ``[B, S]`` and project its outputs for each decoder layer."""
        mask = padding_mask(source)
        x, outputs = self.encoder.embed(source), []
        for encoder_layer in self.encoder_layers:
            x = encoder_layer(x, mask)
            outputs.append(x)
        attended = {layers: self._memory(outputs, layers) for layers in set(self.arch.decoder_cross_layers)}
        cross, masks = [], []
        for layer, layers in zip(self.decoder_layers, self.arch.decoder_cross_layers, strict=True):
            cross.append(layer.cross_attn.keys_values(attended[layers]))
            masks.append(None if mask is None else mask.repeat(1, 1, 1, len(layers)))
        return DecodeState(cross, masks, [None] * len(cross))

    def _memory(self, outputs: list[Tensor], layers: tuple[int, ...]) -> Tensor:
        every = self.config.norm_every_memory
        attended = [outputs[index] for index in layers]
        normed = [self.encoder.norm(x) if every or place == 0 else x for place, x in enumerate(attended)]
        return torch.cat(normed, 1)

    def decode(self, tokens: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """Run the decoder on ids ``[B, T]``: all of them at once, or one more than ``state`` has seen.

        Returns the last hidden states ``[B, T, D]`` (logits = hidden @ output_weight^T) and the state after them.
        """
        seen = state.past[0]
        x = self.decoder.embed(tokens, 0 if seen is None else seen[0].size(2))
        past: list[KeyValue | None] = []
        for layer, memory, mask, before in zip(self.decoder_layers, *state, strict=True):
            x, keys_values = layer(x, memory, mask, before)
            past.append(keys_values)
        return self.decoder.norm(x), state._replace(past=past)

    def features(self, source: Tensor, decoder_input: Tensor) -> Tensor:
        """Decoder hidden states ``[B, T, D]`` for source ids ``[B, S]`` and decoder input ids ``[B, T]``."""
        return self.decode(decoder_input, self.encode(source))[0]

    def forward(self, source: Tensor, decoder_input: Tensor) -> Tensor:
        """Logits ``[B, T, V]``."""
        return self.features(source, decoder_input) @ self.output_weight().t()
