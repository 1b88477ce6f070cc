"""Parameters and Mult-Adds counted in a live model equal the formulas, so that the two cannot drift apart.

PyTorch's own counter (``FlopCounterMode``) counts the matrix products, hooks count the elements that norms write, and
the parameters are those that the model has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fitformer.hat.configuration import from_architecture, parse_configuration, to_architecture
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.space import Architecture, SearchSpace, counting

VOCAB = 40
MATRIX_PARTS = ("attention_projections", "attention_products", "feed_forward", "output_layer")
# Like HAT's spaces, only smaller: one qkv width, three spans, different widths of encoder and decoder.
SPACE = SearchSpace(
    encoder_embed_dim=(24, 20),
    decoder_embed_dim=(24, 20),
    encoder_num_layers=(4, 3),
    decoder_num_layers=(4, 3, 2, 1),
    encoder_ffn_dim=(48, 32, 16),
    encoder_qkv_dim=(16,),
    encoder_num_heads=(4, 2),
    decoder_ffn_dim=(48, 32, 16),
    decoder_qkv_dim=(16,),
    decoder_self_heads=(4, 2),
    decoder_cross_heads=(4, 2),
    decoder_cross_span=(1, 2, 3),
)
RNG = random.Random(11)
ARCHITECTURES = [SPACE.smallest(), SPACE.largest(), *(SPACE.sample(RNG) for _ in range(6))]


def config(*, pre_norm: bool = False, share: str = "all") -> TransformerConfig:
    return TransformerConfig(VOCAB, VOCAB, share_embeddings=share, pre_norm=pre_norm, max_positions=32, dropout=0.0)


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """Matrix Mult-Adds and elements written by norms, as the two entries of the list once the block is left."""
    found, elements = [0, 0], 0

    def norm(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal elements
        elements += output.numel()

    norms = [part for part in model.modules() if "LayerNorm" in type(part).__name__]
    assert norms
    hooks = [part.register_forward_hook(norm) for part in norms]
    flops = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), flops:  # the fused kernel is not counted on a CPU
        yield found
    for hook in hooks:
        hook.remove()
    found[:] = [flops.get_total_flops() // 2, elements]


def matrix_macs(counts: counting.Counts) -> int:
    return sum(getattr(counts.macs, part) for part in MATRIX_PARTS)


def scalings(arch: Architecture, source: int, rows: int) -> int:
    """Elements of scaled embeddings and scaled queries: what no hook sees."""
    queries = source * sum(arch.encoder_qkv_dim) + 2 * rows * sum(arch.decoder_qkv_dim)
    return queries + source * arch.encoder_embed_dim + rows * arch.decoder_embed_dim


def repeated_norms(arch: Architecture, source: int, pre_norm: bool) -> int:
    """PyTorch normalises an attended encoder output for each memory that it is in, the shipped graph once."""
    memories = set(arch.decoder_cross_layers)
    again = sum(map(len, memories)) - len({index for memory in memories for index in memory})
    return again * source * arch.encoder_embed_dim if pre_norm else 0


@pytest.mark.parametrize("arch", ARCHITECTURES, ids=Architecture.to_text)
def test_hats_convention_is_that_of_a_live_model(arch: Architecture) -> None:
    model = Transformer(config(), arch).eval()
    own = sum(value.numel() for name, value in model.named_parameters() if ".layers." in name)
    source, target = 7, 5
    with counted(model) as found:
        model.features(torch.full((1, source), 5), torch.full((1, target), 5))
    counts = counting.hat(arch, source_length=source, target_length=target)
    assert counts.parameters.total == own
    assert matrix_macs(counts) == found[0]
    assert counts.macs.other == found[1] + scalings(arch, source, target) + source + target  # and the positions


@pytest.mark.parametrize("arch", ARCHITECTURES, ids=Architecture.to_text)
def test_the_supertransformer_does_the_work_of_the_active_architecture_only(arch: Architecture) -> None:
    model = SuperTransformer(config(), SPACE).eval()
    model.set_active(arch)
    with counted(model) as found:
        model.features(torch.full((1, 6), 5), torch.full((1, 8), 5))
    counts = counting.hat(arch, source_length=6, target_length=8)
    assert matrix_macs(counts) == found[0]
    extracted = model.extract(arch)
    own = sum(value.numel() for name, value in extracted.named_parameters() if ".layers." in name)
    assert counts.parameters.total == own


@pytest.mark.parametrize(("pre_norm", "share"), [(True, "all"), (False, "none"), (True, "decoder")])
def test_the_total_convention_is_that_of_decoding_a_live_model_greedily(pre_norm: bool, share: str) -> None:
    for arch in ARCHITECTURES:
        model = Transformer(config(pre_norm=pre_norm, share=share), arch).eval()
        source, target = 6, 4
        with counted(model) as found:
            state = model.encode(torch.full((1, source), 5))
            weight = model.output_weight()
            for _ in range(target):
                hidden, state = model.decode(torch.full((1, 1), 5), state)
                hidden @ weight.t()
        counts = counting.total(
            arch,
            source_vocab_size=VOCAB,
            target_vocab_size=VOCAB,
            share_embeddings=share,
            pre_norm=pre_norm,
            source_length=source,
            target_length=target,
        )
        assert counts.parameters.total == sum(value.numel() for value in model.parameters())
        assert matrix_macs(counts) == found[0], arch.to_text()
        norms = counts.macs.other - scalings(arch, source, target)
        assert norms == found[1] - repeated_norms(arch, source, pre_norm), arch.to_text()


def test_an_architecture_read_from_hats_own_form_counts_the_same() -> None:
    for arch in ARCHITECTURES:
        again = to_architecture(parse_configuration(from_architecture(arch)))
        assert counting.hat(again) == counting.hat(arch)
