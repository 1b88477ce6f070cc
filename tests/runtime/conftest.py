"""A bundle whose model copies its source, so that every translation is known beforehand."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sentencepiece
from onnx import TensorProto, helper, numpy_helper

from fitformer.rundir import sha256
from fitformer.runtime.tokenizer import SPECIAL_WORDS

WORDS = [f"w{i}{mark}" for i in range(10) for mark in ("", ".", ",")] + ["ich", "bin", "hier", "da"]
SENTENCES = [
    "the cat sat on the mat.",
    "a dog, a cat and a bird.",
    "where is the bird?",
    "it is on the table!",
] * 20

MakeBundle = Callable[..., Path]


def copy_graphs(vocab: int) -> tuple[bytes, bytes]:
    """Encoder: the ids themselves, eos for padding. Decoder: the id at the present position gets logit 20,
    others small fixed ones.

    ``seen`` collects the tokens that were fed, as a real decoder collects keys and values.
    """
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    encoder = helper.make_graph(
        [
            helper.make_node("Equal", ["source", "pad"], ["padding"]),
            helper.make_node("Where", ["padding", "eos", "source"], ["memory"]),
        ],
        "encoder",
        [helper.make_tensor_value_info("source", integer, ["B", "S"])],
        [helper.make_tensor_value_info("memory", integer, ["B", "S"])],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in (("pad", 0), ("eos", 3))],
    )
    small = np.random.default_rng(0).standard_normal(vocab).astype(np.float32)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "one": np.array([1], np.int64),
        "depth": np.array(vocab, np.int64),
        "peak": np.array([0.0, 20.0], np.float32),
        "small": small,
    }
    nodes = [
        helper.make_node("Shape", ["memory"], ["length"], start=1),
        helper.make_node("Sub", ["length", "one"], ["last"]),
        helper.make_node("Min", ["position", "last"], ["at"]),
        helper.make_node("Gather", ["memory", "at"], ["ids"], axis=1),
        helper.make_node("Squeeze", ["ids", "one"], ["id"]),
        helper.make_node("OneHot", ["id", "depth", "peak"], ["peaks"]),
        helper.make_node("Add", ["peaks", "small"], ["logits"]),
        helper.make_node("Unsqueeze", ["token", "one"], ["tokens"]),
        helper.make_node("Concat", ["seen", "tokens"], ["next_seen"], axis=1),
    ]
    decoder = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("token", integer, ["B"]),
            helper.make_tensor_value_info("position", integer, [1]),
            helper.make_tensor_value_info("memory", integer, ["B", "S"]),
            helper.make_tensor_value_info("seen", integer, ["B", "T"]),
        ],
        [
            helper.make_tensor_value_info("logits", real, ["B", vocab]),
            helper.make_tensor_value_info("next_seen", integer, ["B", "T_next"]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return _serialised(encoder), _serialised(decoder)


def _serialised(graph: Any) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def subword_model() -> bytes:
    """A small SentencePiece model with byte fallback."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=True,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="session")
def tokenizer_files() -> dict[str, bytes]:
    words = "".join(f"{word}\n" for word in (*SPECIAL_WORDS, *WORDS))
    return {"words": words.encode(), "sentencepiece": subword_model()}


@pytest.fixture
def make_bundle(tmp_path: Path, tokenizer_files: dict[str, bytes]) -> MakeBundle:
    """A function that writes a copying bundle; keyword arguments replace entries of ``fitformer.json``."""

    def make(kind: str = "words", *, name: str = "bundle", **changes: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "vocabulary").write_bytes(tokenizer_files[kind])
        vocab = len(SPECIAL_WORDS) + len(WORDS) if kind == "words" else 400
        for file, content in zip(("encoder.onnx", "decoder.onnx"), copy_graphs(vocab), strict=True):
            (folder / file).write_bytes(content)
        facts = {
            "format_version": 1,
            "exporter_version": 1,
            "task": "translation",
            "source_language": "en",
            "target_language": "de",
            "model": {"source_vocab_size": vocab, "target_vocab_size": vocab, "max_positions": 64},
            "precision": "fp32",
            "tokenizer": {"kind": kind, "source": "vocabulary", "target": "vocabulary"},
            "graphs": {"encoder": "encoder.onnx", "decoder": "decoder.onnx"},
            "max_source_length": 24,
            "decoding": {"beam": 1, "length_penalty": 1.0, "max_length_ratio": 2.0, "max_length_offset": 10},
            "files": {file.name: sha256(file) for file in folder.iterdir()},
            "golden": [],
            "latency": [],
            **changes,
        }
        (folder / "fitformer.json").write_text(json.dumps(facts), encoding="utf-8")
        return folder

    return make
