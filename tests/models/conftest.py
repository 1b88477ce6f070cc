"""Small models with every parameter random: initial norms of one and biases of zero would hide mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.space import Architecture, SearchSpace

# The encoder is wider than the decoder in the SuperTransformer; both orders and equality occur among the drawn ones.
SPACE = SearchSpace(
    encoder_embed_dim=(32, 24, 16),
    decoder_embed_dim=(24, 16),
    encoder_num_layers=(3, 2, 1),
    decoder_num_layers=(3, 2, 1),
    encoder_ffn_dim=(48, 32, 16),
    encoder_qkv_dim=(32, 16),
    encoder_num_heads=(4, 2, 1),
    decoder_ffn_dim=(48, 32, 16),
    decoder_qkv_dim=(32, 16),
    decoder_self_heads=(4, 2),
    decoder_cross_heads=(4, 2, 1),
    decoder_cross_span=(1, 2, 3),
)


def randomise(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 0.3 if parameter.dim() == 1 else parameter.size(1) ** -0.5
            parameter.copy_(noise * scale + (1.0 if name.endswith("norm.weight") else 0.0))


@pytest.fixture
def space() -> SearchSpace:
    return SPACE


@pytest.fixture
def draw() -> Callable[[int], Architecture]:
    """The architecture of a number."""
    return lambda number: SPACE.sample(random.Random(number))


@pytest.fixture
def make_config() -> Callable[..., TransformerConfig]:
    def make(**changes: Any) -> TransformerConfig:
        target = 29 if changes.get("share_embeddings", "all") == "all" else 23
        return TransformerConfig(29, target, **{"max_positions": 40, "dropout": 0.0, **changes})

    return make


@pytest.fixture
def make_super(make_config: Callable[..., TransformerConfig]) -> Callable[..., SuperTransformer]:
    """A SuperTransformer of ``space`` with random weights, in evaluation mode."""

    def make(*, seed: int = 0, **changes: Any) -> SuperTransformer:
        model = SuperTransformer(make_config(**changes), SPACE)
        randomise(model, seed)
        return model.eval()

    return make


@pytest.fixture
def make_plain(make_config: Callable[..., TransformerConfig]) -> Callable[..., Transformer]:
    """A plain Transformer of any architecture with random weights, in evaluation mode."""

    def make(arch: Architecture, *, seed: int = 0, **changes: Any) -> Transformer:
        model = Transformer(make_config(**changes), arch)
        randomise(model, seed)
        return model.eval()

    return make


@pytest.fixture
def make_batch() -> Callable[..., tuple[Tensor, Tensor]]:
    """Right-padded source ids and decoder inputs of unequal lengths; ids 4 to 22 are words of both vocabularies."""

    def make(seed: int = 0, *, lengths: tuple[int, ...] = (7, 4, 1), target_length: int = 6) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        source = torch.randint(4, 23, (len(lengths), max(lengths) + 1), generator=generator)
        for row, length in enumerate(lengths):
            source[row, length] = 3
            source[row, length + 1 :] = 0
        target = torch.randint(4, 23, (len(lengths), target_length), generator=generator)
        target[:, 0] = 2
        return source, target

    return make
