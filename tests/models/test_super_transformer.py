"""The SuperTransformer: its slice is the extracted model, and a slice leaves everything outside it alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fitformer.models import SuperTransformer, Transformer
from fitformer.models.elastic import ElasticEmbedding, ElasticLayerNorm, ElasticLinear
from fitformer.space import Architecture, SearchSpace

MakeSuper = Callable[..., SuperTransformer]
MakePlain = Callable[..., Transformer]
MakeBatch = Callable[..., tuple[Tensor, Tensor]]
Draw = Callable[[int], Architecture]

SHARING = pytest.mark.parametrize("share", ["all", "decoder", "none"])
NORMS = pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])


@SHARING
@NORMS
@torch.no_grad()
def test_extracted_model_equals_the_slice_on_100_random_architectures(
    make_super: MakeSuper, make_batch: MakeBatch, draw: Draw, share: str, pre_norm: bool
) -> None:
    supernet, orders = make_super(share_embeddings=share, pre_norm=pre_norm), set()
    for number in range(100):
        arch = draw(number)
        orders.add(
            (arch.encoder_embed_dim > arch.decoder_embed_dim) - (arch.encoder_embed_dim < arch.decoder_embed_dim)
        )
        source, decoder_input = make_batch(number)
        supernet.set_active(arch)
        expected = supernet(source, decoder_input)
        extracted = supernet.extract(arch)
        torch.testing.assert_close(extracted(source, decoder_input), expected, rtol=1e-4, atol=1e-5, msg=arch.to_text())
        # Different architectures give different models, else the comparison would say nothing.
        supernet.set_active(draw(number + 1))
        if draw(number + 1) != arch:
            assert not torch.allclose(supernet(source, decoder_input), expected, atol=1e-2)
    assert orders == {-1, 0, 1}  # encoder narrower than, as wide as and wider than the decoder


@SHARING
@NORMS
def test_extracted_parameters_are_leading_slices_under_the_same_keys(
    make_super: MakeSuper, make_plain: MakePlain, draw: Draw, share: str, pre_norm: bool
) -> None:
    supernet = make_super(share_embeddings=share, pre_norm=pre_norm)
    stored = supernet.state_dict()
    for number in range(20):
        arch = draw(number)
        extracted = supernet.extract(arch).state_dict()
        assert list(extracted) == list(make_plain(arch, share_embeddings=share, pre_norm=pre_norm).state_dict())
        assert set(extracted) <= set(stored)
        for name, value in extracted.items():
            whole = stored[name]
            blocks = 3 if ".in_proj." in name else 2 if ".kv_proj." in name else 1
            whole = whole.unflatten(0, (blocks, -1))[:, : value.size(0) // blocks].flatten(0, 1)
            if value.dim() == 2:
                whole = whole[:, : value.size(1)]
            assert torch.equal(value, whole), name


def test_state_dict_keys_are_the_documented_ones(make_super: MakeSuper, space: SearchSpace) -> None:
    linear, norm = ("weight", "bias"), ("weight", "bias")
    layer = {"self_attn.in_proj": linear, "self_attn.out_proj": linear, "self_attn_norm": norm, "ffn_norm": norm}
    layer |= {"fc1": linear, "fc2": linear}
    cross = {f"cross_attn.{name}": linear for name in ("q_proj", "kv_proj", "out_proj")} | {"cross_attn_norm": norm}
    expected = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "output.weight"}
    expected |= {f"{side}.norm.{name}" for side in ("encoder", "decoder") for name in norm}
    for i in range(3):
        expected |= {f"encoder.layers.{i}.{leaf}.{name}" for leaf, names in layer.items() for name in names}
        expected |= {f"decoder.layers.{i}.{leaf}.{name}" for leaf, names in (layer | cross).items() for name in names}
    assert set(make_super(share_embeddings="none").state_dict()) == expected
    assert set(make_super(share_embeddings="decoder").state_dict()) == expected - {"output.weight"}
    post_norm = set(make_super(share_embeddings="none", pre_norm=False).state_dict())
    assert post_norm == {name for name in expected if not name.startswith(("encoder.norm.", "decoder.norm."))}


def test_a_shared_table_stays_shared_in_the_extracted_model(make_super: MakeSuper, draw: Draw) -> None:
    for number in range(10):
        extracted = make_super(share_embeddings="all").extract(draw(number))
        assert extracted.encoder.embed_tokens.weight is extracted.decoder.embed_tokens.weight
        assert extracted.output_weight().data_ptr() == extracted.encoder.embed_tokens.weight.data_ptr()


@torch.no_grad()
def test_extraction_leaves_the_active_architecture_and_the_weights_alone(
    make_super: MakeSuper, make_batch: MakeBatch, draw: Draw
) -> None:
    supernet, batch = make_super(), make_batch()
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    for number in range(10):
        supernet.set_active(draw(number))
        expected = supernet(*batch)
        extracted = supernet.extract(draw(number + 1))
        assert supernet.arch == draw(number)
        assert torch.equal(supernet(*batch), expected)
        for parameter in extracted.parameters():
            parameter.zero_()  # the weights are copies
    assert all(torch.equal(value, before[name]) for name, value in supernet.state_dict().items())


@torch.no_grad()
def test_an_architecture_can_be_activated_again_after_any_other(
    make_super: MakeSuper, make_batch: MakeBatch, draw: Draw, space: SearchSpace
) -> None:
    supernet, batch = make_super(), make_batch()
    expected = supernet(*batch)
    for number in range(10):
        supernet.set_active(draw(number))
        supernet.set_active(space.smallest())
        supernet.set_active(space.largest())
        assert torch.equal(supernet(*batch), expected)


def test_the_extracted_model_keeps_mode_reference_widths_and_architecture(make_super: MakeSuper, draw: Draw) -> None:
    supernet = make_super()
    extracted = supernet.extract(draw(3))
    assert not extracted.training
    assert supernet.train().extract(draw(3)).training
    assert extracted.arch == draw(3)
    assert extracted.config == supernet.config
    assert (extracted.config.encoder_reference_dim, extracted.config.decoder_reference_dim) == (32, 24)
    leaves = [m for m in extracted.modules() if isinstance(m, ElasticLinear | ElasticLayerNorm)]
    assert not leaves  # plain nn modules


@torch.no_grad()
def test_repeated_attended_layers_are_extracted_too(make_super: MakeSuper, make_batch: MakeBatch) -> None:
    """Original HAT configurations can attend to the same encoder layer twice; no search space draws that."""
    arch = Architecture.from_text("enc 24: 32/16/2 48/32/4 | dec 16: 32/16/2/2@1,1,0 16/32/4/1@0,1")
    supernet, batch = make_super(), make_batch()
    supernet.set_active(arch)
    torch.testing.assert_close(supernet.extract(arch)(*batch), supernet(*batch), rtol=1e-4, atol=1e-5)


# -- gradients --------------------------------------------------------------------------------------------------------


def active_masks(supernet: SuperTransformer) -> dict[str, Tensor]:
    """1 where a parameter is in the active slice, else 0, from the leaves' own rule; unused layers are all 0."""
    masks = {name: torch.zeros_like(parameter) for name, parameter in supernet.named_parameters()}
    names = {id(parameter): name for name, parameter in supernet.named_parameters()}
    depth = {"encoder": supernet.arch.encoder_num_layers, "decoder": supernet.arch.decoder_num_layers}
    for path, leaf in supernet.named_modules():
        if not isinstance(leaf, ElasticLinear | ElasticLayerNorm | ElasticEmbedding):
            continue
        parts = path.split(".")
        if parts[1:2] == ["layers"] and int(parts[2]) >= depth[parts[0]]:
            continue
        for key, part in leaf.active_parameters().items():
            stored = getattr(leaf, key)
            (ones,) = torch.autograd.grad(part.sum(), stored)
            mask = masks[names[id(stored)]]
            torch.maximum(mask, ones, out=mask)
    return masks


@SHARING
@NORMS
def test_gradients_are_zero_outside_the_active_slices_and_equal_those_of_the_extracted_model_inside(
    make_super: MakeSuper, make_batch: MakeBatch, draw: Draw, share: str, pre_norm: bool
) -> None:
    supernet = make_super(share_embeddings=share, pre_norm=pre_norm)
    for number in range(12):
        arch, batch = draw(number), make_batch(number)
        supernet.set_active(arch)
        supernet.zero_grad(set_to_none=True)
        weights = torch.randn(supernet(*batch).shape, generator=torch.Generator().manual_seed(number))
        (supernet(*batch) * weights).sum().backward()
        extracted = supernet.extract(arch)
        (extracted(*batch) * weights).sum().backward()
        expected = dict(extracted.named_parameters())
        for name, mask in active_masks(supernet).items():
            gradient = supernet.get_parameter(name).grad
            if name not in expected:
                assert not mask.any()
                assert gradient is None, f"{name} belongs to a layer that is not used"
                continue
            assert gradient is not None
            assert not gradient[mask == 0].any(), name
            assert gradient[mask == 1].any(), name
            inside = expected[name].grad
            assert inside is not None
            torch.testing.assert_close(gradient[mask == 1], inside.flatten(), rtol=1e-3, atol=1e-4, msg=name)


def test_layers_beyond_the_active_depth_have_no_gradient(make_super: MakeSuper, make_batch: MakeBatch) -> None:
    supernet = make_super()
    supernet.set_active(Architecture.from_text("enc 16: 16/16/2 | dec 16: 16/16/2/2@0 16/16/2/2@0"))
    supernet(*make_batch()).sum().backward()
    for name, parameter in supernet.named_parameters():
        unused = name.startswith(("encoder.layers.1.", "encoder.layers.2.", "decoder.layers.2."))
        assert (parameter.grad is None) == unused, name


# -- leaves -----------------------------------------------------------------------------------------------------------


def test_a_packed_projection_slices_each_block() -> None:
    leaf = ElasticLinear(4, 6, num_blocks=3)
    leaf.set_active(2, 3)
    with torch.no_grad():
        leaf.weight.copy_(torch.arange(24.0).view(6, 4))
        leaf.bias.copy_(torch.arange(6.0))
    active = leaf.active_parameters()
    assert active["weight"].tolist() == [[0, 1], [8, 9], [16, 17]]
    assert active["bias"].tolist() == [0, 2, 4]


def test_a_fully_active_leaf_uses_its_parameters_without_a_copy() -> None:
    for leaf in (ElasticLinear(4, 6, num_blocks=3), ElasticLayerNorm(4), ElasticEmbedding(5, 4)):
        for name, value in leaf.active_parameters().items():
            assert value.data_ptr() == getattr(leaf, name).data_ptr()
            assert value.shape == getattr(leaf, name).shape


def test_a_layer_norm_normalises_over_the_active_channels_only() -> None:
    leaf = ElasticLayerNorm(8)
    leaf.set_active(3)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(leaf(x), torch.nn.LayerNorm(3)(x))
