"""Encoder and decoder layers: attention and feed-forward sublayers, pre-norm or post-norm.

Letters: B batch, S source length, T target length, D width.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from fitformer.models.attention import CrossAttention, KeyValue, SelfAttention
from fitformer.models.config import TransformerConfig
from fitformer.models.dropout import Dropout, MaskPool
from fitformer.models.elastic import Leaves
from fitformer.space import Architecture


class Block(nn.Module):
    """What encoder and decoder layers share: residual sublayers and the feed-forward network."""

    def __init__(self, dim: int, ffn_dim: int, *, config: TransformerConfig, leaves: Leaves, dropout: Dropout) -> None:
        super().__init__()
        self.pre_norm, self.dropout = config.pre_norm, dropout
        self.fc1, self.fc2 = leaves.linear(dim, ffn_dim), leaves.linear(ffn_dim, dim)
        self.ffn_norm = leaves.layer_norm(dim)

    def sublayer(self, x: Tensor, norm: nn.Module, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Residual connection around ``function``, normalised before (pre-norm) or after (post-norm)."""
        output: Tensor
        if self.pre_norm:
            output = x + self.dropout(function(norm(x)))
        else:
            output = norm(x + self.dropout(function(x)))
        return output

    def feed_forward(self, x: Tensor) -> Tensor:
        """fc2(ReLU(fc1(x)))."""
        output: Tensor = self.fc2(self.fc1(x).relu())
        return output


class EncoderLayer(Block):
    """Self-attention and feed-forward network."""

    def __init__(
        self, arch: Architecture, index: int, *, config: TransformerConfig, leaves: Leaves, pool: MaskPool
    ) -> None:
        dim, qkv_dim = arch.encoder_embed_dim, arch.encoder_qkv_dim[index]
        residual = Dropout(config.dropout, pool, reference_dim=config.encoder_reference_dim)
        super().__init__(dim, arch.encoder_ffn_dim[index], config=config, leaves=leaves, dropout=residual)
        weights = Dropout(config.attention_dropout, pool)
        self.self_attn = SelfAttention(dim, qkv_dim, arch.encoder_num_heads[index], leaves=leaves, dropout=weights)
        self.self_attn_norm = leaves.layer_norm(dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Map ``[B, S, D]`` to ``[B, S, D]``."""
        x = self.sublayer(x, self.self_attn_norm, lambda h: self.self_attn(h, mask=mask)[0])
        return self.sublayer(x, self.ffn_norm, self.feed_forward)


class DecoderLayer(Block):
    """Causal self-attention, attention to the encoder, feed-forward network."""

    def __init__(
        self, arch: Architecture, index: int, *, config: TransformerConfig, leaves: Leaves, pool: MaskPool
    ) -> None:
        dim, qkv_dim = arch.decoder_embed_dim, arch.decoder_qkv_dim[index]
        residual = Dropout(config.dropout, pool, reference_dim=config.decoder_reference_dim)
        super().__init__(dim, arch.decoder_ffn_dim[index], config=config, leaves=leaves, dropout=residual)
        weights = Dropout(config.attention_dropout, pool)
        self.self_attn = SelfAttention(dim, qkv_dim, arch.decoder_self_heads[index], leaves=leaves, dropout=weights)
        self.self_attn_norm = leaves.layer_norm(dim)
        self.cross_attn = CrossAttention(
            dim,
            arch.encoder_embed_dim,
            qkv_dim,
            arch.decoder_cross_heads[index],
            leaves=leaves,
            dropout=weights,
        )
        self.cross_attn_norm = leaves.layer_norm(dim)

    def forward(
        self, x: Tensor, memory: KeyValue, mask: Tensor | None, past: KeyValue | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Map ``[B, T, D]`` to ``[B, T, D]``; a single new token when ``past`` is given. Also return the new past."""
        kept: list[KeyValue] = []

        def attend_itself(h: Tensor) -> Tensor:
            # A single token has no future to hide.
            output: Tensor
            output, keys_values = self.self_attn(h, is_causal=h.size(1) > 1, past=past)
            kept.append(keys_values)
            return output

        x = self.sublayer(x, self.self_attn_norm, attend_itself)
        x = self.sublayer(x, self.cross_attn_norm, lambda h: self.cross_attn(h, memory, mask))
        return self.sublayer(x, self.ffn_norm, self.feed_forward), kept[0]
