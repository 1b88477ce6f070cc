"""Against PyTorch's own attention, layers and Transformer with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fitformer.models import Transformer, TransformerConfig
from fitformer.models.attention import CrossAttention, SelfAttention
from fitformer.models.dropout import Dropout, MaskPool
from fitformer.models.elastic import PLAIN
from fitformer.models.layers import DecoderLayer, EncoderLayer
from fitformer.models.transformer import padding_mask, sinusoidal_positions
from fitformer.space import Architecture

NORMS = pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
NO_DROPOUT = Dropout(0.0, MaskPool())


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def randomise(module: nn.Module) -> None:
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(0.3 * randn(*parameter.shape, seed=index) + (parameter.dim() == 1))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def renamed(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Our keys under PyTorch's: ``names`` maps leading parts, of which the first that fits is replaced."""
    result = {}
    for key, value in state.items():
        ours = next(name for name in names if key.startswith(name))
        result[names[ours] + key[len(ours) :]] = value
    return result


def torch_layer_state(layer: nn.Module) -> dict[str, Tensor]:
    """The state of an encoder or decoder layer as nn.Transformer{En,De}coderLayer has it."""
    names = {
        "self_attn.in_proj.": "self_attn.in_proj_",
        "self_attn.out_proj.": "self_attn.out_proj.",
        "cross_attn.out_proj.": "multihead_attn.out_proj.",
        "fc1.": "linear1.",
        "fc2.": "linear2.",
        "self_attn_norm.": "norm1.",
        "cross_attn_norm.": "norm2.",
        "ffn_norm.": "norm3." if isinstance(layer, DecoderLayer) else "norm2.",
    }
    state = layer.state_dict()
    cross = {key: state.pop(key) for key in list(state) if key.startswith(("cross_attn.q_", "cross_attn.kv_"))}
    result = renamed(state, names)
    for kind in ("weight", "bias") if cross else ():
        parts = (cross[f"cross_attn.q_proj.{kind}"], cross[f"cross_attn.kv_proj.{kind}"])
        result[f"multihead_attn.in_proj_{kind}"] = torch.cat(parts)
    return result


# -- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_self_attention_equals_torch(heads: int, causal: bool) -> None:
    ours = SelfAttention(24, 24, heads, leaves=PLAIN, dropout=NO_DROPOUT)
    randomise(ours)
    reference = nn.MultiheadAttention(24, heads, batch_first=True)
    reference.load_state_dict(renamed(ours.state_dict(), {"in_proj.": "in_proj_", "out_proj.": "out_proj."}))
    x, padded = randn(3, 6, 24), torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] + [True] * 5])
    mask = torch.zeros(3, 1, 1, 6).masked_fill(padded[:, None, None], float("-inf"))
    if causal:
        future = torch.ones(6, 6, dtype=torch.bool).triu(1)
        close(ours(x, is_causal=True)[0], reference(x, x, x, attn_mask=future, need_weights=False)[0])
    else:
        close(ours(x, mask=mask)[0], reference(x, x, x, key_padding_mask=padded, need_weights=False)[0])


@pytest.mark.parametrize("heads", [1, 4])
@torch.no_grad()
def test_cross_attention_equals_torch_with_a_memory_of_another_width(heads: int) -> None:
    ours = CrossAttention(24, 40, 24, heads, leaves=PLAIN, dropout=NO_DROPOUT)
    randomise(ours)
    reference = nn.MultiheadAttention(24, heads, kdim=40, vdim=40, batch_first=True)
    reference.load_state_dict(
        {
            "q_proj_weight": ours.q_proj.weight,
            "k_proj_weight": ours.kv_proj.weight[:24],
            "v_proj_weight": ours.kv_proj.weight[24:],
            "in_proj_bias": torch.cat((ours.q_proj.bias, ours.kv_proj.bias)),
            "out_proj.weight": ours.out_proj.weight,
            "out_proj.bias": ours.out_proj.bias,
        }
    )
    x, memory = randn(2, 5, 24), randn(2, 7, 40, seed=1)
    padded = torch.tensor([[False] * 7, [False] * 3 + [True] * 4])
    mask = torch.zeros(2, 1, 1, 7).masked_fill(padded[:, None, None], float("-inf"))
    expected = reference(x, memory, memory, key_padding_mask=padded, need_weights=False)[0]
    close(ours(x, ours.keys_values(memory), mask), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_dropout_equals_attention_without_when_nothing_is_dropped(causal: bool) -> None:
    """The path with dropout multiplies out what the fused kernel does; with a vanishing rate both must agree."""
    dropped = SelfAttention(24, 32, 4, leaves=PLAIN, dropout=Dropout(1e-12, MaskPool()))
    randomise(dropped)
    x = randn(3, 6, 24).requires_grad_()
    mask = None if causal else padding_mask(torch.tensor([[5, 5, 5, 5, 5, 3], [5, 5, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0]]))
    results = []
    for training in (True, False):
        output = dropped.train(training)(x, mask=mask, is_causal=causal)[0]
        results.append((output.detach(), torch.autograd.grad(output.square().sum(), x)[0]))
    close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-3)


def test_bfloat16_attention_on_a_cpu_is_computed_in_float32() -> None:
    """The fused kernel's backward pass is many times slower in bfloat16; the detour must not change the result."""
    module = SelfAttention(24, 24, 4, leaves=PLAIN, dropout=NO_DROPOUT)
    randomise(module)
    x = randn(2, 6, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        low = module(x)[0]
    torch.testing.assert_close(low.float(), module(x)[0].detach(), rtol=0.05, atol=0.1)


# -- layers and the whole model ---------------------------------------------------------------------------------------


@NORMS
@torch.no_grad()
def test_an_encoder_layer_equals_torch(pre_norm: bool) -> None:
    arch = Architecture.from_text("enc 24: 40/24/4 | dec 24: 40/24/4/4@0")
    config = TransformerConfig(8, 8, pre_norm=pre_norm)
    ours = EncoderLayer(arch, 0, config=config, leaves=PLAIN, pool=MaskPool()).eval()
    randomise(ours)
    reference = nn.TransformerEncoderLayer(24, 4, 40, 0.0, norm_first=pre_norm, batch_first=True)
    reference.load_state_dict(torch_layer_state(ours))
    x, source = randn(3, 6, 24), torch.tensor([[5, 5, 5, 5, 5, 3], [5, 5, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0]])
    real = source != 0
    # In training mode PyTorch takes its ordinary path; its fast path for inference skips padding in another way.
    close(ours(x, padding_mask(source))[real], reference.train()(x, src_key_padding_mask=~real)[real])


@NORMS
@torch.no_grad()
def test_a_decoder_layer_equals_torch(pre_norm: bool) -> None:
    arch = Architecture.from_text("enc 24: 40/24/4 | dec 24: 40/24/2/2@0")
    config = TransformerConfig(8, 8, pre_norm=pre_norm)
    ours = DecoderLayer(arch, 0, config=config, leaves=PLAIN, pool=MaskPool()).eval()
    randomise(ours)
    reference = nn.TransformerDecoderLayer(24, 2, 40, 0.0, norm_first=pre_norm, batch_first=True).train()
    reference.load_state_dict(torch_layer_state(ours))
    x, memory = randn(2, 5, 24), randn(2, 7, 24, seed=1)
    source = torch.tensor([[5] * 6 + [3], [5, 5, 3, 0, 0, 0, 0]])
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = reference(x, memory, tgt_mask=future, memory_key_padding_mask=source == 0)
    close(ours(x, ours.cross_attn.keys_values(memory), padding_mask(source))[0], expected)


@torch.no_grad()
def test_a_whole_pre_norm_model_equals_torch() -> None:
    layer = "40/24/4 40/24/4 40/24/4"
    arch = Architecture.from_text(f"enc 24: {layer} | dec 24: " + " ".join(["40/24/4/4@2"] * 3))
    ours = Transformer(TransformerConfig(19, 19), arch).eval()
    randomise(ours)
    layer_of_theirs = nn.TransformerEncoderLayer(24, 4, 40, 0.0, norm_first=True, batch_first=True)
    encoder = nn.TransformerEncoder(layer_of_theirs, 3, nn.LayerNorm(24), enable_nested_tensor=False)
    reference = nn.Transformer(24, 4, 3, 3, 40, 0.0, batch_first=True, norm_first=True, custom_encoder=encoder).train()
    for side, layers in (("encoder", ours.encoder_layers), ("decoder", ours.decoder_layers)):
        for index, block in enumerate(layers):
            getattr(reference, side).layers[index].load_state_dict(torch_layer_state(block))
        getattr(reference, side).norm.load_state_dict(getattr(ours, side).norm.state_dict())
    source, target = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]]), torch.tensor([[2, 5, 6, 7], [2, 8, 9, 10]])
    table, positions = ours.encoder.embed_tokens.weight, sinusoidal_positions(5, 24)
    hidden = reference(
        24**0.5 * table[source] + positions,
        24**0.5 * table[target] + positions[:4],
        tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1),
        src_key_padding_mask=source == 0,
        memory_key_padding_mask=source == 0,
    )
    close(ours(source, target), hidden @ table.t())
