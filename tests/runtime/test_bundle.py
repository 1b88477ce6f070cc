"""A bundle that is broken, strange or from the future is one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.errors import BundleError
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.tokenizer import WordTokenizer, load_tokenizer

MakeBundle = Callable[..., Path]


def change(folder: Path, **changes: Any) -> None:
    file = folder / "fitformer.json"
    facts = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))


def refusal(folder: Path, **options: bool) -> str:
    with pytest.raises(BundleError) as caught:
        Bundle.load(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_bundle_loads_and_tells_its_facts(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle())
    assert bundle.precision == "fp32"
    assert bundle.max_source_length == 24
    assert bundle.max_target_length == 63
    assert bundle.decode_settings.max_length_offset == 10
    assert bundle.decode_settings.min_length == 1
    source, target = bundle.tokenizers()
    assert source is target


def test_what_is_no_bundle_is_named(make_bundle: MakeBundle, tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")
    assert "not a folder" in refusal(make_bundle() / "fitformer.json")
    (tmp_path / "empty").mkdir()
    message = refusal(tmp_path / "empty")
    assert "fitformer.json" in message and "not a bundle" in message


def test_truncated_facts_are_named(make_bundle: MakeBundle) -> None:
    folder = make_bundle()
    file = folder / "fitformer.json"
    file.write_text(file.read_text()[:100])
    assert "fitformer.json" in refusal(folder) and "again" in refusal(folder)
    file.write_text("[]")
    assert "no JSON object" in refusal(folder)


def test_a_missing_and_a_changed_file_are_named(make_bundle: MakeBundle) -> None:
    folder = make_bundle()
    graph = folder / "decoder.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    message = refusal(folder)
    assert "decoder.onnx" in message and "checksum" in message
    Bundle.load(folder, check=False)
    graph.unlink()
    message = refusal(folder, check=False)
    assert "decoder.onnx" in message and "missing" in message


def test_a_newer_format_says_to_upgrade(make_bundle: MakeBundle) -> None:
    folder = make_bundle()
    # Whatever else a future format holds, its version is what matters.
    (folder / "fitformer.json").write_text(json.dumps({"format_version": 2, "everything": "else"}))
    message = refusal(folder)
    assert "format 2" in message and "upgrade" in message


def test_an_unknown_task_offers_the_nearest(make_bundle: MakeBundle) -> None:
    message = refusal(make_bundle(task="translatoin"))
    assert "translatoin" in message and "did you mean 'translation'" in message


@pytest.mark.parametrize("key", ["format_version", "task", "model", "graphs", "tokenizer", "files", "decoding"])
def test_a_missing_or_mistyped_key_is_named(make_bundle: MakeBundle, key: str) -> None:
    folder = make_bundle()
    change(folder, **{key: None})
    assert f"'{key}' is missing" in refusal(folder)
    change(folder, **{key: 1.5})
    assert f"'{key}' is not of the type" in refusal(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hosts", "a\\b", "", 3])
def test_files_outside_the_folder_are_refused(make_bundle: MakeBundle, name: object) -> None:
    bundle = Bundle.load(make_bundle())
    with pytest.raises(BundleError, match="not the name of a file"):
        bundle.file(name)


def test_an_unknown_decoding_setting_offers_the_nearest(make_bundle: MakeBundle) -> None:
    bundle = Bundle.load(make_bundle(decoding={"bean": 4}))
    with pytest.raises(BundleError, match="did you mean 'beam'"):
        _ = bundle.decode_settings


def test_an_unknown_tokenizer_kind_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="did you mean 'sentencepiece'"):
        load_tokenizer("sentence-piece", tmp_path / "file")


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
def test_a_tokenizer_file_of_the_wrong_content_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "vocabulary").write_bytes(b"\xff\x00nothing")
    with pytest.raises(BundleError, match="vocabulary"):
        load_tokenizer(kind, tmp_path / "vocabulary")
    with pytest.raises(BundleError, match="missing"):
        load_tokenizer(kind, tmp_path / "missing")


def test_word_tokenizer_keeps_known_words_and_marks_unknown_ones(tmp_path: Path) -> None:
    (tmp_path / "words").write_text(WordTokenizer.file_text(["a", "b"]))
    tokenizer = WordTokenizer(tmp_path / "words")
    assert tokenizer.vocab_size == 6
    assert tokenizer.encode(["b  a", "", "<pad> </s> c"]) == [[5, 4], [], [1, 1, 1]]
    assert tokenizer.decode([5, 1, 4, 3, 0]) == "b <unk> a"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": {"max_positions": "x", "source_vocab_size": 9}}, "model: 'max_positions' is 'x'"),
        ({"model": {"max_positions": 64}}, "model: 'source_vocab_size' is None"),
        ({"model": {"max_positions": 64, "source_vocab_size": 9, "start_id": 7}}, "model: 'start_id' is 7, not 2 or 3"),
        ({"max_source_length": 0}, "max_source_length 0 leaves no room"),
        ({"precision": "fp8"}, "precision 'fp8' is unknown"),
        ({"files": {}}, "the file of the encoder, 'encoder.onnx', is not among 'files'"),
        ({"tokenizer": {"kind": "words"}}, "the file of the source, None, is not among 'files'"),
    ],
)
def test_facts_that_cannot_be_used_are_named(make_bundle: MakeBundle, changes: dict[str, Any], named: str) -> None:
    assert named in refusal(make_bundle(**changes))
