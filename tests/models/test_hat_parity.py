"""Against the original HAT code: outputs and losses that it computed, for SubTransformers of two SuperTransformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fitformer.models import SuperTransformer, TransformerConfig
from fitformer.models.transformer import sinusoidal_positions
from fitformer.space import Architecture, SearchSpace
from fitformer.tasks.loss import projected_cross_entropy

HAT_PAD = 1
POSITION_OFFSET = HAT_PAD + 1  # HAT's first token has row 2 of the table


def to_our_ids(ids: Tensor, *, left_padded: bool = False) -> Tensor:
    """HAT's padding is 1, ours 0: the two ids change places, in the tables too. Sources become right-padded."""
    if left_padded:
        ids = torch.stack([row.roll(-int((row == HAT_PAD).sum())) for row in ids])
    return torch.where(ids == HAT_PAD, 0, torch.where(ids == 0, HAT_PAD, ids))


def swapped(table: Tensor) -> Tensor:
    return table[torch.tensor([1, 0, *range(2, len(table))])]


def hat_model(fixture: dict[str, Any]) -> SuperTransformer:
    """The original SuperTransformer as ours; only the position of the first token is set from outside."""
    args, state = fixture["args"], fixture["state_dict"]
    space = SearchSpace(
        encoder_embed_dim=(args["encoder_embed_dim"],),
        decoder_embed_dim=(args["decoder_embed_dim"],),
        encoder_num_layers=(args["encoder_layers"],),
        decoder_num_layers=(args["decoder_layers"],),
        encoder_ffn_dim=(args["encoder_ffn_embed_dim"],),
        encoder_qkv_dim=(args["qkv_dim"],),
        encoder_num_heads=(args["encoder_attention_heads"],),
        decoder_ffn_dim=(args["decoder_ffn_embed_dim"],),
        decoder_qkv_dim=(args["qkv_dim"],),
        decoder_self_heads=(args["decoder_attention_heads"],),
        decoder_cross_heads=(args["decoder_attention_heads"],),
    )
    share = "all" if args["share_all_embeddings"] else "none"
    model = SuperTransformer(
        TransformerConfig(*fixture["V"], share_embeddings=share, pre_norm=False, max_positions=16), space
    )
    model.load_state_dict(dict(hat_state(state, share)))
    for stack in (model.encoder, model.decoder):
        stack.positions = sinusoidal_positions(16 + POSITION_OFFSET, stack.positions.size(1))[POSITION_OFFSET:]
    return model.eval()


def hat_state(state: dict[str, Tensor], share: str) -> list[tuple[str, Tensor]]:
    names = {
        "self_attn.in_proj_": "self_attn.in_proj.",
        "self_attn.out_proj.": "self_attn.out_proj.",
        "self_attn_layer_norm.": "self_attn_norm.",
        "encoder_attn.out_proj.": "cross_attn.out_proj.",
        "encoder_attn_layer_norm.": "cross_attn_norm.",
        "final_layer_norm.": "ffn_norm.",
        "fc1.": "fc1.",
        "fc2.": "fc2.",
    }
    tables = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    found = [(table, swapped(state[table])) for table in tables]
    if share == "none":
        found.append(("output.weight", swapped(state["decoder.embed_out"])))
    for key, value in state.items():
        side, _, rest = key.partition(".layers.")
        index, _, leaf = rest.partition(".")
        new = f"{side}.layers.{index}."
        if leaf.startswith("encoder_attn.in_proj_"):
            kind, q = leaf.removeprefix("encoder_attn.in_proj_"), len(value) // 3
            found += [(f"{new}cross_attn.q_proj.{kind}", value[:q]), (f"{new}cross_attn.kv_proj.{kind}", value[q:])]
        elif leaf == "encoder_attn.q_proj_weight":
            found.append((f"{new}cross_attn.q_proj.weight", value))
            keys, values = (state[key.replace(".q_", f".{letter}_")] for letter in "kv")
            found.append((f"{new}cross_attn.kv_proj.weight", torch.cat((keys, values))))
        elif (leaf and not leaf.startswith("encoder_attn.")) or leaf.startswith("encoder_attn.out_proj."):
            theirs = next(name for name in names if leaf.startswith(name))
            found.append((new + names[theirs] + leaf[len(theirs) :], value))
    return found


def hat_architecture(config: dict[str, Any], qkv_dim: int, super_depth: int) -> Architecture:
    """HAT's list of encoder outputs has an entry per SUPER layer; unused layers repeat the last active one."""
    encoder, decoder = config["encoder"], config["decoder"]
    e, d = encoder["encoder_layer_num"], decoder["decoder_layer_num"]
    outputs = [min(index, e - 1) for index in range(super_depth)]
    spans = {-1: outputs[-1:], 1: outputs[-1:-3:-1], 2: outputs[-1:-4:-1]}
    return Architecture(
        encoder["encoder_embed_dim"],
        decoder["decoder_embed_dim"],
        tuple(encoder["encoder_ffn_embed_dim"][:e]),
        (qkv_dim,) * e,
        tuple(encoder["encoder_self_attention_heads"][:e]),
        tuple(decoder["decoder_ffn_embed_dim"][:d]),
        (qkv_dim,) * d,
        tuple(decoder["decoder_self_attention_heads"][:d]),
        tuple(decoder["decoder_ende_attention_heads"][:d]),
        tuple((e - 1, *spans[value][1:]) for value in decoder["decoder_arbitrary_ende_attn"][:d]),
    )


@pytest.fixture
def load_hat(shared_data: Path) -> Callable[[str], dict[str, Any]]:
    def load(name: str) -> dict[str, Any]:
        path = shared_data / "hat" / "fixtures" / f"{name}.pt"
        if not path.exists():
            pytest.skip(f"no {path}: HAT's fixtures are not in FITFORMER_DATA")
        return torch.load(path, weights_only=True)  # type: ignore[no-any-return]

    return load


@pytest.mark.parametrize("case", range(4), ids=["full", "narrow encoder", "narrow decoder", "shallow encoder"])
@pytest.mark.parametrize("name", ["shared_embed", "diff_super_dims"])
@torch.no_grad()
def test_outputs_and_losses_equal_those_of_the_original_hat(
    load_hat: Callable[[str], dict[str, Any]], name: str, case: int
) -> None:
    fixture = load_hat(name)
    expected, model = fixture["cases"][case], hat_model(fixture)
    arch = hat_architecture(expected["config"], fixture["args"]["qkv_dim"], fixture["args"]["encoder_layers"])
    source, decoder_input = to_our_ids(fixture["src"], left_padded=True), to_our_ids(fixture["prev"])
    model.set_active(arch)
    target = to_our_ids(fixture["target"])
    real = target != 0
    for variant in (model, model.extract(arch)):
        for mine, theirs in ((variant.encoder, model.encoder), (variant.decoder, model.decoder)):
            mine.positions = theirs.positions
        logits = variant(source, decoder_input)
        original = swapped(expected["logits"].transpose(0, 2)).transpose(0, 2)
        torch.testing.assert_close(logits[real], original[real], rtol=1e-5, atol=5e-6)
        hidden = variant.features(source, decoder_input)[real]
        loss, nll = projected_cross_entropy(hidden, variant.output_weight(), target[real], smoothing=0.1)
        assert int(real.sum()) == expected["ntokens"]
        assert loss.item() == pytest.approx(expected["loss_sum"], rel=1e-5)
        assert nll.item() == pytest.approx(expected["nll_sum"], rel=1e-5)
