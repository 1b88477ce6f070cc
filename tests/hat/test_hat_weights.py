"""From a checkpoint's names and options to our model: every weight used once, what cannot be represented refused.

Pre-norm, of which no output of the original exists, is held to an independent forward pass written from the original's
rules, which is itself held to the original's outputs in post-norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fitformer.errors import InputError
from fitformer.export import TorchStepModel, graph_bytes
from fitformer.hat.checkpoint import Checkpoint, read_checkpoint
from fitformer.hat.configuration import HatConfiguration, parse_configuration
from fitformer.hat.dictionary import check_dictionaries, short_lines
from fitformer.hat.selection import depth_warning, read_search_space, sub_architecture, warnings_about
from fitformer.hat.weights import ROWS, converted, read_config, reordered, super_transformer
from fitformer.models import TransformerConfig
from fitformer.runtime.decoding import greedy
from fitformer.runtime.session import OnnxStepModel

LoadFixture = Callable[[str], dict[str, Any]]
SaveCheckpoint = Callable[..., Path]
PAD = 1  # HAT's
HERE = Path("made.pt")


def checkpoint_of(fixture: dict[str, Any], **args: Any) -> Checkpoint:
    return Checkpoint(HERE, fixture["args"] | args, dict(fixture["state_dict"]))


def pre_norm(checkpoint: Checkpoint) -> Checkpoint:
    """The same weights read as a pre-norm model; its two last norms are drawn."""
    random = torch.Generator().manual_seed(5)
    weights = dict(checkpoint.weights)
    for side in ("encoder", "decoder"):
        dim = checkpoint.args[f"{side}_embed_dim"]
        weights[f"{side}.layer_norm.weight"] = 1 + torch.randn(dim, generator=random) / 4
        weights[f"{side}.layer_norm.bias"] = torch.randn(dim, generator=random) / 4
        weights[f"{side}.version"] = torch.tensor([3.0])
    norms = {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
    return Checkpoint(HERE, {**checkpoint.args, **norms}, weights)


# -- an independent forward pass, one sentence at a time --------------------------------------------------------------


class Reference:
    """HAT's own rules on the original's names: slices, sinusoids from row 2, the list of encoder outputs."""

    def __init__(self, checkpoint: Checkpoint, config: HatConfiguration) -> None:
        self.w, self.args, self.config = checkpoint.weights, checkpoint.args, config
        self.pre = bool(checkpoint.args["encoder_normalize_before"])

    def embed(self, side: str, ids: Tensor, dim: int) -> Tensor:
        whole = self.args[f"{side}_embed_dim"]
        half = whole // 2
        rates = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        angles = (PAD + 1 + torch.arange(len(ids)))[:, None] * rates
        places = torch.cat((angles.sin(), angles.cos()), 1)[:, :dim]
        return math.sqrt(dim) * self.w[f"{side}.embed_tokens.weight"][ids, :dim] + places

    def norm(self, name: str, x: Tensor) -> Tensor:
        dim = x.size(-1)
        return F.layer_norm(x, (dim,), self.w[f"{name}.weight"][:dim], self.w[f"{name}.bias"][:dim])

    def block(self, name: str, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return x + function(self.norm(name, x)) if self.pre else self.norm(name, x + function(x))

    def attend(self, name: str, x: Tensor, memory: Tensor, heads: int, *, causal: bool = False) -> Tensor:
        q, bias = self.args["qkv_dim"], self.w[f"{name}.in_proj_bias"]
        if f"{name}.in_proj_weight" in self.w:
            parts = self.w[f"{name}.in_proj_weight"].split(q)
        else:
            parts = tuple(self.w[f"{name}.{letter}_proj_weight"] for letter in "qkv")
        query, key, value = (
            F.linear(y, part[:, : y.size(1)], b).view(len(y), heads, -1).transpose(0, 1)
            for y, part, b in zip((x, memory, memory), parts, bias.split(q), strict=True)
        )
        scores = query @ key.transpose(1, 2) * (q // heads) ** -0.5
        if causal:
            scores += torch.full(scores.shape[1:], float("-inf")).triu(1)
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(x), q)
        dim = x.size(1)
        return F.linear(mixed, self.w[f"{name}.out_proj.weight"][:dim], self.w[f"{name}.out_proj.bias"][:dim])

    def attend_itself(self, name: str, x: Tensor, heads: int) -> Tensor:
        return self.attend(f"{name}.self_attn", x, x, heads)

    def feed_forward(self, name: str, x: Tensor, ffn: int) -> Tensor:
        dim = x.size(1)
        inner = F.linear(x, self.w[f"{name}.fc1.weight"][:ffn, :dim], self.w[f"{name}.fc1.bias"][:ffn]).relu()
        return F.linear(inner, self.w[f"{name}.fc2.weight"][:dim, :ffn], self.w[f"{name}.fc2.bias"][:dim])

    def logits(self, source: Tensor, previous: Tensor) -> Tensor:
        config, outputs = self.config, []
        x = self.embed("encoder", source, config.encoder_embed_dim)
        for i in range(self.args["encoder_layers"]):
            if i < config.encoder_layers:
                name, ffn = f"encoder.layers.{i}", config.encoder_ffn_dim[i]
                heads = config.encoder_heads[i]
                x = self.block(f"{name}.self_attn_layer_norm", x, partial(self.attend_itself, name, heads=heads))
                x = self.block(f"{name}.final_layer_norm", x, partial(self.feed_forward, name, ffn=ffn))
            outputs.append(x)
        final = self.norm("encoder.layer_norm", x) if self.pre else x
        y = self.embed("decoder", previous, config.decoder_embed_dim)
        for i in range(config.decoder_layers):
            more = {-1: [], 1: [outputs[-2]], 2: [outputs[-2], outputs[-3]]}[config.decoder_arbitrary[i]]
            y = self.decoder_layer(f"decoder.layers.{i}", i, y, torch.cat([final, *more]))
        y = self.norm("decoder.layer_norm", y) if self.pre else y
        table = self.w.get("decoder.embed_out", self.w["decoder.embed_tokens.weight"])
        return y @ table[:, : y.size(1)].t()

    def decoder_layer(self, name: str, i: int, y: Tensor, memory: Tensor) -> Tensor:
        config = self.config
        y = self.block(
            f"{name}.self_attn_layer_norm",
            y,
            lambda h: self.attend(f"{name}.self_attn", h, h, config.decoder_self_heads[i], causal=True),
        )
        y = self.block(
            f"{name}.encoder_attn_layer_norm",
            y,
            lambda h: self.attend(f"{name}.encoder_attn", h, memory, config.decoder_cross_heads[i]),
        )
        return self.block(
            f"{name}.final_layer_norm", y, lambda h: self.feed_forward(name, h, config.decoder_ffn_dim[i])
        )


def our_ids(ids: Tensor) -> Tensor:
    ours = {theirs: mine for mine, theirs in enumerate(ROWS)}
    return torch.tensor([ours.get(token, token) for token in ids.tolist()])


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("name", ["shared_embed", "diff_super_dims"])
@torch.no_grad()
def test_the_independent_forward_pass_is_the_originals(load_fixture: LoadFixture, name: str, case: int) -> None:
    fixture = load_fixture(name)
    expected = fixture["cases"][case]
    reference = Reference(checkpoint_of(fixture), parse_configuration(expected["config"]))
    for source, previous, target, logits in zip(
        fixture["src"], fixture["prev"], fixture["target"], expected["logits"], strict=True
    ):
        real = target != PAD
        mine = reference.logits(source[source != PAD], previous[real])
        torch.testing.assert_close(mine, logits[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("name", ["shared_embed", "diff_super_dims"])
@torch.no_grad()
def test_a_pre_norm_checkpoint_computes_what_hats_rules_say_in_both_engines(
    load_fixture: LoadFixture, name: str, case: int
) -> None:
    """The last encoder output is normalised, the others that a decoder layer attends to are not."""
    fixture = load_fixture(name)
    checkpoint, config = pre_norm(checkpoint_of(fixture)), parse_configuration(fixture["cases"][case]["config"])
    model = super_transformer(checkpoint)
    arch = sub_architecture(checkpoint, config, HERE)
    plain = model.extract(arch).eval()
    graphs = graph_bytes(plain)
    session = OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1, start_id=plain.config.start_id)
    reference = Reference(checkpoint, config)
    model.set_active(arch)
    for source, previous, target in zip(fixture["src"], fixture["prev"], fixture["target"], strict=True):
        real = target != PAD
        wanted = reference.logits(source[source != PAD], previous[real]).t()
        wanted = reordered(wanted).t()
        ours = our_ids(source[source != PAD])[None], our_ids(previous[real])[None]
        for variant in (model, plain):
            torch.testing.assert_close(variant(*ours)[0], wanted, rtol=1e-5, atol=1e-5)
        state = session.encode(ours[0].numpy())
        for position, token in enumerate(ours[1].t().numpy()):
            logits, state = session.step(state, np.ascontiguousarray(token), position)
            np.testing.assert_allclose(logits[0], wanted[position], rtol=1e-5, atol=1e-5)


def test_a_pre_norm_bundle_and_pytorch_decode_the_same(load_fixture: LoadFixture) -> None:
    fixture = load_fixture("shared_embed")
    checkpoint = pre_norm(checkpoint_of(fixture))
    config = parse_configuration(fixture["cases"][0]["config"])
    plain = super_transformer(checkpoint).extract(sub_architecture(checkpoint, config, HERE))
    graphs = graph_bytes(plain)
    session = OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1, start_id=3)
    source = np.array([[7, 8, 9, 3], [5, 3, 0, 0]])
    assert greedy(session, source, max_lengths=[9, 9]) == greedy(TorchStepModel(plain), source, max_lengths=[9, 9])


# -- names, rows, precision -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", ["shared_embed", "diff_super_dims"])
def test_half_precision_and_the_old_container_give_the_same_model_up_to_rounding(
    load_fixture: LoadFixture, save_checkpoint: SaveCheckpoint, name: str, zipped: bool
) -> None:
    fixture = load_fixture(name)
    half = {key: value.half() for key, value in fixture["state_dict"].items()}
    model = super_transformer(read_checkpoint(save_checkpoint(fixture["args"], half, zipped=zipped)))
    whole = super_transformer(checkpoint_of(fixture))
    for (key, mine), other in zip(model.state_dict().items(), whole.state_dict().values(), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3, msg=key)


def test_separate_tables_stay_separate_and_a_tied_output_is_the_targets(load_fixture: LoadFixture) -> None:
    fixture = load_fixture("diff_super_dims")
    separate = checkpoint_of(fixture)
    assert read_config(separate).share_embeddings == "none"
    assert torch.equal(converted(separate)["output.weight"][4:], separate.weights["decoder.embed_out"][4:])
    tied = checkpoint_of(fixture, share_decoder_input_output_embed=True)
    del tied.weights["decoder.embed_out"]  # type: ignore[attr-defined]
    model = super_transformer(tied)
    assert model.config.share_embeddings == "decoder"
    assert torch.equal(model.output_weight(), reordered(tied.weights["decoder.embed_tokens.weight"]))


def test_the_first_four_rows_change_places_and_words_stay() -> None:
    assert reordered(torch.tensor([10, 11, 12, 13, 14, 15])).tolist() == [11, 13, 10, 12, 14, 15]


def test_every_weight_must_be_there_fit_and_have_a_place(load_fixture: LoadFixture) -> None:
    def refusal(change: Callable[[dict[str, Any]], Any], **args: Any) -> str:
        checkpoint = checkpoint_of(load_fixture("shared_embed"), **args)
        change(checkpoint.weights)  # type: ignore[arg-type]
        with pytest.raises(InputError) as caught:
            super_transformer(checkpoint)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    name = "decoder.layers.1.fc2.weight"
    assert refusal(lambda w: w.pop(name)) == f"made.pt: {name}: missing; the options (args) ask for it"
    assert "is [40, 60], the options (args) ask for [40, 64]" in refusal(lambda w: w.update({name: w[name][:, :60]}))
    assert f"{name}: holds values that are no finite" in refusal(lambda w: w.update({name: w[name] / 0}))
    extra = {"decoder.project_in_dim.weight": torch.ones(2), "decoder.zzz": torch.ones(1)}
    assert "decoder.project_in_dim.weight and 1 more: no part of the model" in refusal(lambda w: w.update(extra))
    assert "decoder.layers.2.encoder_attn.in_proj_bias and 17 more" in refusal(lambda w: None, decoder_layers=2)
    assert "encoder.layers.4.self_attn.in_proj_weight: missing" in refusal(lambda w: None, encoder_layers=10**9)
    table = "decoder.embed_tokens.weight"
    assert "tables of encoder and decoder differ" in refusal(lambda w: w.update({table: w[table] + 1}))
    assert "encoder.embed_tokens.weight: missing" in refusal(lambda w: w.pop("encoder.embed_tokens.weight"))
    assert "not a table" in refusal(lambda w: w.update({table: torch.ones(3, 40)}))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"vocab_original_scaling": True}, "vocab_original_scaling: True cannot be represented"),
        ({"activation_fn": "gelu"}, "activation_fn: 'gelu' cannot be represented; only 'relu' can"),
        ({"decoder_learned_pos": True}, "decoder_learned_pos: True"),
        ({"no_token_positional_embeddings": True}, "no_token_positional_embeddings: True"),
        ({"adaptive_input": True}, "adaptive_input: True"),
        ({"adaptive_softmax_cutoff": [100]}, "adaptive_softmax_cutoff: [100]"),
        ({"task": "language_modeling"}, "task: 'language_modeling'"),
        ({"decoder_output_dim": 20}, "decoder_output_dim: 20 cannot be represented"),
        ({"encoder_normalize_before": True}, "decoder_normalize_before: False with encoder_normalize_before: True"),
        ({"qkv_dim": 30}, "must divide"),
        ({"qkv_dim": "wide"}, "qkv_dim: 'wide' is not allowed"),
        ({"encoder_layers": 0}, "encoder_layers: 0 is not allowed"),
        ({"dropout": 1.5}, "dropout: 1.5 is not allowed"),
        ({"max_target_positions": 10**9}, "max_target_positions: 1000000000 is too many"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(
    load_fixture: LoadFixture, args: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        super_transformer(checkpoint_of(load_fixture("shared_embed"), **args))
    assert str(caught.value).startswith("made.pt: ") and expected in str(caught.value)


def test_a_checkpoint_of_another_fairseq_model_lacks_hats_options(load_fixture: LoadFixture) -> None:
    checkpoint = checkpoint_of(load_fixture("shared_embed"))
    del checkpoint.args["qkv_dim"]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="qkv_dim: missing in args; is this a checkpoint of HAT"):
        super_transformer(checkpoint)


@pytest.mark.parametrize(("name", "version"), [("decoder.version", 2.0), ("encoder.version", 1.0)])
def test_a_pre_norm_model_without_last_norms_is_refused(load_fixture: LoadFixture, name: str, version: float) -> None:
    """HAT's own loader drops them for checkpoints of an old version."""
    checkpoint = pre_norm(checkpoint_of(load_fixture("shared_embed")))
    checkpoint.weights[name] = torch.tensor([version])  # type: ignore[index]
    with pytest.raises(InputError, match=f"{name}: missing or below"):
        super_transformer(checkpoint)
    checkpoint = pre_norm(checkpoint_of(load_fixture("shared_embed"), no_decoder_final_norm=True))
    with pytest.raises(InputError, match="no_decoder_final_norm: True"):
        super_transformer(checkpoint)


# -- configurations and spaces ----------------------------------------------------------------------------------------

SUB = {
    "encoder-embed-dim-subtransformer": 32,
    "decoder-embed-dim-subtransformer": 40,
    "encoder-ffn-embed-dim-all-subtransformer": [64, 32, 64],
    "decoder-ffn-embed-dim-all-subtransformer": [64, 32],
    "encoder-layer-num-subtransformer": 3,
    "decoder-layer-num-subtransformer": 2,
    "encoder-self-attention-heads-all-subtransformer": [4, 2, 4],
    "decoder-self-attention-heads-all-subtransformer": [4, 2],
    "decoder-ende-attention-heads-all-subtransformer": [2, 4],
    "decoder-arbitrary-ende-attn-all-subtransformer": [2, 1],
}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("encoder-embed-dim-subtransformer", 48, "48 is more than the 40"),
        ("decoder-layer-num-subtransformer", 4, "4 is more than the 3"),
        ("encoder-ffn-embed-dim-all-subtransformer", [64, 128, 64], "128 is more than the 64"),
        ("decoder-self-attention-heads-all-subtransformer", [4, 3], "must divide"),
        ("qkv-dim", 512, "512, but"),
        ("encoder-layers", 6, "6, but"),
    ],
)
def test_a_configuration_that_asks_for_more_than_the_checkpoint_has_is_named(
    toy_checkpoint: Checkpoint, key: str, value: Any, expected: str
) -> None:
    options = SUB | {key: value}
    if key.startswith("decoder-layer"):
        options |= {name: [*SUB[name], *SUB[name]] for name in SUB if name.startswith("decoder") and "all" in name}  # type: ignore[misc]
    with pytest.raises(InputError) as caught:
        sub_architecture(toy_checkpoint, parse_configuration(options), Path("sub.yml"))
    assert str(caught.value).startswith("sub.yml: ") and expected in str(caught.value)
    assert key in str(caught.value) or "must divide" in str(caught.value)


def test_another_sub_transformer_than_the_trained_one_is_a_warning(toy_checkpoint: Checkpoint) -> None:
    own = {key.replace("-", "_"): value for key, value in SUB.items()}
    trained = Checkpoint(HERE, {**toy_checkpoint.args, **own, "train_subtransformer": True}, toy_checkpoint.weights)
    assert trained.sub_options == SUB
    assert warnings_about(trained, parse_configuration(SUB)) == []
    other = SUB | {"decoder-arbitrary-ende-attn-all-subtransformer": [-1, 1]}
    (warning,) = warnings_about(trained, parse_configuration(other))
    assert "decoder-arbitrary-ende-attn-all-subtransformer: [-1, 1], trained was [2, 1]" in warning
    partly = Checkpoint(HERE, {**toy_checkpoint.args, "encoder_embed_dim_subtransformer": 32}, {})
    (warning,) = warnings_about(partly, parse_configuration(SUB))
    assert "cannot be compared" in warning


def test_sizes_outside_of_the_trained_space_are_a_warning(toy_checkpoint: Checkpoint) -> None:
    assert warnings_about(toy_checkpoint, parse_configuration(SUB)) == []
    outside = SUB | {"encoder-ffn-embed-dim-all-subtransformer": [64, 48, 64]}
    (warning,) = warnings_about(toy_checkpoint, parse_configuration(outside))
    assert "sizes that the SuperTransformer was not trained with" in warning


def test_the_space_is_that_of_the_choice_options(toy_checkpoint: Checkpoint) -> None:
    space = read_search_space(toy_checkpoint)
    assert (space.encoder_embed_dim, space.decoder_num_layers) == ((40, 32), (3, 2, 1))
    assert (space.encoder_qkv_dim, space.decoder_cross_span) == ((32,), (1, 2, 3))
    assert depth_warning(toy_checkpoint, space) is None
    shallow = Checkpoint(HERE, {**toy_checkpoint.args, "encoder_layer_num_choice": [3, 2]}, {})
    assert "copies of the last layer" in str(depth_warning(shallow, read_search_space(shallow)))
    larger = Checkpoint(HERE, {**toy_checkpoint.args, "decoder_ffn_embed_dim_choice": [128, 64]}, {})
    with pytest.raises(InputError, match="decoder_ffn_embed_dim_choice: 128 is more than the 64 of the weights"):
        read_search_space(larger)


# -- dictionaries -----------------------------------------------------------------------------------------------------


def test_a_dictionary_must_have_a_word_for_every_row(tmp_path: Path) -> None:
    source, target = tmp_path / "dict.de.txt", tmp_path / "dict.en.txt"
    source.write_text("a 5\nb@@ 4\nmadeupword0000 0\n")
    target.write_text("a 5\nc 4\nmadeupword0000 0\n")
    separate = TransformerConfig(7, 7, share_embeddings="none")
    assert check_dictionaries(source, target, separate)[0] == ["a", "b@@", "madeupword0000"]
    with pytest.raises(InputError, match=r"dict.de.txt: 3 lines give 7 ids, but the checkpoint has 8 \(encoder"):
        check_dictionaries(source, target, TransformerConfig(8, 7, share_embeddings="none"))
    with pytest.raises(InputError, match=r"dict.en.txt:2: differs from .*dict.de.txt"):
        check_dictionaries(source, target, TransformerConfig(7, 7))
    target.write_text("a 5\nb 4 \n")
    with pytest.raises(InputError, match=r"dict.en.txt:2: a dictionary has one 'token count' a line"):
        check_dictionaries(source, target, separate)
    with pytest.raises(InputError, match=r"none.txt"):
        check_dictionaries(source, tmp_path / "none.txt", separate)


def test_lines_for_trying_out_are_made_of_whole_words() -> None:
    assert short_lines(["a", "b@@", "c", "madeupword0000"], 3) == ["a", "c a", "c a c"]
    assert short_lines(["b@@"], 2) == ["b@@", "b@@ b@@"]
