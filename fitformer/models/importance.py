"""Which channels matter most, and the reordering of a SuperTransformer that every first-N slice then keeps them by.

Feed-forward channels can be put into any order without changing what the largest architecture computes, if the rows of
``fc1`` and the columns of ``fc2`` move together. So can heads, and within a head the channels of queries with keys and
those of values with the output projection (Cai et al. 2020, "Once-for-all", section 3.3, for convolutions; Hou et al.
2020, "DynaBERT", for heads and feed-forward channels). The widths of the layers themselves stay in place: the columns
of the sinusoidal position table have their order.

A channel's importance is the product of the norms of its weights before and after the activation (the path norm): for
ReLU, values, queries and keys alike, scaling one side up and the other down changes nothing, and nor does the product.
A head's importance is the sum over its value channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fitformer.models.attention import Attention, CrossAttention, SelfAttention
from fitformer.models.layers import Block
from fitformer.models.super_transformer import SuperTransformer


@dataclass(frozen=True)
class Reordering:
    """New order of a parameter's rows (axis 0) or columns (axis 1): position i receives what was at ``order[i]``."""

    parameter: Tensor
    axis: int
    order: Tensor

    def apply(self, tensor: Tensor) -> None:
        """Reorder, in place, the parameter or something of its shape, such as an optimizer's moment."""
        with torch.no_grad():
            tensor.copy_(tensor.index_select(self.axis, self.order))


def reorderings(model: SuperTransformer) -> list[Reordering]:
    """What puts the most important heads and channels of every layer of the largest architecture first.

    Each parameter's rows and columns occur at most once, so that the order of the list does not matter. Equal
    importance keeps the present order.
    """
    model.set_active(model.space.largest())
    found: list[Reordering] = []
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Block):
                found += _feed_forward(module)
            elif isinstance(module, Attention):
                found += _attention(module)
    return found


def _feed_forward(block: Block) -> Iterator[Reordering]:
    importance = block.fc1.weight.norm(dim=1) * block.fc2.weight.norm(dim=0)
    yield from _together(_descending(importance), rows=block.fc1, columns=block.fc2)


def _attention(attention: Attention) -> Iterator[Reordering]:
    query, key, value = _query_key_value(attention)
    values = value.norm(dim=1) * attention.out_proj.weight.norm(dim=0)
    matches = query.norm(dim=1) * key.norm(dim=1)
    heads = _descending(values.view(attention.num_heads, -1).sum(1))
    value_order, match_order = (_within_heads(part, heads) for part in (values, matches))
    if isinstance(attention, SelfAttention):
        yield from _rows(attention.in_proj, match_order, match_order, value_order)
    else:
        assert isinstance(attention, CrossAttention)
        yield from _rows(attention.q_proj, match_order)
        yield from _rows(attention.kv_proj, match_order, value_order)
    yield Reordering(attention.out_proj.weight, 1, value_order)


def _query_key_value(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """The three projections, ``[Q, D]`` each."""
    if isinstance(attention, SelfAttention):
        query, key, value = attention.in_proj.weight.chunk(3)
        return query, key, value
    assert isinstance(attention, CrossAttention)
    key, value = attention.kv_proj.weight.chunk(2)
    return attention.q_proj.weight, key, value


def _within_heads(importance: Tensor, heads: Tensor) -> Tensor:
    """The order of all channels in which the heads come as given, and each one's channels by their importance."""
    by_head = importance.view(len(heads), -1)
    first = torch.arange(len(heads), device=heads.device)[:, None] * by_head.size(1)
    return (_descending(by_head) + first)[heads].flatten()


def _together(order: Tensor, *, rows: nn.Linear, columns: nn.Linear) -> Iterator[Reordering]:
    yield from _rows(rows, order)
    yield Reordering(columns.weight, 1, order)


def _rows(linear: nn.Linear, *orders: Tensor) -> Iterator[Reordering]:
    """Reorder the outputs of a projection, block by block."""
    size = len(orders[0])
    order = torch.cat([block * size + order for block, order in enumerate(orders)])
    yield Reordering(linear.weight, 0, order)
    yield Reordering(linear.bias, 0, order)


def _descending(importance: Tensor) -> Tensor:
    return importance.sort(dim=-1, descending=True, stable=True).indices
