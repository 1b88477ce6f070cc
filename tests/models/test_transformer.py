"""The plain Transformer: positions, masks, incremental decoding, initialisation, configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fitformer.errors import InputError
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.models.elastic import ElasticEmbedding
from fitformer.models.transformer import padding_mask, sinusoidal_positions
from fitformer.space import Architecture

MakeSuper = Callable[..., SuperTransformer]
MakePlain = Callable[..., Transformer]
MakeBatch = Callable[..., tuple[Tensor, Tensor]]
Draw = Callable[[int], Architecture]

NORMS = pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
ARCH = Architecture.from_text("enc 24: 32/16/2 48/32/4 32/16/1 | dec 16: 32/16/2/4@2,1,0 48/32/4/2@2,1 32/16/2/1@2")


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def decode_stepwise(model: Transformer, source: Tensor, decoder_input: Tensor, chunks: list[int]) -> Tensor:
    state, hidden = model.encode(source), []
    for tokens in decoder_input.split(chunks, 1):
        x, state = model.decode(tokens, state)
        hidden.append(x)
    return torch.cat(hidden, 1) @ model.output_weight().t()


@NORMS
@torch.no_grad()
def test_incremental_equals_full_decoding(
    make_super: MakeSuper, make_plain: MakePlain, make_batch: MakeBatch, draw: Draw, pre_norm: bool
) -> None:
    supernet = make_super(pre_norm=pre_norm)
    for number in range(20):
        source, decoder_input = make_batch(number)
        supernet.set_active(draw(number))
        plain = make_plain(draw(number), seed=number, pre_norm=pre_norm, share_embeddings="none")
        for model in (supernet, plain):
            stepwise = decode_stepwise(model, source, decoder_input, [1] * decoder_input.size(1))
            close(stepwise, model(source, decoder_input))


@NORMS
@torch.no_grad()
def test_a_whole_prefix_can_be_decoded_before_single_steps(
    make_plain: MakePlain, make_batch: MakeBatch, pre_norm: bool
) -> None:
    model, (source, decoder_input) = make_plain(ARCH, pre_norm=pre_norm), make_batch()
    close(decode_stepwise(model, source, decoder_input, [4, 1, 1]), model(source, decoder_input))


@NORMS
@torch.no_grad()
def test_output_does_not_depend_on_padding_or_batch_mates(
    make_plain: MakePlain, make_batch: MakeBatch, draw: Draw, pre_norm: bool
) -> None:
    for number in range(20):
        model = make_plain(draw(number), seed=number, pre_norm=pre_norm)
        source, decoder_input = make_batch(number, lengths=(7, 4, 1, 6))
        together = model(source, decoder_input)
        for row in range(len(source)):
            length = int((source[row] != 0).sum())
            alone = model(source[row : row + 1, :length], decoder_input[row : row + 1])
            close(together[row : row + 1], alone)
            padded = nn.functional.pad(source[row : row + 1, :length], (0, 5))
            close(model(padded, decoder_input[row : row + 1]), alone)


@NORMS
@torch.no_grad()
def test_the_order_of_a_batch_does_not_matter(make_plain: MakePlain, make_batch: MakeBatch, pre_norm: bool) -> None:
    model, (source, decoder_input) = make_plain(ARCH, pre_norm=pre_norm), make_batch()
    order = torch.tensor([2, 0, 1])
    close(model(source[order], decoder_input[order]), model(source, decoder_input)[order])


@NORMS
@torch.no_grad()
def test_a_later_target_token_changes_no_earlier_output(
    make_plain: MakePlain, make_batch: MakeBatch, pre_norm: bool
) -> None:
    model, (source, decoder_input) = make_plain(ARCH, pre_norm=pre_norm), make_batch()
    logits = model(source, decoder_input)
    for position in range(1, decoder_input.size(1)):
        changed = decoder_input.clone()
        changed[:, position] = (changed[:, position] - 3) % 19 + 4
        again = model(source, changed)
        close(again[:, :position], logits[:, :position])
        assert not torch.allclose(again[:, position:], logits[:, position:], atol=1e-3)


@torch.no_grad()
def test_every_source_token_reaches_every_output(make_plain: MakePlain, make_batch: MakeBatch) -> None:
    model, (source, decoder_input) = make_plain(ARCH), make_batch(lengths=(7,))
    logits = model(source, decoder_input)
    for position in range(source.size(1)):
        changed = source.clone()
        changed[:, position] = (changed[:, position] - 3) % 19 + 4
        assert ((model(changed, decoder_input) - logits).abs().amax(-1) > 1e-4).all()


@pytest.mark.parametrize("pre_norm", [True, False])
@torch.no_grad()
def test_cross_attention_sees_the_named_encoder_layers_one_after_the_other(
    make_plain: MakePlain, make_batch: MakeBatch, pre_norm: bool
) -> None:
    """The memory of a span is the concatenation of the layers' memories; their order does not change the result."""
    one_layer = " | dec 16: 32/16/2/4@{}"
    text = ARCH.to_text().partition(" | ")[0] + one_layer
    source, decoder_input = make_batch()
    models = {
        layers: make_plain(Architecture.from_text(text.format(layers)), pre_norm=pre_norm)
        for layers in ("2,0", "0,2", "2", "0", "2,2")
    }
    keys = {layers: model.encode(source).cross[0][0] for layers, model in models.items()}
    assert torch.equal(keys["2,0"], torch.cat((keys["2"], keys["0"]), 2))
    logits = {layers: model(source, decoder_input) for layers, model in models.items()}
    close(logits["0,2"], logits["2,0"])
    close(logits["2,2"], logits["2"])  # softmax over doubled memory is the same mean
    assert not torch.allclose(logits["2,0"], logits["2"], atol=1e-3)
    assert not torch.allclose(logits["2"], logits["0"], atol=1e-3)


def test_positions_are_the_documented_sinusoids() -> None:
    table, half = sinusoidal_positions(50, 640), 320
    for position in (0, 1, 17, 49):
        for i in (0, 1, 100, 319):
            angle = position * math.exp(-i * math.log(10000) / (half - 1))
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, half + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


@torch.no_grad()
def test_a_position_offset_shifts_the_table_and_nothing_else(make_plain: MakePlain, make_batch: MakeBatch) -> None:
    plain, shifted = make_plain(ARCH), make_plain(ARCH, position_offset=2)
    assert shifted.encoder.positions.shape == plain.encoder.positions.shape
    assert torch.equal(shifted.decoder.positions[:-2], plain.decoder.positions[2:])
    source, decoder_input = make_batch()
    steps = [1] * decoder_input.size(1)
    close(decode_stepwise(shifted, source, decoder_input, steps), shifted(source, decoder_input))
    assert not torch.allclose(shifted(source, decoder_input), plain(source, decoder_input), atol=1e-3)


@torch.no_grad()
def test_only_the_first_memory_is_normalised_where_a_model_has_it_so(
    make_plain: MakePlain, make_batch: MakeBatch
) -> None:
    source, _ = make_batch()
    every, first = (make_plain(ARCH, pre_norm=True, norm_every_memory=norm) for norm in (True, False))
    length = source.size(1)
    for wanted, found in zip(every.encode(source).cross, first.encode(source).cross, strict=True):
        close(found[0][:, :, :length], wanted[0][:, :, :length])
        if wanted[0].size(2) > length:
            assert not torch.allclose(found[0][:, :, length:], wanted[0][:, :, length:], atol=1e-2)
    post = (make_plain(ARCH, pre_norm=False, norm_every_memory=norm).encode(source) for norm in (True, False))
    assert torch.equal(*(state.cross[0][0] for state in post))


def test_positions_of_an_odd_or_tiny_width_are_finite() -> None:
    assert sinusoidal_positions(5, 7)[:, 6].tolist() == [0.0] * 5
    for dim in (1, 2, 3):
        assert torch.isfinite(sinusoidal_positions(5, dim)).all()


@torch.no_grad()
def test_embedding_is_scaled_by_the_own_width_and_positions_come_from_the_reference_width(
    make_super: MakeSuper,
) -> None:
    supernet, ids = make_super(), torch.tensor([[5, 6, 3]])
    supernet.set_active(Architecture.from_text("enc 16: 16/16/2 | dec 16: 16/16/2/2@0"))
    expected = 4.0 * supernet.encoder.embed_tokens.weight[ids][..., :16] + sinusoidal_positions(3, 32)[:, :16]
    close(supernet.encoder.embed(ids), expected)
    extracted = supernet.extract(supernet.arch)
    close(extracted.encoder.embed(ids), expected)
    close(extracted.decoder.embed(ids, 2)[0, 0] - 4.0 * extracted.decoder.embed_tokens.weight[5, :16],
          sinusoidal_positions(3, 24)[2, :16])  # fmt: skip


def test_a_batch_without_padding_needs_no_mask() -> None:
    assert padding_mask(torch.tensor([[5, 3], [6, 3]])) is None
    mask = padding_mask(torch.tensor([[5, 3], [3, 0]]))
    assert mask is not None
    assert mask.squeeze().tolist() == [[0.0, 0.0], [0.0, float("-inf")]]


@torch.no_grad()
def test_there_is_a_final_norm_in_pre_norm_only(make_plain: MakePlain, make_batch: MakeBatch) -> None:
    assert isinstance(make_plain(ARCH, pre_norm=True).decoder.norm, nn.LayerNorm)
    post_norm = make_plain(ARCH, pre_norm=False)
    assert not isinstance(post_norm.encoder.norm, nn.LayerNorm)
    assert not isinstance(post_norm.decoder.norm, nn.LayerNorm)


def test_initial_weights_follow_hat(make_config: Callable[..., TransformerConfig]) -> None:
    """Xavier-uniform matrices (a packed projection as one), zero biases, tables N(0, 1 / width) with a zero pad row."""
    torch.manual_seed(0)
    arch = Architecture.from_text("enc 64: 128/64/4 | dec 48: 96/32/4/4@0")
    model = Transformer(TransformerConfig(500, 600, share_embeddings="none"), arch)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            fan_out, fan_in = module.weight.shape
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert 0.97 * bound < module.weight.abs().max().item() <= bound
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
            assert not module.bias.any()
        if isinstance(module, ElasticEmbedding):
            assert not module.weight[0].any()
            assert module.weight[1:].std().item() == pytest.approx(module.embedding_dim**-0.5, rel=0.02)


def test_one_shared_table_is_as_wide_as_the_wider_side(make_plain: MakePlain) -> None:
    model = make_plain(ARCH, share_embeddings="all")
    assert model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    assert model.encoder.embed_tokens.weight.shape == (29, 24)
    assert model.output_weight().shape == (29, 16)


def test_config_round_trips_through_json(make_config: Callable[..., TransformerConfig]) -> None:
    config = make_config(share_embeddings="none", pre_norm=False, dropout=0.3, encoder_reference_dim=64)
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_config_of_before_the_later_fields_is_read_as_it_was_meant() -> None:
    config = TransformerConfig.from_dict({"source_vocab_size": 8, "target_vocab_size": 8})
    assert (config.position_offset, config.start_id, config.norm_every_memory) == (0, 2, True)


def test_config_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"model\.share_embeddings: 'both' must be one of all, decoder, none"):
        TransformerConfig(8, 8, share_embeddings="both")
    with pytest.raises(InputError, match="'all' needs one vocabulary"):
        TransformerConfig(8, 9)
    with pytest.raises(InputError, match=r"model\.start_id: 4 must be 2 \(begin\) or 3"):
        TransformerConfig(8, 8, start_id=4)
    with pytest.raises(InputError, match=r"model\.position_offset: -1 must be a whole number"):
        TransformerConfig(8, 8, position_offset=-1)
    with pytest.raises(InputError, match=r"unknown fields \['rotary'\].*newer fitformer"):
        TransformerConfig.from_dict({"source_vocab_size": 8, "target_vocab_size": 8, "rotary": True})


def test_model_without_reference_widths_takes_its_own(make_config: Callable[..., TransformerConfig]) -> None:
    config = Transformer(make_config(), ARCH).config
    assert (config.encoder_reference_dim, config.decoder_reference_dim) == (24, 16)
