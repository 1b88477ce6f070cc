"""A search that runs in milliseconds: losses and latencies are formulas."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fitformer.space import Architecture, SearchSpace


@dataclass
class FormulaModel:
    """Deeper and wider is better, with a taste for wide decoders at the end; keeps what it was asked."""

    asked: list[Architecture] = field(default_factory=list)

    def loss(self, arch: Architecture) -> float:
        size = sum(arch.encoder_ffn_dim) + 2 * sum((i + 1) * f for i, f in enumerate(arch.decoder_ffn_dim))
        heads = sum(arch.decoder_self_heads) - 0.5 * sum(arch.decoder_cross_heads)
        width = arch.encoder_embed_dim + 1.5 * arch.decoder_embed_dim
        return 6 - 0.0004 * size - 0.004 * width - 0.01 * heads - 0.02 * arch.encoder_num_layers

    def fitness(self, arch: Architecture) -> float:
        self.asked.append(arch)
        return self.loss(arch)

    @staticmethod
    def cost(arch: Architecture) -> float:
        decoder, encoder = arch.decoder_embed_dim * sum(arch.decoder_ffn_dim), sum(arch.encoder_ffn_dim)
        spans = sum(len(layers) for layers in arch.decoder_cross_layers)
        return 3 + arch.decoder_num_layers + 5e-5 * decoder + 1e-3 * encoder + 0.2 * spans


@pytest.fixture
def model() -> FormulaModel:
    return FormulaModel()


@pytest.fixture
def space() -> SearchSpace:
    return SearchSpace(
        encoder_embed_dim=(64, 96),
        decoder_embed_dim=(64, 96),
        encoder_num_layers=(2, 3),
        decoder_num_layers=(1, 2, 3),
        encoder_ffn_dim=(128, 256, 512),
        encoder_qkv_dim=(64, 128),
        encoder_num_heads=(2, 4),
        decoder_ffn_dim=(128, 256, 512),
        decoder_qkv_dim=(64, 128),
        decoder_self_heads=(2, 4),
        decoder_cross_heads=(2, 4),
        decoder_cross_span=(1, 2),
    )


@pytest.fixture
def tiny_space() -> SearchSpace:
    return SearchSpace(
        encoder_embed_dim=(64,),
        decoder_embed_dim=(64, 96),
        encoder_num_layers=(2,),
        decoder_num_layers=(1, 2),
        encoder_ffn_dim=(128, 256),
        encoder_qkv_dim=(64,),
        encoder_num_heads=(2,),
        decoder_ffn_dim=(128, 256, 512),
        decoder_qkv_dim=(64,),
        decoder_self_heads=(2,),
        decoder_cross_heads=(2,),
        decoder_cross_span=(1,),
    )
