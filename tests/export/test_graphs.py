"""The exported graphs compute what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from fitformer.export import EXPORTER_VERSION, TorchStepModel, graph_bytes, write_graphs
from fitformer.export.graphs import decoder_graph, encoder_graph
from fitformer.models import SuperTransformer, TransformerConfig
from fitformer.runtime.session import OnnxStepModel
from fitformer.space import Architecture, SearchSpace

Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
MakeBatch = Callable[..., Batch]
MakeModel = Callable[..., Any]
TOLERANCE = 1e-5


def session(model: Any) -> OnnxStepModel:
    graphs = graph_bytes(model)
    return OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1)


def stepped(model: Any, source: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logits [B, T, V] of a ``StepModel`` fed with ``tokens`` one by one."""
    state, logits = model.encode(source), []
    for position in range(tokens.shape[1]):
        found, state = model.step(state, tokens[:, position], position)
        logits.append(found)
    return np.stack(logits, 1)


@torch.no_grad()
def whole(model: Any, source: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logits [B, T, V] of PyTorch, all positions at once."""
    return np.asarray(model(torch.from_numpy(source), torch.from_numpy(tokens)).numpy())


@pytest.mark.parametrize("seed", range(20))
def test_graphs_equal_pytorch_on_random_architectures(seed: int, make_model: MakeModel, make_batch: MakeBatch) -> None:
    model, (source, tokens) = make_model(seed), make_batch(seed)
    np.testing.assert_allclose(
        stepped(session(model), source, tokens), whole(model, source, tokens), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("text", [
    "enc 32: 64/32/2 64/16/1 | dec 32: 64/32/2/4@1,0 30/16/1/2@1",
    "enc 48: 64/32/2 64/16/1 30/32/8 | dec 20: 64/32/8/4@2,1,0 30/16/1/2@1,2 64/32/2/1@2 64/32/2/1@0,0",
    "enc 20: 64/24/4 | dec 48: 64/40/4/8@0",
])  # fmt: skip
def test_graphs_equal_pytorch_for_every_norm_and_sharing(
    text: str, share: str, pre_norm: bool, make_model: MakeModel, make_batch: MakeBatch
) -> None:
    arch = Architecture.from_text(text)
    model, (source, tokens) = make_model(5, arch=arch, share_embeddings=share, pre_norm=pre_norm), make_batch(5)
    np.testing.assert_allclose(
        stepped(session(model), source, tokens), whole(model, source, tokens), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("seed", range(6))
def test_one_row_alone_equals_the_row_in_a_padded_batch(
    seed: int, make_model: MakeModel, make_batch: MakeBatch
) -> None:
    graphs, (source, tokens) = session(make_model(seed)), make_batch(seed)
    together = stepped(graphs, source, tokens)
    for row in range(len(source)):
        own = source[row : row + 1, : int((source[row] != 0).sum())]
        alone = stepped(graphs, own, tokens[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("seed", range(6))
def test_pytorch_step_by_step_equals_all_positions_at_once(
    seed: int, make_model: MakeModel, make_batch: MakeBatch
) -> None:
    model, (source, tokens) = make_model(seed), make_batch(seed)
    np.testing.assert_allclose(
        stepped(TorchStepModel(model), source, tokens), whole(model, source, tokens), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("make", [session, TorchStepModel])
def test_reordered_rows_go_on_as_if_they_had_been_there(
    make: Callable[[Any], Any], make_model: MakeModel, make_batch: MakeBatch
) -> None:
    model, (source, tokens) = make_model(3), make_batch(3)
    engine, rows = make(model), np.array([2, 0, 2])
    state = engine.encode(source)
    _, state = engine.step(state, tokens[:, 0], 0)
    moved, _ = engine.step(engine.reorder(state, rows), tokens[rows, 1], 1)
    direct = stepped(engine, source[rows], tokens[rows, :2])[:, 1]
    np.testing.assert_allclose(moved, direct, atol=TOLERANCE, rtol=TOLERANCE)


def test_torch_steps_can_be_reordered_before_the_first_step(make_model: MakeModel, make_batch: MakeBatch) -> None:
    engine, (source, tokens) = TorchStepModel(make_model(0)), make_batch(0)
    state = engine.reorder(engine.encode(source), np.array([1, 1]))
    found, _ = engine.step(state, tokens[[1, 1], 0], 0)
    np.testing.assert_allclose(found[0], found[1], atol=TOLERANCE, rtol=TOLERANCE)


def test_padding_does_not_change_the_masked_memory(make_model: MakeModel) -> None:
    graphs = session(make_model(2))
    state = graphs.encode(np.array([[5, 6, 3, 0, 0]]))
    masks = {name: value for name, value in state.memory.items() if name.startswith("cross_mask")}
    assert masks
    for name, mask in masks.items():
        span = int(name.rsplit("_", 1)[1])
        assert mask.shape == (1, 1, 1, 5 * span)
        assert mask[0, 0, 0].tolist() == [0, 0, 0, -1e9, -1e9] * span


def test_same_model_gives_the_same_bytes(make_model: MakeModel, tmp_path: Path) -> None:
    first, second = graph_bytes(make_model(7)), graph_bytes(make_model(7))
    assert first == second
    paths = write_graphs(make_model(7), tmp_path)
    assert {name: path.read_bytes() for name, path in paths.items()} == first


@pytest.mark.parametrize("seed", range(4))
def test_graphs_are_valid_onnx_and_follow_the_contract(seed: int, make_model: MakeModel) -> None:
    model = make_model(seed)
    encoder, decoder = encoder_graph(model), decoder_graph(model)
    for graph in (encoder, decoder):
        onnx.checker.check_model(graph)
        assert (graph.producer_name, graph.producer_version) == ("fitformer", str(EXPORTER_VERSION))
        assert all(not value.name or value.name == value.name.strip() for value in graph.graph.initializer)
    assert [item.name for item in encoder.graph.input] == ["source"]
    layers = range(model.arch.decoder_num_layers)
    states = {f"self_{part}_{i}" for i in layers for part in ("key", "value")}
    memory = {item.name for item in encoder.graph.output}
    assert {item.name for item in decoder.graph.input} == {"token", "position"} | states | memory
    assert {item.name for item in decoder.graph.output} == {"logits"} | {f"next_{state}" for state in states}
    spans = {len(layers) for layers in model.arch.decoder_cross_layers}
    assert {name for name in memory if "mask" in name} == {f"cross_mask_{span}" for span in spans}


def test_shared_table_is_stored_once(make_model: MakeModel) -> None:
    sizes = {}
    for share in ("decoder", "none"):
        model = make_model(
            1, arch=Architecture.from_text("enc 32: 64/32/2 | dec 32: 64/32/2/2@0"), share_embeddings=share
        )
        sizes[share] = len(graph_bytes(model)["decoder"])
    assert sizes["none"] - sizes["decoder"] > 0.9 * 50 * 32 * 4


def test_a_supertransformer_is_not_exported_whole() -> None:
    space = SearchSpace.preset("small")
    model = SuperTransformer(TransformerConfig(30, 30), space)
    with pytest.raises(AssertionError, match="extract"):
        encoder_graph(model)


def test_extracted_model_exports_in_the_widths_of_its_own(make_batch: MakeBatch) -> None:
    torch.manual_seed(0)
    space = SearchSpace.preset("small")
    model = SuperTransformer(TransformerConfig(50, 50, max_positions=40), space).eval()
    plain, (source, tokens) = model.extract(space.smallest()), make_batch(1)
    model.set_active(space.smallest())
    np.testing.assert_allclose(
        stepped(session(plain), source, tokens), whole(model, source, tokens), atol=TOLERANCE, rtol=TOLERANCE
    )


def test_export_does_not_disturb_the_model(make_model: MakeModel) -> None:
    model = make_model(4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph_bytes(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
