"""8-bit weights: error bounds, agreement with float32, and no influence of batch mates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitformer.compress import int8_graphs
from fitformer.compress.quantize import ZERO_POINT, quantize_rows
from fitformer.export import graph_bytes
from fitformer.runtime.decoding import greedy
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.translator import pad_batch

ModelOf = Callable[..., Any]
TEXTS = [
    "enc 64: 128/64/4 64/32/2 | dec 64: 128/64/4/2@1,0 64/32/2/2@1",
    "enc 96: 96/64/4 | dec 40: 50/24/2/4@0",  # widths that are no multiple of a block
]


def session(graphs: dict[str, bytes]) -> OnnxStepModel:
    return OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1)


def first_logits(engine: OnnxStepModel, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return engine.step(engine.encode(source), np.full(len(source), 2), 0)[0]


@given(st.integers(1, 6), st.sampled_from([1, 20, 32, 64, 96, 128, 200]), st.floats(1e-6, 1e4), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_quantized_weight_is_within_half_a_step(rows: int, columns: int, size: float, seed: int) -> None:
    weight = (np.random.default_rng(seed).standard_normal((rows, columns)) * size).astype(np.float32)
    levels, scales = quantize_rows(weight)
    assert levels.min() >= 1
    restored = ((levels.astype(np.float32) - ZERO_POINT) * scales[..., None]).reshape(rows, -1)
    step = np.repeat(scales, levels.shape[-1], axis=1)
    assert (np.abs(restored[:, :columns] - weight) <= 0.5001 * step[:, :columns]).all()
    assert (restored[:, columns:] == 0).all()


def test_a_row_of_zeros_stays_zero() -> None:
    levels, scales = quantize_rows(np.zeros((2, 64), np.float32))
    assert (levels == ZERO_POINT).all() and np.isfinite(scales).all()


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("text", TEXTS)
def test_int8_logits_are_near_those_of_float32(text: str, share: str, pre_norm: bool, model_of: ModelOf) -> None:
    model = model_of(text, share_embeddings=share, pre_norm=pre_norm)
    source = np.random.default_rng(0).integers(4, 60, (3, 7))
    want, have = (first_logits(session(graphs), source) for graphs in (graph_bytes(model), int8_graphs(model)))
    assert np.abs(have - want).mean() < 0.05 * np.abs(want).mean()


def test_every_matrix_is_stored_in_eight_bits(model_of: ModelOf) -> None:
    for content in int8_graphs(model_of(TEXTS[0])).values():
        graph = onnx.load_from_string(content).graph
        large = [w for w in graph.initializer if np.prod(w.dims) >= 2048 and w.name != "positions"]
        assert large
        assert all(weight.data_type == onnx.TensorProto.UINT8 for weight in large), [w.name for w in large]
        assert not {node.op_type for node in graph.node} & {"Gemm", "FusedGemm", "Attention", "Gather"} - {"Gather"}


def test_int8_export_is_deterministic(model_of: ModelOf) -> None:
    assert int8_graphs(model_of(TEXTS[1], 3)) == int8_graphs(model_of(TEXTS[1], 3))


@given(data=st.data())
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("text", TEXTS)
def test_int8_result_does_not_depend_on_batch_mates_or_padding(
    text: str, data: st.DataObject, model_of: ModelOf
) -> None:
    engine = _engine(text, model_of)
    ids = st.lists(st.integers(4, 59), min_size=1, max_size=12)
    sentence = data.draw(ids)
    mates = data.draw(st.lists(ids, max_size=6))
    at = data.draw(st.integers(0, len(mates)))
    batch = [*mates[:at], sentence, *mates[at:]]
    alone = first_logits(engine, pad_batch([sentence]))[0]
    together = first_logits(engine, pad_batch(batch))[at]
    # Same scales, so what is left is rounding of sums (of weights offset by 128, hence larger than in float32);
    # a scale shared with other rows moves logits by a few hundredths.
    np.testing.assert_allclose(together, alone, atol=2e-3, rtol=2e-3)


def test_int8_tokens_of_a_batch_equal_those_of_single_sentences(model_of: ModelOf) -> None:
    engine, rng = _engine(TEXTS[0], model_of), np.random.default_rng(1)
    batch = [rng.integers(4, 60, rng.integers(1, 14)).tolist() for _ in range(24)]
    caps = [len(ids) + 4 for ids in batch]
    together = greedy(engine, pad_batch(batch), max_lengths=caps)
    alone = [greedy(engine, pad_batch([ids]), max_lengths=[cap])[0] for ids, cap in zip(batch, caps, strict=True)]
    assert together == alone


_ENGINES: dict[str, OnnxStepModel] = {}


def _engine(text: str, model_of: ModelOf) -> OnnxStepModel:
    if text not in _ENGINES:
        _ENGINES[text] = session(int8_graphs(model_of(text)))
    return _ENGINES[text]
