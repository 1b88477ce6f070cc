"""The published figures of HAT are the first reference, PyTorch's own FLOP counter the second."""

from __future__ import annotations

import csv
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fitformer.errors import InputError
from fitformer.models import Transformer, TransformerConfig
from fitformer.space import Architecture, SearchSpace, counting

HAT_QKV = 512
MATRIX_PARTS = ("attention_projections", "attention_products", "feed_forward", "output_layer")
SPACE = SearchSpace(
    encoder_embed_dim=(16, 24),
    decoder_embed_dim=(16, 20),
    encoder_num_layers=(1, 2, 3),
    decoder_num_layers=(1, 2),
    encoder_ffn_dim=(8, 40),
    encoder_qkv_dim=(8, 16),
    encoder_num_heads=(1, 2),
    decoder_ffn_dim=(12, 32),
    decoder_qkv_dim=(8, 12),
    decoder_self_heads=(1, 2),
    decoder_cross_heads=(1, 4),
    decoder_cross_span=(1, 2, 3),
)
SMALL = Architecture.from_text("enc 8: 16/4/2 | dec 6: 10/4/2/1@0")


def from_hat(config: dict[str, Any]) -> Architecture:
    """A published configuration; arbitrary attention -1, 1, 2 means the last one, two, three encoder layers."""
    layers = {side: config[f"{side}-layer-num-subtransformer"] for side in ("encoder", "decoder")}

    def sizes(side: str, name: str) -> tuple[int, ...]:
        return tuple(config[f"{side}-{name}-all-subtransformer"][: layers[side]])

    last = layers["encoder"] - 1
    spans = [max(value, 0) + 1 for value in sizes("decoder", "arbitrary-ende-attn")]
    return Architecture(
        config["encoder-embed-dim-subtransformer"],
        config["decoder-embed-dim-subtransformer"],
        sizes("encoder", "ffn-embed-dim"),
        (HAT_QKV,) * layers["encoder"],
        sizes("encoder", "self-attention-heads"),
        sizes("decoder", "ffn-embed-dim"),
        (HAT_QKV,) * layers["decoder"],
        sizes("decoder", "self-attention-heads"),
        sizes("decoder", "ende-attention-heads"),
        tuple(tuple(range(last, last - span, -1)) for span in spans),
    )


def random_architectures(count: int) -> list[Architecture]:
    rng = random.Random(3)
    return [SPACE.sample(rng) for _ in range(count)]


def test_every_published_row_is_matched_to_its_two_decimals(shared_data: Path) -> None:
    with (shared_data / "hat/published.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 34
    for row in rows:
        file = shared_data / "hat/subtransformers" / f"{row['model']}.yml"
        arch = from_hat(yaml.safe_load(file.read_text(encoding="utf-8")))
        length = 23 if row["task"].startswith("IWSLT") else 30
        counts = counting.hat(arch, source_length=length, target_length=length)
        assert f"{counts.parameters.total / 1e6:.2f}" == row["params_m"], row["model"]
        assert f"{counts.flops / 1e9:.2f}" == row["flops_g"], row["model"]


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("enc 512:" + " 3072/512/8" * 6 + " | dec 512: 3072/512/8/8@5", 30_465_536),
        ("enc 640:" + " 3072/512/8" * 6 + " | dec 640:" + " 3072/512/8/8@5" * 3, 51_204_480),
    ],
)
def test_hat_parameters_equal_the_exact_figures_of_the_original_code(text: str, parameters: int) -> None:
    assert counting.hat(Architecture.from_text(text)).parameters.total == parameters


def test_hat_macs_equal_a_count_by_hand() -> None:
    encoder = 4 * 3 * 8 * 4 + 2 * 3 * 3 * 4 + 2 * 3 * 8 * 16 + 2 * 3 * 8 + 3 * 4
    self_attention = 4 * 2 * 6 * 4 + 2 * 2 * 2 * 4
    cross_attention = 2 * 2 * 6 * 4 + 2 * 3 * 8 * 4 + 2 * 2 * 3 * 4
    decoder = self_attention + cross_attention + 2 * 2 * 6 * 10 + 3 * 2 * 6 + 2 * 2 * 4
    embedding = 3 * 8 + 2 * 6 + 3 + 2
    assert counting.hat(SMALL, source_length=3, target_length=2).macs.total == encoder + decoder + embedding


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_total_parameters_equal_those_of_the_model(share: str, pre_norm: bool) -> None:
    for arch in random_architectures(10):
        target_vocab = 30 if share == "all" else 50
        config = TransformerConfig(30, target_vocab, share_embeddings=share, pre_norm=pre_norm, max_positions=16)
        model = Transformer(config, arch)
        counts = counting.total(
            arch, source_vocab_size=30, target_vocab_size=target_vocab, share_embeddings=share, pre_norm=pre_norm
        )
        assert counts.parameters.total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("beam", [1, 3])
def test_total_macs_equal_those_of_decoding_token_by_token(beam: int) -> None:
    for arch in random_architectures(5):
        model = Transformer(TransformerConfig(30, 30, max_positions=16), arch).eval()
        counted = FlopCounterMode(display=False)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counted:  # the fused kernel is not counted on a CPU
            state = model.encode(torch.full((1, 7), 5))
            weight = model.output_weight()
            for position in range(4):
                rows = 1 if position == 0 else beam
                hidden, state = model.decode(torch.full((rows, 1), 5), _rows(state, rows))
                hidden @ weight.t()
        counts = counting.total(
            arch, source_vocab_size=30, target_vocab_size=30, source_length=7, target_length=4, beam=beam
        )
        assert 2 * _matrix_macs(counts.macs) == counted.get_total_flops(), arch.to_text()


def test_hat_macs_without_per_element_extras_equal_those_of_a_teacher_forced_forward() -> None:
    for arch in random_architectures(5):
        model = Transformer(TransformerConfig(30, 30, max_positions=16), arch).eval()
        counted = FlopCounterMode(display=False)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counted:  # the fused kernel is not counted on a CPU
            model.features(torch.full((1, 7), 5), torch.full((1, 6), 5))
        counts = counting.hat(arch, source_length=7, target_length=6)
        assert 2 * _matrix_macs(counts.macs) == counted.get_total_flops(), arch.to_text()


def test_parts_add_up_to_the_total() -> None:
    counts = counting.total(SMALL, source_vocab_size=30, target_vocab_size=30)
    for operators in (counts.parameters, counts.macs):
        assert operators.total == sum(operators.to_dict().values())
        assert len(operators.to_dict()) == len(fields(operators))


def test_heads_cost_nothing() -> None:
    other = Architecture.from_text("enc 8: 16/4/1 | dec 6: 10/4/4/2@0")
    assert counting.hat(SMALL) == counting.hat(other)


def test_total_contains_everything_that_hat_counts_in_parameters() -> None:
    hat = counting.hat(SMALL).parameters.to_dict()
    everything = counting.total(SMALL, source_vocab_size=9, target_vocab_size=9).parameters.to_dict()
    assert all(everything[name] >= hat[name] for name in hat)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source_length": 0}, "source_length"),
        ({"target_length": -1}, "target_length"),
        ({"beam": 0}, "beam"),
        ({"target_vocab_size": 0}, "target_vocab_size"),
        ({"share_embeddings": "some"}, "share_embeddings"),
    ],
)
def test_impossible_values_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        counting.total(SMALL, **{"source_vocab_size": 9, "target_vocab_size": 9, **changes})


def _matrix_macs(operators: counting.Operators) -> int:
    return sum(getattr(operators, name) for name in MATRIX_PARTS)


def _rows(state: Any, rows: int) -> Any:
    """The state for ``rows`` hypotheses of its sentence."""

    def spread(pair: Any) -> Any:
        return None if pair is None else tuple(t.expand(rows, *t.shape[1:]) if len(t) == 1 else t for t in pair)

    return state._replace(cross=[spread(p) for p in state.cross], past=[spread(p) for p in state.past])
