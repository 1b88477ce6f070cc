"""A written bundle is whole, opens, and its golden outputs are those of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitformer
from fitformer.compress import BlockwiseInt8
from fitformer.errors import BundleError, InputError
from fitformer.export import EXPORTER_VERSION, TokenizerFiles, TorchStepModel, add_facts, write_bundle
from fitformer.models import TransformerConfig
from fitformer.rundir import sha256
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings, greedy
from fitformer.runtime.tokenizer import WordTokenizer
from fitformer.runtime.translator import Translator, pad_batch
from fitformer.runtime.verify import verify
from fitformer.space import Architecture

MakeModel = Callable[..., Any]
LINES = ["w5 w6 w7", "w9", "w10 w11 w12 w13 w14", "", "w49 unknown w8"]


def write(folder: Path, model: Any, words: TokenizerFiles, **options: Any) -> Bundle:
    settings = {
        "source_language": "en",
        "target_language": "de",
        "decoding": DecodeSettings(beam=3, max_length_ratio=1.5, max_length_offset=4, min_length=1),
        "golden_sources": LINES,
        **options,
    }
    return write_bundle(folder, model=model, tokenizer=words, **settings)


def test_bundle_holds_the_facts_and_the_right_checksums(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    model = make_model(0)
    bundle = write(tmp_path / "b", model, words, licence="CC0", training={"seed": 7}, scores={"bleu": 1.0})
    facts = json.loads((tmp_path / "b" / "fitformer.json").read_text(encoding="utf-8"))
    assert facts == bundle.facts
    assert Architecture.from_dict(facts["architecture"]) == model.arch
    assert Architecture.from_text(facts["architecture_text"]) == model.arch
    assert TransformerConfig.from_dict(facts["model"]) == model.config
    assert (facts["format_version"], facts["exporter_version"]) == (1, EXPORTER_VERSION)
    assert facts["fitformer_version"] == fitformer.__version__
    assert (facts["precision"], facts["quantization"], facts["licence"]) == ("fp32", {}, "CC0")
    assert facts["decoding"] == {
        "beam": 3, "length_penalty": 1.0, "max_length_ratio": 1.5, "max_length_offset": 4, "no_repeat_ngram": 0,
    }  # fmt: skip
    on_disk = {path.name for path in (tmp_path / "b").iterdir()}
    assert (
        on_disk
        == {"fitformer.json", "encoder.onnx", "decoder.onnx", "words.txt"}
        == {*facts["files"], "fitformer.json"}
    )
    assert all(sha256(tmp_path / "b" / name) == checksum for name, checksum in facts["files"].items())


def test_golden_outputs_are_the_greedy_outputs_of_pytorch(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    model = make_model(1)
    bundle = write(tmp_path / "b", model, words)
    golden = bundle.facts["golden"]
    assert [entry["source"] for entry in golden] == [line for line in LINES if line]
    for entry in golden:
        ids = entry["source_ids"][:-1]
        cap = bundle.decode_settings.length_cap(len(ids), limit=bundle.max_target_length)
        assert entry["source_ids"][-1] == 3
        assert greedy(TorchStepModel(model), pad_batch([ids]), max_lengths=[cap])[0] == entry["target_ids"]


@pytest.mark.parametrize("matrices", [None, BlockwiseInt8()])
def test_written_bundle_verifies_and_translates(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles, matrices: Any
) -> None:
    options = {} if matrices is None else {"matrices": matrices}
    bundle = write(tmp_path / "b", make_model(2), words, **options)
    assert verify(bundle)["golden"] == 4
    found = list(Translator(bundle).translate(LINES))
    assert len(found) == len(LINES) and found[3].text == ""
    assert bundle.precision == ("fp32" if matrices is None else "int8")


def test_two_tokenizer_files_of_one_name_are_kept_apart(tmp_path: Path, make_model: MakeModel) -> None:
    paths = {}
    for side in ("source", "target"):
        paths[side] = tmp_path / side / "words.txt"
        paths[side].parent.mkdir()
        paths[side].write_text(WordTokenizer.file_text(f"{side}{i}" for i in range(46)), encoding="utf-8")
    bundle = write(tmp_path / "b", make_model(1), TokenizerFiles("words", paths["source"], paths["target"]))
    source, target = bundle.tokenizers()
    assert source.decode([5]) == "source1" and target.decode([5]) == "target1"


def test_tokenizer_of_another_size_is_refused_and_nothing_is_left(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    words.source.write_text(WordTokenizer.file_text(["a", "b"]), encoding="utf-8")
    with pytest.raises(InputError, match="source tokenizer has 6 ids, the model 50"):
        write(tmp_path / "b", make_model(0), words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["words.txt"]


def test_a_truncated_tokenizer_is_named_as_the_user_knows_it(
    tmp_path: Path, make_model: MakeModel, prepared: Path
) -> None:
    path = tmp_path / "prepare" / "joint.model"
    path.parent.mkdir()
    path.write_bytes((prepared / "joint.model").read_bytes()[:1000])
    with pytest.raises(InputError, match=re.escape(f"{path}: not a SentencePiece model")):
        write(tmp_path / "bundle", make_model(1), TokenizerFiles("sentencepiece", path, path))
    assert not (tmp_path / "bundle").exists()


def test_added_facts_are_kept_and_written_ones_protected(
    tmp_path: Path, make_model: MakeModel, words: TokenizerFiles
) -> None:
    write(tmp_path / "b", make_model(0), words)
    bundle = add_facts(tmp_path / "b", scores={"bleu": 30.0}, latency=[{"latency_ms": 2.0}])
    assert bundle.facts["scores"] == {"bleu": 30.0} and bundle.facts["latency"] == [{"latency_ms": 2.0}]
    assert bundle.facts["golden"]
    with pytest.raises(InputError, match="'files'"):
        add_facts(tmp_path / "b", files={})


def test_a_changed_graph_is_noticed(tmp_path: Path, make_model: MakeModel, words: TokenizerFiles) -> None:
    write(tmp_path / "b", make_model(0), words)
    with (tmp_path / "b" / "decoder.onnx").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(BundleError, match=r"decoder\.onnx"):
        Bundle.load(tmp_path / "b")
