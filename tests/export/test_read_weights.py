"""A model read back from its bundle is the model that was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from fitformer.compress import BlockwiseInt8
from fitformer.errors import BundleError
from fitformer.export import TokenizerFiles, graph_bytes, write_bundle
from fitformer.export.read_weights import read_weights
from fitformer.models import Transformer
from fitformer.rundir import sha256, write_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings

MakeModel = Callable[..., Transformer]
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def write(folder: Path, model: Transformer, words: TokenizerFiles, **options: Any) -> Bundle:
    return write_bundle(
        folder, model=model, tokenizer=words, source_language="en", target_language="de",
        decoding=DecodeSettings(), golden_sources=["w5 w6"], **options,
    )  # fmt: skip


def neighbours(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether every number of one is that of the other or the next float beside it."""
    infinity = torch.tensor(float("inf"))
    return bool(((a == b) | (torch.nextafter(a, infinity) == b) | (torch.nextafter(a, -infinity) == b)).all())


# Seeds walk through the three ways to share tables, pre- and post-norm, widths that differ, one to three memories.
@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_the_model_read_back_are_those_of_the_bundle(
    seed: int, make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    model = make_model(seed)
    again = read_weights(write(tmp_path / "bundle", model, words))
    assert (again.config, again.arch) == (model.config, model.arch)
    assert graph_bytes(again) == graph_bytes(model)
    expected, found = model.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert neighbours(found[name], value) if name in EMBEDDINGS else torch.equal(found[name], value), name


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
def test_a_table_whose_width_is_a_power_of_four_comes_back_bit_for_bit(
    share: str, make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    arch = replace(make_model(0).arch, encoder_embed_dim=64, decoder_embed_dim=16)
    model = make_model(0, arch=arch, share_embeddings=share, encoder_reference_dim=64)
    again = read_weights(write(tmp_path / "bundle", model, words))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("settings", [{"norm_every_memory": False, "position_offset": 2, "start_id": 3}, {}])
def test_models_of_other_origin_come_back(
    settings: dict[str, Any], make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    model = make_model(4, pre_norm=True, **settings)
    again = read_weights(write(tmp_path / "bundle", model, words))
    assert again.config == model.config
    assert graph_bytes(again) == graph_bytes(model)


@pytest.mark.parametrize("seed", range(3))
def test_eight_bit_weights_come_back_as_the_numbers_they_stand_for(
    seed: int, make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    model = make_model(seed)
    bundle = write(tmp_path / "bundle", model, words, matrices=BlockwiseInt8())
    again = read_weights(bundle)
    for name, value in model.state_dict().items():
        found = again.state_dict()[name]
        if value.dim() == 1:
            assert torch.equal(found, value), f"{name}: biases and norms stay in float32"
        else:  # a step is the 127th part of the block's largest, and rounding is off by half of it
            assert (found - value).abs().max() <= value.abs().max() / 127 * 0.51, name
    twice = read_weights(write(tmp_path / "twice", again, words, matrices=BlockwiseInt8()))
    for name, value in again.state_dict().items():
        torch.testing.assert_close(twice.state_dict()[name], value, rtol=1e-5, atol=1e-7, msg=name)


def reseal(bundle: Bundle, **facts: Any) -> Bundle:
    """Write changed facts, and the checksums that the files have now."""
    files = {name: sha256(bundle.path / name) for name in bundle.facts["files"]}
    write_json(bundle.path / "fitformer.json", {**bundle.facts, "files": files, **facts})
    return Bundle.load(bundle.path)


def test_graphs_that_do_not_fit_are_one_line(make_model: MakeModel, words: TokenizerFiles, tmp_path: Path) -> None:
    bundle = write(tmp_path / "bundle", make_model(2), words)
    architecture = {**bundle.facts["architecture"], "encoder_embed_dim": 8192}
    with pytest.raises(BundleError, match=r"encoder\.onnx: the weight 'embed_tokens.weight' is 50 x \d+, and"):
        read_weights(reseal(bundle, architecture=architecture))
    with pytest.raises(BundleError, match="exporter version 7"):
        read_weights(reseal(bundle, exporter_version=7))
    for broken in ({}, None, {**bundle.facts["architecture"], "encoder_ffn_dim": "wide"}):
        with pytest.raises(BundleError, match=r"fitformer\.json: "):
            read_weights(reseal(bundle, architecture=broken))
    with pytest.raises(BundleError, match="written by a newer fitformer"):
        read_weights(reseal(bundle, model={**bundle.facts["model"], "rotary": True}))


def test_a_graph_without_a_weight_or_without_sense_is_one_line(
    make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    bundle = write(tmp_path / "bundle", make_model(2), words)
    path = bundle.path / "decoder.onnx"
    whole = path.read_bytes()
    graph = onnx.load(path)
    kept = [tensor for tensor in graph.graph.initializer if tensor.name != "layers.0.fc1.bias"]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    onnx.save(graph, path)
    with pytest.raises(BundleError, match=r"decoder\.onnx: holds no weight 'layers\.0\.fc1\.bias'"):
        read_weights(reseal(bundle))
    for content in (b"", whole[: len(whole) // 2], b"\x08\x07nonsense"):
        path.write_bytes(content)
        with pytest.raises(BundleError, match=r"decoder\.onnx: ") as caught:
            read_weights(reseal(bundle))
        assert "\n" not in str(caught.value)


def test_weights_kept_outside_the_graph_are_not_followed(
    make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    bundle = write(tmp_path / "bundle", make_model(2), words)
    path = bundle.path / "decoder.onnx"
    graph = onnx.load(path)
    tensor = next(tensor for tensor in graph.graph.initializer if tensor.name == "layers.0.fc1.bias")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value="../secret")
    path.write_bytes(graph.SerializeToString())
    with pytest.raises(BundleError, match=r"'layers\.0\.fc1\.bias' is damaged"):
        read_weights(reseal(bundle))


def test_the_identity_of_a_bundle_is_that_of_what_it_translates(
    make_model: MakeModel, words: TokenizerFiles, tmp_path: Path
) -> None:
    one, other = (write(tmp_path / str(seed), make_model(seed), words) for seed in (0, 3))
    assert one.identity != other.identity
    facts = json.loads((one.path / "fitformer.json").read_text(encoding="utf-8"))
    assert reseal(one, scores={"bleu": 99.0}, latency=[{"latency_ms": 1.0}]).identity == one.identity
    assert reseal(one, decoding={**facts["decoding"], "no_repeat_ngram": 3}).identity != one.identity
