"""The ONNX step model against the contract: names alone decide what feeds what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fitformer.errors import BundleError
from fitformer.runtime.decoding import BOS, EOS, DecodeSettings, beam_search, greedy
from fitformer.runtime.session import OnnxStepModel

MakeBundle = Callable[..., Path]


@pytest.fixture
def folder(make_bundle: MakeBundle) -> Path:
    return make_bundle()


def load(folder: Path, threads: int = 1) -> OnnxStepModel:
    return OnnxStepModel(folder / "encoder.onnx", folder / "decoder.onnx", threads=threads)


def test_states_start_empty_and_grow_by_what_was_fed(folder: Path) -> None:
    model = load(folder)
    state = model.encode(np.array([[5, 6, EOS], [7, EOS, 0]]))
    assert state.carried["seen"].shape == (2, 0)
    _, state = model.step(state, np.array([BOS, BOS]), 0)
    logits, state = model.step(state, np.array([5, 7]), 1)
    assert state.carried["seen"].tolist() == [[BOS, 5], [BOS, 7]]
    assert logits.argmax(axis=-1).tolist() == [6, EOS]


def test_reorder_takes_memory_and_states_of_the_same_rows(folder: Path) -> None:
    model = load(folder)
    state = model.encode(np.array([[5, 6, EOS], [7, EOS, 0]]))
    _, state = model.step(state, np.array([8, 9]), 0)
    swapped = model.reorder(state, np.array([1, 0, 1]))
    assert swapped.carried["seen"].tolist() == [[9], [8], [9]]
    assert swapped.memory["memory"].tolist() == [[7, EOS, EOS], [5, 6, EOS], [7, EOS, EOS]]
    # Rows that change places within a sentence share the memory: only the states move.
    again = model.reorder(swapped, np.array([2, 1, 0]))
    assert again.memory is swapped.memory
    assert again.carried["seen"].tolist() == [[9], [8], [9]]


def test_graphs_load_from_bytes_as_from_files(folder: Path) -> None:
    files = [(folder / f"{part}.onnx").read_bytes() for part in ("encoder", "decoder")]
    model = OnnxStepModel(*files, threads=2)
    source = np.array([[5, 6, EOS]])
    assert greedy(model, source, max_lengths=[9]) == greedy(load(folder), source, max_lengths=[9]) == [[5, 6]]


def test_greedy_and_beam_search_copy_through_the_graph(folder: Path) -> None:
    source = np.array([[5, 6, 9, EOS], [7, EOS, 0, 0], [8, 8, EOS, 0]])
    copies = [[5, 6, 9], [7], [8, 8]]
    assert greedy(load(folder), source, max_lengths=[9] * 3) == copies
    found = beam_search(load(folder), source, DecodeSettings(beam=3), [9] * 3)
    assert [hypotheses[0].ids for hypotheses in found] == copies


def renamed(file: Path, old: str, new: str) -> bytes:
    model = onnx.load(str(file))
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for item in [*model.graph.input, *model.graph.output]:
        item.name = new if item.name == old else item.name
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("old", "new"), [("memory", "elsewhere"), ("next_seen", "grown"), ("logits", "scores")])
def test_graphs_that_do_not_fit_together_are_refused_by_name(folder: Path, old: str, new: str) -> None:
    decoder: Any = renamed(folder / "decoder.onnx", old, new)
    with pytest.raises(BundleError, match="seen" if old == "next_seen" else old):
        OnnxStepModel(folder / "encoder.onnx", decoder, threads=1)


def test_a_file_that_is_no_graph_is_refused_by_name(folder: Path) -> None:
    (folder / "encoder.onnx").write_bytes(b"not a graph")
    with pytest.raises(BundleError, match=r"encoder\.onnx"):
        load(folder)
