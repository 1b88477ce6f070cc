"""Multi-head attention: self-attention with one packed projection, cross-attention over cached keys and values.

Letters: B batch, T target or own length, M memory length, D model width, Q width of queries, keys and values, H heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fitformer.models.dropout import Dropout
from fitformer.models.elastic import Leaves

KeyValue = tuple[Tensor, Tensor]  # keys and values, [B, H, M, Q/H] each


class Attention(nn.Module):
    """What both attentions share: the heads and the output projection."""

    def __init__(self, dim: int, qkv_dim: int, num_heads: int, *, leaves: Leaves, dropout: Dropout) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.out_proj = leaves.linear(qkv_dim, dim)
        self.dropout = dropout

    def split_heads(self, x: Tensor) -> Tensor:
        """``[B, T, Q] -> [B, H, T, Q/H]``; heads are contiguous groups of channels."""
        heads: Tensor = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return heads

    def attend(self, query: Tensor, memory: KeyValue, mask: Tensor | None, *, is_causal: bool = False) -> Tensor:
        """Scaled dot-product attention and output projection; ``mask`` is additive, ``[B, 1, 1, M]``."""
        key, value = memory
        if self.training and self.dropout.p > 0:
            attended = self._attend_dropped(query, key, value, mask, is_causal=is_causal)
        elif query.device.type == "cpu" and query.dtype.itemsize < 4:
            # On a CPU the fused kernel's backward pass is many times slower in bfloat16 than in float32.
            with torch.autocast("cpu", enabled=False):
                query, key, value = query.float(), key.float(), value.float()
                attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal)
        output: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return output

    def _attend_dropped(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool
    ) -> Tensor:
        scores = query @ key.transpose(-1, -2) * key.size(-1) ** -0.5
        if is_causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        if mask is not None:
            scores = scores + mask
        weights: Tensor = self.dropout(scores.softmax(-1))
        return weights @ value


class SelfAttention(Attention):
    """Self-attention; queries, keys and values come from one packed projection ``[3Q, D]``."""

    def __init__(self, dim: int, qkv_dim: int, num_heads: int, *, leaves: Leaves, dropout: Dropout) -> None:
        super().__init__(dim, qkv_dim, num_heads, leaves=leaves, dropout=dropout)
        self.in_proj = leaves.linear(dim, 3 * qkv_dim, num_blocks=3)

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, is_causal: bool = False, past: KeyValue | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Attend ``x [B, T, D]`` to itself, or to ``past`` and itself; also return all keys and values."""
        query, key, value = (self.split_heads(part) for part in self.in_proj(x).chunk(3, -1))
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        return self.attend(query, (key, value), mask, is_causal=is_causal), (key, value)


class CrossAttention(Attention):
    """Encoder-decoder attention; keys and values are projected once per sentence from the encoder's width."""

    def __init__(
        self, dim: int, memory_dim: int, qkv_dim: int, num_heads: int, *, leaves: Leaves, dropout: Dropout
    ) -> None:
        super().__init__(dim, qkv_dim, num_heads, leaves=leaves, dropout=dropout)
        self.q_proj = leaves.linear(dim, qkv_dim)
        self.kv_proj = leaves.linear(memory_dim, 2 * qkv_dim, num_blocks=2)

    def keys_values(self, memory: Tensor) -> KeyValue:
        """Project ``memory [B, M, D_encoder]`` to keys and values."""
        key, value = (self.split_heads(part) for part in self.kv_proj(memory).chunk(2, -1))
        return key, value

    def forward(self, x: Tensor, memory: KeyValue, mask: Tensor | None) -> Tensor:
        """Attend ``x [B, T, D]`` to the projected memory."""
        return self.attend(self.split_heads(self.q_proj(x)), memory, mask)
