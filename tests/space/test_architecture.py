"""``Architecture``: text and JSON round trips, and one clear line for every value that makes no model."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.errors import InputError
from fitformer.space import Architecture

TEXT = "enc 128: 256/128/4 512/64/2 | dec 96: 512/128/4/2@1,0 384/64/2/4@1"
GOOD = Architecture(
    encoder_embed_dim=128,
    decoder_embed_dim=96,
    encoder_ffn_dim=(256, 512),
    encoder_qkv_dim=(128, 64),
    encoder_num_heads=(4, 2),
    decoder_ffn_dim=(512, 384),
    decoder_qkv_dim=(128, 64),
    decoder_self_heads=(4, 2),
    decoder_cross_heads=(2, 4),
    decoder_cross_layers=((1, 0), (1,)),
)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Any valid architecture, cross-attention to repeated encoder layers in any order included."""
    size = st.integers(1, 4000)
    encoder = st.tuples(size, st.integers(1, 64), st.integers(1, 16))
    decoder = st.tuples(size, st.integers(1, 64), st.integers(1, 16), st.integers(1, 16))
    encoder_layers = draw(st.lists(encoder, min_size=1, max_size=6))
    index = st.integers(0, len(encoder_layers) - 1)
    decoder_layers = draw(st.lists(decoder, min_size=1, max_size=6))
    cross = [tuple(draw(st.lists(index, min_size=1, max_size=4))) for _ in decoder_layers]
    return Architecture(
        draw(size),
        draw(size),
        tuple(ffn for ffn, _, _ in encoder_layers),
        tuple(unit * heads for _, unit, heads in encoder_layers),
        tuple(heads for _, _, heads in encoder_layers),
        tuple(ffn for ffn, _, _, _ in decoder_layers),
        tuple(unit * own * cross_heads for _, unit, own, cross_heads in decoder_layers),
        tuple(own for _, _, own, _ in decoder_layers),
        tuple(cross_heads for _, _, _, cross_heads in decoder_layers),
        tuple(cross),
    )


@given(architectures())
def test_text_form_round_trips(arch: Architecture) -> None:
    text = arch.to_text()
    assert "\n" not in text
    assert Architecture.from_text(f"  {text}\n") == arch


@given(architectures())
def test_json_form_round_trips(arch: Architecture) -> None:
    again = Architecture.from_dict(json.loads(json.dumps(arch.to_dict())))
    assert again == arch
    assert hash(again) == hash(arch)


def test_text_form_is_as_documented() -> None:
    assert GOOD.to_text() == TEXT
    assert Architecture.from_text(TEXT) == GOOD


def test_depth_is_the_number_of_entries() -> None:
    assert (GOOD.encoder_num_layers, GOOD.decoder_num_layers) == (2, 2)


def test_an_architecture_does_not_change_and_serves_as_a_key() -> None:
    with pytest.raises(FrozenInstanceError):
        GOOD.encoder_embed_dim = 1  # type: ignore[misc]
    assert {GOOD: 1}[Architecture.from_text(TEXT)] == 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("encoder_embed_dim", 0, "encoder_embed_dim must be whole numbers of at least 1, got 0"),
        ("encoder_embed_dim", 64.0, "got 64.0"),
        ("decoder_embed_dim", True, "got True"),
        ("decoder_embed_dim", "96", "got '96'"),
        ("encoder_ffn_dim", [256, -1], "encoder_ffn_dim must be whole numbers of at least 1, got -1"),
        ("encoder_ffn_dim", [256], "encoder lists must have one entry per layer"),
        ("encoder_ffn_dim", 256, "per-layer sizes lists"),
        ("encoder_num_heads", [4, 3], "encoder_num_heads 3 must divide encoder_qkv_dim 64"),
        ("decoder_self_heads", [3, 2], "decoder_self_heads 3 must divide decoder_qkv_dim 128"),
        ("decoder_cross_heads", [2, 5], "decoder_cross_heads 5 must divide decoder_qkv_dim 64"),
        ("decoder_cross_layers", [[2], [1]], r"decoder_cross_layers \[2\] must name encoder layers 0 to 1"),
        ("decoder_cross_layers", [[0], []], "at least one"),
        ("decoder_cross_layers", [[0], [-1]], "must name encoder layers"),
        ("decoder_cross_layers", [[0], [1.0]], "must name encoder layers"),
        ("decoder_cross_layers", [[0], [True]], "must name encoder layers"),
        ("decoder_cross_layers", [0, 1], "lists of them"),
        ("decoder_cross_layers", [["0"], ["1"]], "."),
        ("decoder_cross_layers", [[0]], "decoder lists must have one entry per layer"),
    ],
)
def test_a_bad_size_is_named(field: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Architecture.from_dict({**GOOD.to_dict(), field: value})
    assert str(caught.value).startswith("architecture: ")
    assert "\n" not in str(caught.value)


def test_a_stack_without_layers_is_refused() -> None:
    empty = {name: [] for name in GOOD.to_dict() if name.startswith("encoder_") and name != "encoder_embed_dim"}
    with pytest.raises(InputError, match="encoder lists must have one entry per layer"):
        Architecture.from_dict({**GOOD.to_dict(), **empty})


def test_missing_and_unknown_fields_are_named() -> None:
    data = GOOD.to_dict()
    del data["encoder_ffn_dim"]
    with pytest.raises(InputError, match=r"missing fields \['encoder_ffn_dim'\], unknown fields \['colour'\]"):
        Architecture.from_dict({**data, "colour": 1})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hat-wmt",
        "enc 128: | dec 96: 512/128/4/2@0",
        "enc 128: 256/128/4",
        "enc 128: 256/128 | dec 96: 512/128/4/2@0",
        "enc 128: 256/128/4 | dec 96: 512/128/4/2",
        "enc 128: 256/128/4 | dec 96: 512/128/4/2@",
        "enc 128: 256/128/4 | dec 96: 512/128/4/2@0@0",
        "enc 128: 256/128/4/4 | dec 96: 512/128/4@0",
        "enc 128: 256/128 | dec 96: 512/128/4/2/2@0",
        "enc 128: 256/128/4 256/128 | dec 96: 512/128/4/2@0",
        "enc 128: 256/x/4 | dec 96: 512/128/4/2@0",
        "enc 1.5: 256/128/4 | dec 96: 512/128/4/2@0",
    ],
)
def test_a_line_of_another_form_is_quoted(text: str) -> None:
    with pytest.raises(InputError, match="architecture: cannot read") as caught:
        Architecture.from_text(text)
    assert f"'{text}'" in str(caught.value)


def test_a_line_of_the_right_form_with_a_bad_size_names_the_size() -> None:
    with pytest.raises(InputError, match="encoder_num_heads 3 must divide"):
        Architecture.from_text("enc 128: 256/128/3 | dec 96: 512/128/4/2@0")


@given(st.text(max_size=40) | st.from_regex(r"enc \d{1,3}:( \d+(/\d+){0,4}@?\d?){0,3} \| dec \d{1,3}:.{0,30}"))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        arch = Architecture.from_text(text)
    except InputError as error:
        assert str(error).startswith("architecture: ")
    else:
        assert Architecture.from_text(arch.to_text()) == arch
