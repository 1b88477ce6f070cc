"""The export check passes what is equal, calls ties ties, and stops what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from fitformer.compress import BlockwiseInt8
from fitformer.errors import InputError, NotPossibleError
from fitformer.export import TokenizerFiles, check_export, write_bundle
from fitformer.rundir import sha256
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings

MakeModel = Callable[..., Any]


def sentences(count: int, *, longest: int = 9) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[*rng.integers(4, 50, rng.integers(1, longest)).tolist(), 3] for _ in range(count)]


def written(folder: Path, model: Any, words: TokenizerFiles, **options: Any) -> Bundle:
    return write_bundle(
        folder,
        model=model,
        tokenizer=words,
        source_language="a",
        target_language="b",
        decoding=DecodeSettings(max_length_ratio=1.0, max_length_offset=3),
        golden_sources=["w5"],
        **options,
    )


def tampered(bundle: Bundle, graph: str, change: Callable[[str, Any], Any]) -> Bundle:
    """The bundle with weights of a graph changed and the checksum set right."""
    path = bundle.path / f"{graph}.onnx"
    model = onnx.load(path)
    for weight in model.graph.initializer:
        value = change(weight.name, numpy_helper.to_array(weight).copy())
        weight.CopyFrom(numpy_helper.from_array(value, weight.name))
    onnx.save(model, path)
    files = bundle.facts["files"] | {f"{graph}.onnx": sha256(path)}
    return replace(bundle, facts=bundle.facts | {"files": files})


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_faithful_export_passes(seed: int, tmp_path: Path, make_model: MakeModel, words: TokenizerFiles) -> None:
    model = make_model(seed)
    facts = check_export(model, written(tmp_path / "b", model, words), sentences(60))
    assert (facts["sentences"], facts["left_out"], facts["precision"]) == (60, 0, "fp32")
    for search in ("greedy", "beam"):
        assert facts[search]["equal"] + facts[search]["ties"] == 60 and facts[search]["different"] == 0
    assert facts["max_logit_difference"] < 1e-5
    assert facts["next_token_agreement"] > 0.99


def test_a_changed_weight_fails_the_check(tmp_path: Path, make_model: MakeModel, words: TokenizerFiles) -> None:
    model = make_model(0)
    bundle = written(tmp_path / "b", model, words)

    def shifted(name: str, value: Any) -> Any:
        if name == "layers.0.fc1.weight":
            value[0, :4] += 3.0
        return value

    with pytest.raises(NotPossibleError, match=r"of 60 sentences come out different.*sentence \d+, token \d+"):
        check_export(model, tampered(bundle, "encoder", shifted), sentences(60))


def test_a_model_trained_on_after_the_export_fails_the_check(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    model = make_model(1)
    bundle = written(tmp_path / "b", model, words)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.05)
    with pytest.raises(NotPossibleError, match="different from PyTorch"):
        check_export(model, bundle, sentences(60))


def test_a_difference_within_rounding_is_reported_as_a_tie(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    # Tokens 4 and 5, 6 and 7, ... share their output vectors, so only a hair decides which of the two is taken.
    model = make_model(1, share_embeddings="none")
    with torch.no_grad():
        table = model.output_weight()
        table[5::2] = table[4::2]
    bundle = written(tmp_path / "b", model, words)

    def nudged(name: str, value: Any) -> Any:
        if name == "logits.weight":
            value[5::2] *= np.float32(1 + 2e-6)
        return value

    facts = check_export(model, tampered(bundle, "decoder", nudged), sentences(40))
    for search in ("greedy", "beam"):
        assert facts[search]["ties"] > 0 and facts[search]["different"] == 0


def test_int8_is_reported_and_not_refused(tmp_path: Path, make_model: MakeModel, words: TokenizerFiles) -> None:
    model = make_model(2)
    bundle = written(tmp_path / "b", model, words, matrices=BlockwiseInt8())
    facts = check_export(model, bundle, sentences(60))
    assert facts["precision"] == "int8"
    for search in ("greedy", "beam"):
        assert facts[search]["equal"] + facts[search]["different"] == 60
    assert facts["next_token_agreement"] > 0.8
    assert facts["max_logit_difference"] > 1e-4


def test_sentences_too_long_for_the_bundle_are_left_out_and_counted(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    model = make_model(0)
    bundle = written(tmp_path / "b", model, words, max_source_length=6)
    facts = check_export(model, bundle, [[5, 6, 7, 8, 9, 3], [5, 6, 7, 8, 9, 10, 3], [3], [4]])
    assert (facts["sentences"], facts["left_out"]) == (2, 2)
    with pytest.raises(InputError, match="no sentence"):
        check_export(model, bundle, [[3]])
