"""Original configurations become architectures and spaces, and come back exactly."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from fitformer.errors import InputError
from fitformer.hat import choices, gene
from fitformer.hat import configuration as hat
from fitformer.hat.options import format_options
from fitformer.space import Architecture, SearchSpace

PUBLISHED = {
    "encoder-embed-dim-subtransformer": 512,
    "decoder-embed-dim-subtransformer": 640,
    "encoder-ffn-embed-dim-all-subtransformer": [1024] * 6,
    "decoder-ffn-embed-dim-all-subtransformer": [1024, 2048],
    "encoder-layer-num-subtransformer": 6,
    "decoder-layer-num-subtransformer": 2,
    "encoder-self-attention-heads-all-subtransformer": [4] * 6,
    "decoder-self-attention-heads-all-subtransformer": [4, 8],
    "decoder-ende-attention-heads-all-subtransformer": [8, 4],
    "decoder-arbitrary-ende-attn-all-subtransformer": [2, -1],
}
FFN, ARBITRARY = "decoder-ffn-embed-dim-all-subtransformer", "decoder-arbitrary-ende-attn-all-subtransformer"


def changed(**values: Any) -> dict[str, Any]:
    return PUBLISHED | {key.replace("_", "-"): value for key, value in values.items()}


def test_all_published_files_come_back_exactly(shared_data: Path) -> None:
    files = sorted((shared_data / "hat/subtransformers").glob("*.yml"))
    assert len(files) == 34
    for file in files:
        arch = hat.to_architecture(hat.read_configuration(file))
        options = hat.from_architecture(arch)
        assert options == yaml.safe_load(file.read_text(encoding="utf-8")), file
        assert hat.to_architecture(hat.parse_configuration(options)) == arch
        assert yaml.safe_load(format_options(options)) == options
        values = gene.to_gene(hat.read_configuration(file))
        assert len(values) == 40
        assert hat.to_architecture(gene.from_gene(values)) == arch


def test_every_architecture_of_hats_spaces_comes_back() -> None:
    rng = random.Random(1)
    for preset in ("hat-wmt", "hat-iwslt", "hat-latency"):
        space = SearchSpace.preset(preset)
        for _ in range(50):
            arch = space.sample(rng)
            assert hat.to_architecture(hat.parse_configuration(hat.from_architecture(arch))) == arch
            assert (
                hat.to_architecture(gene.from_gene(gene.to_gene(hat.parse_configuration(hat.from_architecture(arch)))))
                == arch
            )


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 6, 8])
@pytest.mark.parametrize("super_depth", [3, 4, 6, 9])
@pytest.mark.parametrize("values", [(-1,), (1, -1), (2,), (2, 1, -1)])
def test_shallow_encoders_come_back_from_any_super_depth(depth: int, super_depth: int, values: tuple[int, ...]) -> None:
    if depth > super_depth:
        return
    config = hat.HatConfiguration(
        8,
        8,
        (16,) * depth,
        (2,) * depth,
        *[(n,) * len(values) for n in (16, 2, 2)],
        values,
        super_encoder_layers=super_depth,
    )
    arch = hat.to_architecture(config, qkv_dim=32)
    assert hat.to_architecture(hat.parse_configuration(hat.from_architecture(arch))) == arch


def test_missing_encoder_layers_are_copies_of_the_last_as_in_the_original() -> None:
    config = hat.parse_configuration(changed(encoder_layer_num_subtransformer=5))
    assert hat.to_architecture(config).decoder_cross_layers == ((4, 4, 3), (4,))
    assert hat.to_architecture(config, encoder_layers=5).decoder_cross_layers == ((4, 3, 2), (4,))
    assert hat.to_architecture(config, encoder_layers=9).decoder_cross_layers == ((4, 4, 4), (4,))


def test_text_numbers_underscores_and_longer_lists_mean_the_same() -> None:
    config = hat.parse_configuration(PUBLISHED)
    ragged = changed(decoder_ffn_embed_dim_all_subtransformer="[1024, 2048, 7, 7]")
    ragged["encoder_embed_dim_subtransformer"] = ragged.pop("encoder-embed-dim-subtransformer")
    ragged[ARBITRARY] = "2 -1 1 1 1 1"
    ragged["decoder-layer-num-subtransformer"] = "2"
    assert hat.parse_configuration(ragged) == config


def test_the_two_level_dictionary_means_the_same() -> None:
    config = hat.parse_configuration(PUBLISHED)
    assert hat.parse_configuration(config.to_dictionary()) == config
    assert config.to_dictionary()["decoder"]["decoder_arbitrary_ende_attn"] == [2, -1]


def test_what_a_file_says_of_its_supertransformer_holds_unless_given() -> None:
    config = hat.parse_configuration(changed(qkv_dim=64, encoder_layers=7))
    assert hat.to_architecture(config).encoder_qkv_dim == (64,) * 6
    assert hat.to_architecture(config).decoder_cross_layers[0] == (5, 5, 4)
    assert hat.to_architecture(config, qkv_dim=128, encoder_layers=6).decoder_cross_layers[0] == (5, 4, 3)


def test_a_whole_training_configuration_may_hold_other_options() -> None:
    assert hat.parse_configuration(changed(arch="transformersuper", lr=0.001)) == hat.parse_configuration(PUBLISHED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 1}, "f.yml: lr: no such option; allowed: encoder-embed-dim-subtransformer, "),
        ({"encoder-embed-dim-subtransfomer": 1}, "did you mean 'encoder-embed-dim-subtransformer'?"),
        ({"arch": "x", "encoder-width-subtransformer": 1}, "encoder-width-subtransformer: no such option"),
        ({"encoder-embed-dim-subtransformer": None}, "encoder-embed-dim-subtransformer: missing"),
        (
            {"encoder-embed-dim-subtransformer": 0},
            "f.yml: encoder-embed-dim-subtransformer: 0 is not allowed; ",
        ),
        ({"encoder-embed-dim-subtransformer": True}, "True is not allowed"),
        ({"encoder-embed-dim-subtransformer": "512 if 1 else 2"}, "'512 if 1 else 2' is not allowed"),
        ({"encoder-embed-dim-subtransformer": "__import__('os')"}, "is not allowed; allowed: a whole number"),
        ({FFN: [1024]}, f"{FFN}: [1024] must have a value for each of 2 layers"),
        ({FFN: [1024, 2.5]}, f"{FFN}: [1024, 2.5] is not allowed"),
        ({FFN: {"a": 1}}, f"{FFN}: {{'a': 1}} is not allowed"),
        ({FFN: []}, f"{FFN}: [] is not allowed"),
        ({FFN: [1024, -1]}, f"{FFN}: -1 is not allowed"),
        ({ARBITRARY: [2, 0]}, f"{ARBITRARY}: 0 is not allowed; allowed: -1, 1, 2"),
        ({ARBITRARY: [3, 1]}, f"{ARBITRARY}: 3 is not allowed; allowed: -1, 1, 2"),
        ({"decoder-layer-num-subtransformer": 10**9}, "must have a value for each of 1000000000 layers"),
    ],
)
def test_a_bad_option_is_one_line_with_file_key_value_and_what_is_allowed(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        hat.parse_configuration(PUBLISHED | changes, "f.yml")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not a HAT configuration"),
        (b"just words", "not a HAT configuration"),
        (b"a: [1, 2", "not valid YAML"),
        (b"a: 1\na: 2\n", "'a' is given twice"),
        (b"a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        (b"\x80\x02}q\x00.", "it is not text"),
        (b"encoder: 3\ndecoder: {}\n", "encoder: must be a dictionary with"),
        (b"encoder: {encoder_embed_dim: 3}\ndecoder: {}\n", "encoder.encoder_layer_num: missing"),
        (b"encoder: {encoder_embed: 3}\ndecoder: {}\n", "did you mean 'encoder.encoder_embed_dim'?"),
        (b"x" * ((1 << 20) + 1), "not a configuration (1,048,577 bytes"),
    ],
)
def test_a_damaged_or_hostile_file_is_one_line_that_names_it(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "sub.yml"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        hat.read_configuration(path)
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_an_alias_that_grows_without_end_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yml"
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    lines += ["arch: x", *(f"{key}: *a29" for key in PUBLISHED)]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="is not allowed"):
        hat.read_configuration(path)


def test_models_that_hat_cannot_express_are_refused_by_name() -> None:
    two_widths = Architecture.from_text("enc 8: 16/4/2 | dec 8: 16/8/2/1@0")
    with pytest.raises(InputError, match=r"one qkv width for all layers, this one has \[4, 8\]"):
        hat.from_architecture(two_widths)
    first_layer = Architecture.from_text("enc 8: 16/4/2 16/4/2 16/4/2 | dec 8: 16/4/2/1@0")
    with pytest.raises(InputError, match="attend to the last one, two or three encoder layers"):
        hat.from_architecture(first_layer)
    with pytest.raises(InputError, match="6 is too many, the SuperTransformer has 4"):
        hat.to_architecture(hat.parse_configuration(PUBLISHED), encoder_layers=4)
    with pytest.raises(InputError, match="must divide"):
        hat.to_architecture(hat.parse_configuration(PUBLISHED), qkv_dim=6)
    with pytest.raises(InputError, match="gene: 3 numbers"):
        gene.from_gene([1, 2, 3])


@pytest.mark.parametrize("preset", ["hat-wmt", "hat-iwslt", "hat-latency"])
def test_spaces_come_back_exactly(preset: str) -> None:
    space = SearchSpace.preset(preset)
    options = choices.from_search_space(space)
    assert options["decoder-arbitrary-ende-attn-choice"] == [-1, 1, 2]
    assert choices.parse_search_space(options) == space


def test_the_choice_lists_of_a_training_configuration_are_a_space(shared_data: Path) -> None:
    space = choices.read_search_space(shared_data / "hat/fixtures/toy_checkpoint/toy2.yml")
    assert space.encoder_qkv_dim == (32,)
    assert space.decoder_cross_span == (1, 2, 3)
    sub = hat.read_configuration(shared_data / "hat/fixtures/toy_checkpoint/toy_sub2.yml")
    assert space.contains(hat.to_architecture(sub, qkv_dim=32, encoder_layers=3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder-embed-choice": None}, "encoder-embed-choice: missing"),
        ({"encoder-embd-choice": [1]}, "did you mean 'encoder-embed-choice'?"),
        ({"decoder-arbitrary-ende-attn-choice": [0]}, "0 is not allowed; allowed: -1, 1, 2"),
        ({"decoder-layer-num-choice": [1, 1]}, "names a choice twice"),
        ({"decoder-self-attention-heads-choice": [3]}, "f.yml: space.decoder_self_heads: 3 must divide"),
    ],
)
def test_a_bad_choice_list_is_one_line(changes: dict[str, Any], message: str) -> None:
    options = choices.from_search_space(SearchSpace.preset("hat-wmt")) | changes
    with pytest.raises(InputError) as caught:
        choices.parse_search_space(options, "f.yml")
    assert message in str(caught.value)
