"""``SearchSpace``: exact sizes, drawing that stays inside and is uniform, round trips, errors."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitformer.errors import RecipeError
from fitformer.space import Architecture, SearchSpace

SPACE = SearchSpace(
    encoder_embed_dim=(640, 512),
    decoder_embed_dim=(640, 512, 384),
    encoder_num_layers=(6, 4),
    decoder_num_layers=(6, 3, 1),
    encoder_ffn_dim=(3072, 2048, 1024),
    encoder_qkv_dim=(512, 256),
    encoder_num_heads=(8, 4),
    decoder_ffn_dim=(3072, 2048),
    decoder_qkv_dim=(512, 256),
    decoder_self_heads=(8, 4),
    decoder_cross_heads=(8, 4, 2),
    decoder_cross_span=(1, 2, 3),
)


def choices(*values: int, most: int = 2) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True).map(tuple)


@st.composite
def spaces(draw: st.DrawFn, *, depths: tuple[int, ...] = (1, 2, 3), most: int = 2) -> SearchSpace:
    """Any space with few choices; spans need be neither small nor without gaps."""
    return SearchSpace(
        encoder_embed_dim=draw(choices(8, 16, most=most)),
        decoder_embed_dim=draw(choices(8, 16, most=most)),
        encoder_num_layers=draw(choices(*depths)),
        decoder_num_layers=draw(choices(*depths)),
        encoder_ffn_dim=draw(choices(8, 32, most=most)),
        encoder_qkv_dim=draw(choices(8, 16, most=most)),
        encoder_num_heads=draw(choices(1, 4, most=most)),
        decoder_ffn_dim=draw(choices(8, 32, most=most)),
        decoder_qkv_dim=draw(choices(8, 16, most=most)),
        decoder_self_heads=draw(choices(1, 4, most=most)),
        decoder_cross_heads=draw(choices(1, 4, most=most)),
        decoder_cross_span=draw(choices(1, 2, 3, 4, most=3)),
    )


# -- the space as a set -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "size"),
    [
        ("hat-wmt", 417_846_678_672_384),
        ("hat-iwslt", 417_846_678_672_384),
        ("hat-latency", 19_130_661_104_239_706_112),
    ],
)
def test_hat_spaces_have_their_published_size(preset: str, size: int) -> None:
    assert SearchSpace.preset(preset).size() == size


@pytest.mark.parametrize("name", SearchSpace.preset_names())
def test_every_preset_is_a_space_that_contains_its_extremes(name: str) -> None:
    space = SearchSpace.preset(name)
    assert space.size() > 1
    assert space.contains(space.largest())
    assert space.contains(space.smallest())


@settings(max_examples=60)
@given(spaces(depths=(1, 2), most=1))
def test_size_is_the_number_of_enumerated_architectures(space: SearchSpace) -> None:
    everything = list(space.enumerate())
    assert len(set(everything)) == len(everything) == space.size()
    assert all(space.contains(arch) for arch in everything)


@pytest.mark.parametrize(
    ("dimension", "values", "size"),
    [
        ("encoder_embed_dim", (8, 16), 2),
        ("decoder_embed_dim", (8, 16), 2),
        ("encoder_num_layers", (2, 3), 2),
        ("decoder_num_layers", (2, 3), 2),
        # A choice per layer, in two layers.
        ("encoder_ffn_dim", (8, 16, 24), 9),
        ("encoder_qkv_dim", (8, 16), 4),
        ("encoder_num_heads", (4, 2), 4),
        ("decoder_ffn_dim", (8, 16), 4),
        ("decoder_qkv_dim", (8, 16), 4),
        ("decoder_self_heads", (4, 2), 4),
        ("decoder_cross_heads", (4, 2), 4),
        ("decoder_cross_span", (1, 2), 4),
        # Two layers cannot be told from three when there are only two.
        ("decoder_cross_span", (1, 2, 3), 4),
        ("decoder_cross_span", (3, 4), 1),
    ],
)
def test_size_counts_every_dimension(dimension: str, values: tuple[int, ...], size: int) -> None:
    single = {field.name: (8,) for field in fields(SearchSpace)}
    single |= {"encoder_num_layers": (2,), "decoder_num_layers": (2,), "decoder_cross_span": (1,)}
    space = SearchSpace(**{**single, dimension: values})
    assert space.size() == len(set(space.enumerate())) == size


@given(spaces(), st.integers(0, 2**32))
def test_everything_lies_between_smallest_and_largest(space: SearchSpace, seed: int) -> None:
    arch, small, large = space.sample(random.Random(seed)), space.smallest(), space.largest()
    assert small.encoder_num_layers <= arch.encoder_num_layers <= large.encoder_num_layers
    assert small.decoder_num_layers <= arch.decoder_num_layers <= large.decoder_num_layers
    for name in ("encoder_ffn_dim", "encoder_qkv_dim", "decoder_ffn_dim", "decoder_qkv_dim"):
        assert all(min(getattr(small, name)) <= value <= max(getattr(large, name)) for value in getattr(arch, name))
    assert small.encoder_embed_dim <= arch.encoder_embed_dim <= large.encoder_embed_dim
    assert small.decoder_embed_dim <= arch.decoder_embed_dim <= large.decoder_embed_dim


@pytest.mark.parametrize(
    "text",
    [
        "enc 640: 3072/512/8 3072/512/8 | dec 640: 3072/512/8/8@1",  # depth of two
        "enc 600: {e} | dec 640: 3072/512/8/8@3",
        "enc 640: {e} | dec 640: 1024/512/8/8@3",  # an encoder's FFN in the decoder
        "enc 640: {e} | dec 640: 3072/512/8/16@3",
        "enc 640: {e} | dec 640: 3072/512/8/8@2",  # not the last layer
        "enc 640: {e} | dec 640: 3072/512/8/8@3,1",
        "enc 640: {e} | dec 640: 3072/512/8/8@3,3",
        "enc 640: {e} | dec 640: 3072/512/8/8@3,2,1,0",  # a span of four
    ],
)
def test_an_architecture_of_another_space_is_not_contained(text: str) -> None:
    four_layers = " ".join(["3072/512/8"] * 4)
    assert SPACE.contains(Architecture.from_text(f"enc 640: {four_layers} | dec 640: 3072/512/8/8@3"))
    assert not SPACE.contains(Architecture.from_text(text.format(e=four_layers)))


def test_the_last_encoder_layer_is_attended_to_first() -> None:
    assert SPACE.largest().decoder_cross_layers == ((5, 4, 3),) * 6
    assert SPACE.smallest().decoder_cross_layers == ((3,),)


# -- drawing ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(spaces(), st.integers(0, 2**32), st.floats(0, 1))
def test_drawn_mutated_and_crossed_architectures_stay_in_the_space(space: SearchSpace, seed: int, prob: float) -> None:
    rng = random.Random(seed)
    first, second = space.sample(rng), space.sample(rng)
    for arch in (
        first,
        second,
        space.mutate(first, prob, rng),
        space.crossover(first, second, rng),
        space.mutate(space.crossover(second, first, rng), 1.0, rng),
    ):
        assert space.contains(arch), arch.to_text()


@given(spaces(), st.integers(0, 2**32))
def test_mutation_with_probability_zero_and_crossover_with_itself_change_nothing(space: SearchSpace, seed: int) -> None:
    rng = random.Random(seed)
    arch = space.sample(rng)
    assert space.mutate(arch, 0.0, rng) == arch
    assert space.crossover(arch, arch, rng) == arch


def test_a_child_takes_every_entry_from_one_of_its_parents() -> None:
    rng = random.Random(0)
    for _ in range(200):
        parents = [SPACE.sample(rng), SPACE.sample(rng)]
        child = SPACE.crossover(*parents, rng)
        for field in fields(Architecture):
            value, given_values = getattr(child, field.name), [getattr(parent, field.name) for parent in parents]
            if isinstance(value, int):
                assert value in given_values
            elif field.name != "decoder_cross_layers":
                for i, entry in enumerate(value):
                    assert entry in [values[i] for values in given_values if i < len(values)]
            else:
                spans = [[len(layers) for layers in values] for values in given_values]
                for i, layers in enumerate(value):
                    assert len(layers) in [row[i] for row in spans if i < len(row)]
        assert child.encoder_num_layers in [parent.encoder_num_layers for parent in parents]
        assert child.decoder_num_layers in [parent.decoder_num_layers for parent in parents]


def test_each_choice_comes_from_either_parent_equally_often() -> None:
    rng, parents, count = random.Random(6), (SPACE.largest(), SPACE.smallest()), 4000
    children = [SPACE.crossover(*parents, rng) for _ in range(count)]
    for name in ("encoder_embed_dim", "decoder_embed_dim", "encoder_num_layers", "decoder_num_layers"):
        from_first = sum(getattr(child, name) == getattr(parents[0], name) for child in children)
        assert abs(from_first - count / 2) <= 5 * (count / 4) ** 0.5, name
    for name in ("encoder_ffn_dim", "encoder_num_heads", "decoder_qkv_dim", "decoder_cross_heads"):
        from_first = sum(getattr(child, name)[0] == getattr(parents[0], name)[0] for child in children)
        assert abs(from_first - count / 2) <= 5 * (count / 4) ** 0.5, name
    # A layer that only one parent has comes whole from it.
    assert {child.decoder_ffn_dim[1:] for child in children} == {(), (3072,) * 5}


def assert_uniform(values: Sequence[int], allowed: Sequence[int]) -> None:
    """Every count within five standard deviations of its expectation."""
    counts, expected = Counter(values), len(values) / len(allowed)
    assert set(counts) == set(allowed)
    bound = 5 * (expected * (1 - 1 / len(allowed))) ** 0.5
    assert all(abs(count - expected) <= bound for count in counts.values()), counts


def test_every_dimension_is_drawn_uniformly_when_seeded_by_the_update_number() -> None:
    drawn = [SPACE.sample(random.Random(f"1-{update}")) for update in range(6000)]
    for name in ("encoder_embed_dim", "decoder_embed_dim", "encoder_num_layers", "decoder_num_layers"):
        assert_uniform([getattr(arch, name) for arch in drawn], getattr(SPACE, name))
    for name in (
        "encoder_ffn_dim",
        "encoder_qkv_dim",
        "encoder_num_heads",
        "decoder_ffn_dim",
        "decoder_qkv_dim",
        "decoder_self_heads",
        "decoder_cross_heads",
    ):
        for layer in range(6):
            entries = [getattr(arch, name)[layer] for arch in drawn if len(getattr(arch, name)) > layer]
            assert_uniform(entries, getattr(SPACE, name))
    for layer in range(6):
        spans = [len(a.decoder_cross_layers[layer]) for a in drawn if a.decoder_num_layers > layer]
        assert_uniform(spans, SPACE.decoder_cross_span)


def test_dimensions_are_drawn_independently() -> None:
    drawn = [SPACE.sample(random.Random(update)) for update in range(6000)]
    pairs = Counter(
        (a.encoder_embed_dim, a.decoder_num_layers, a.encoder_ffn_dim[0], a.encoder_ffn_dim[1]) for a in drawn
    )
    expected = len(drawn) / (2 * 3 * 3 * 3)
    assert len(pairs) == 54
    assert all(abs(count - expected) <= 5 * expected**0.5 for count in pairs.values())


def test_mutation_redraws_each_choice_with_the_given_probability() -> None:
    """A redrawn choice keeps its value with probability 1 / choices, so it changes with prob * (1 - 1 / choices)."""
    rng, arch, count = random.Random(5), SPACE.largest(), 4000
    mutants = [SPACE.mutate(arch, 0.3, rng) for _ in range(count)]
    for name in ("encoder_embed_dim", "decoder_embed_dim", "encoder_num_layers", "decoder_num_layers"):
        changed = sum(getattr(mutant, name) != getattr(arch, name) for mutant in mutants)
        share = 0.3 * (1 - 1 / len(getattr(SPACE, name)))
        assert abs(changed - count * share) <= 5 * (count * share * (1 - share)) ** 0.5, name
    changed = sum(mutant.encoder_ffn_dim[0] != 3072 for mutant in mutants)
    assert abs(changed - count * 0.2) <= 5 * (count * 0.2 * 0.8) ** 0.5


@given(spaces(), st.integers(0, 2**32))
def test_the_same_generator_draws_the_same_architectures(space: SearchSpace, seed: int) -> None:
    first, second = random.Random(seed), random.Random(seed)
    arch = space.sample(first)
    assert arch == space.sample(second)
    assert space.mutate(arch, 0.5, first) == space.mutate(arch, 0.5, second)


# -- files ------------------------------------------------------------------------------------------------------------


@given(spaces())
def test_a_space_round_trips_through_json(space: SearchSpace) -> None:
    assert SearchSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space


def test_a_single_number_is_one_choice_and_the_span_may_be_left_out() -> None:
    data: dict[str, Any] = {field.name: 8 for field in fields(SearchSpace) if field.name != "decoder_cross_span"}
    space = SearchSpace.from_dict(data)
    assert space.encoder_ffn_dim == (8,)
    assert space.decoder_cross_span == (1,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_ffn_dims": [8]}, "space.encoder_ffn_dims: no such dimension.*did you mean 'encoder_ffn_dim'"),
        ({"encoder_ffn_dim": []}, r"space.encoder_ffn_dim: \[\] must be different whole numbers"),
        ({"encoder_ffn_dim": [8, 8]}, r"space.encoder_ffn_dim: \[8, 8\] must be different"),
        ({"encoder_ffn_dim": [0]}, "at least 1"),
        ({"encoder_ffn_dim": [8.5]}, r"\[8.5\] must be"),
        ({"encoder_ffn_dim": "wide"}, r"\['wide'\] must be"),
        ({"encoder_ffn_dim": [True]}, r"\[True\] must be"),
        ({"encoder_ffn_dim": [[8]]}, r"\[\[8\]\] must be"),
        ({"encoder_ffn_dim": {"from": 8}}, "must be different whole numbers"),
        ({"encoder_ffn_dim": None}, r"\[None\] must be"),
        ({"encoder_num_heads": [3]}, "space.encoder_num_heads: 3 must divide every choice of encoder_qkv_dim"),
        ({"decoder_self_heads": [4, 3]}, "space.decoder_self_heads: 3 must divide"),
        ({"decoder_cross_heads": [1024]}, "space.decoder_cross_heads: 1024 must divide"),
    ],
)
def test_a_bad_dimension_is_named_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        SearchSpace.from_dict({**SPACE.to_dict(), **changes})
    assert "\n" not in str(caught.value)


def test_a_missing_dimension_is_named() -> None:
    data = SPACE.to_dict()
    del data["decoder_qkv_dim"]
    with pytest.raises(RecipeError, match=r"space\.decoder_qkv_dim: missing"):
        SearchSpace.from_dict(data)


@pytest.mark.parametrize("name", ["hat-wnt", "../presets/small", "small.yaml", ""])
def test_an_unknown_preset_offers_the_others(name: str) -> None:
    with pytest.raises(RecipeError, match=f"no preset '{name}'.*hat-wmt.*small"):
        SearchSpace.preset(name)


def test_a_misspelt_preset_offers_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean 'hat-wmt'"):
        SearchSpace.preset("hat-wnt")
