"""Reordering channels and heads by importance: invisible to the largest architecture, best first for all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fitformer.models import SuperTransformer
from fitformer.models.attention import Attention
from fitformer.models.importance import reorderings
from fitformer.models.layers import Block
from fitformer.space import Architecture

MakeSuper = Callable[..., SuperTransformer]
MakeBatch = Callable[..., tuple[Tensor, Tensor]]


def sort(model: SuperTransformer) -> None:
    for reordering in reorderings(model):
        reordering.apply(reordering.parameter)


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_architecture_computes_what_it_did(
    make_super: MakeSuper, make_batch: MakeBatch, share: str, pre_norm: bool, seed: int
) -> None:
    """In float64: nothing but the order of sums differs."""
    model = make_super(seed=seed, share_embeddings=share, pre_norm=pre_norm).double()
    model.set_active(model.space.largest())
    before = model(*make_batch(seed, lengths=(6, 6)))
    weights = {name: value.clone() for name, value in model.named_parameters()}
    sort(model)
    model.set_active(model.space.largest())
    torch.testing.assert_close(model(*make_batch(seed, lengths=(6, 6))), before, rtol=1e-12, atol=1e-12)
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, weights[name])}
    assert {name.split(".")[-2] for name in moved} >= {"in_proj", "out_proj", "q_proj", "kv_proj", "fc1", "fc2"}
    assert not any("norm" in name or "embed" in name for name in moved)


def test_its_gradients_move_with_the_weights(make_super: MakeSuper, make_batch: MakeBatch) -> None:
    model = make_super().double()
    found = reorderings(model)
    model(*make_batch(lengths=(6, 6))).square().sum().backward()
    expected: dict[Tensor, Tensor | None] = {parameter: parameter.grad for parameter in model.parameters()}
    for reordering in found:
        gradient = expected[reordering.parameter]
        assert gradient is not None
        reordering.apply(gradient)
        reordering.apply(reordering.parameter)
    expected = {parameter: None if value is None else value.clone() for parameter, value in expected.items()}
    model.zero_grad()
    model(*make_batch(lengths=(6, 6))).square().sum().backward()
    for parameter, gradient in expected.items():
        assert parameter.grad is not None and gradient is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-10)


def test_sorting_twice_is_sorting_once(make_super: MakeSuper) -> None:
    model = make_super()
    sort(model)
    once = {name: value.clone() for name, value in model.named_parameters()}
    sort(model)
    assert all(torch.equal(value, once[name]) for name, value in model.named_parameters())


def test_a_narrower_feed_forward_network_keeps_the_channels_with_the_largest_norms(make_super: MakeSuper) -> None:
    model = make_super()
    layer = model.encoder_layers[0]
    norms = (layer.fc1.weight.norm(dim=1) * layer.fc2.weight.norm(dim=0)).detach()
    sort(model)
    sorted_norms = (layer.fc1.weight.norm(dim=1) * layer.fc2.weight.norm(dim=0)).detach()
    torch.testing.assert_close(sorted_norms, norms.sort(descending=True).values)


def test_half_the_width_of_attention_is_its_two_best_heads(make_super: MakeSuper, make_batch: MakeBatch) -> None:
    """With heads of the same size, a slice of half the channels is the largest's attention without two heads."""
    model = make_super().double()
    largest = model.space.largest()
    attention = model.encoder_layers[1].self_attn
    with torch.no_grad():  # heads 1 and 3 of four stand out
        for head, factor in enumerate((0.1, 3.0, 0.2, 2.0)):
            attention.out_proj.weight[:, 8 * head : 8 * head + 8] *= factor
    sort(model)

    x = torch.randn(2, 5, largest.encoder_embed_dim, dtype=torch.float64)
    kept = _with(largest, encoder_qkv_dim=(32, 16, 32), encoder_num_heads=(4, 2, 4))
    model.set_active(kept)
    narrow = attention(x)[0]
    model.set_active(largest)
    with torch.no_grad():
        attention.out_proj.weight[:, 16:] = 0.0
    torch.testing.assert_close(narrow, attention(x)[0], rtol=1e-12, atol=1e-12)


def test_the_heads_that_stand_out_come_first(make_super: MakeSuper) -> None:
    model = make_super()
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    assert len(attentions) == 9  # three layers of the encoder, three of the decoder with two each
    marked = []
    for attention in attentions:
        assert attention.num_heads == 4
        with torch.no_grad():
            attention.out_proj.weight[:, 8:16] *= 50.0
        marked.append(attention.out_proj.weight[:, 8:16].detach().clone())
    sort(model)
    for attention, columns in zip(attentions, marked, strict=True):
        first = attention.out_proj.weight[:, :8]
        assert sorted(first.abs().sum(0).tolist()) == pytest.approx(sorted(columns.abs().sum(0).tolist()))


def test_a_dead_channel_goes_last_whatever_its_incoming_weights(make_super: MakeSuper) -> None:
    model = make_super()
    for module in model.modules():
        if isinstance(module, Block):
            with torch.no_grad():
                module.fc1.weight[0] *= 1000.0
                module.fc2.weight[:, 0] = 0.0
    sort(model)
    for module in model.modules():
        if isinstance(module, Block):
            assert not module.fc2.weight[:, -1].any()


def _with(arch: Architecture, **changes: object) -> Architecture:
    return Architecture.from_dict({**arch.to_dict(), **changes})
