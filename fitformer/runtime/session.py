"""Runs a bundle's two ONNX graphs step by step.

Knows the graphs by names only: every output of the encoder feeds the decoder's input of the same name, every
    decoder output
``next_X`` feeds input ``X`` of the next step, and the first ``X`` is zeros with every dynamic axis but the
batch of length 0. Axis 0 of every tensor is the batch. So a graph with other states needs no change here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from fitformer.errors import BundleError
from fitformer.runtime.decoding import BOS, Floats, Ids

NEXT = "next_"
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


@dataclass(frozen=True, slots=True)
class OnnxState:
    """What a step needs besides its token.

    Attributes:
        memory: the encoder's outputs by name.
        owners: source row that each row of ``memory`` belongs to.
        carried: the decoder's states by name.
    """

    memory: dict[str, NDArray[Any]]
    owners: Ids
    carried: dict[str, NDArray[Any]]


class OnnxStepModel:
    """The ``StepModel`` of an encoder and a decoder graph in ONNX Runtime on the CPU.

    Args:
        encoder, decoder: a file, or the bytes of a graph.
        threads: processor threads that one run of a graph may use.
        start_id: what the decoder starts from; see ``StepModel``.
    Raises:
        BundleError: a graph cannot be read, or the two do not fit together.
    """

    def __init__(
        self, encoder: Path | str | bytes, decoder: Path | str | bytes, *, threads: int, start_id: int = BOS
    ) -> None:
        self.start_id = start_id
        self._encoder = _session(encoder, threads, spin_after_run=False)
        self._decoder = _session(decoder, threads, spin_after_run=True)
        self._memory_names = [output.name for output in self._encoder.get_outputs()]
        self._output_names = [output.name for output in self._decoder.get_outputs()]
        self._carried_names = [name.removeprefix(NEXT) for name in self._output_names if name.startswith(NEXT)]
        inputs = {item.name: item for item in self._decoder.get_inputs()}
        self._check(set(inputs))
        self._logits_at = self._output_names.index("logits")
        self._carried_at = [self._output_names.index(NEXT + name) for name in self._carried_names]
        self._initial = {name: _initial_shape(inputs[name]) for name in self._carried_names}

    def _check(self, inputs: set[str]) -> None:
        given = {"token", "position", *self._memory_names, *self._carried_names}
        if "logits" not in self._output_names:
            raise BundleError("decoder graph: it has no output 'logits'; export the bundle again")
        if given != inputs:
            raise BundleError(
                f"decoder graph: inputs without a source: {sorted(inputs - given)}, "
                f"encoder outputs or states without an input: {sorted(given - inputs)}; "
                "export the bundle again"
            )

    def encode(self, source: Ids) -> OnnxState:
        """Run the encoder on ``source`` [B, S]; see ``StepModel``."""
        source = np.ascontiguousarray(source, np.int64)
        memory = dict(zip(self._memory_names, self._encoder.run(None, {"source": source}), strict=True))
        rows = len(source)
        carried = {name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in self._initial.items()}
        return OnnxState(memory, np.arange(rows), carried)

    def step(self, state: OnnxState, tokens: Ids, position: int) -> tuple[Floats, OnnxState]:
        """Run the decoder once; see ``StepModel``."""
        feeds = {"token": tokens, "position": np.array([position], np.int64), **state.memory, **state.carried}
        outputs = self._decoder.run(self._output_names, feeds)
        carried = {name: outputs[at] for name, at in zip(self._carried_names, self._carried_at, strict=True)}
        return outputs[self._logits_at], OnnxState(state.memory, state.owners, carried)

    def reorder(self, state: OnnxState, rows: Ids) -> OnnxState:
        """Take batch rows of every tensor; see ``StepModel``."""
        owners = state.owners[rows]
        memory = state.memory
        # Rows of one sentence share their memory: a beam that only swaps hypotheses leaves it as it is.
        if not np.array_equal(owners, state.owners):
            memory = {name: value[rows] for name, value in memory.items()}
        return OnnxState(memory, owners, {name: value[rows] for name, value in state.carried.items()})


def _session(graph: Path | str | bytes, threads: int, *, spin_after_run: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if not spin_after_run:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        source = graph if isinstance(graph, bytes) else str(graph)
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a class of its own per status, none public
        name = "graph" if isinstance(graph, bytes) else str(graph)
        reason = str(error).strip().splitlines()[0]
        raise BundleError(f"{name}: ONNX Runtime cannot load it ({reason}); export the bundle again") from error


def _initial_shape(item: Any) -> tuple[tuple[int, ...], Any]:
    """Shape without the batch axis (dynamic axes 0) and type of a state before the first step."""
    if item.type not in _DTYPES:
        raise BundleError(f"decoder graph: state '{item.name}' has the type {item.type}, known are {sorted(_DTYPES)}")
    return tuple(size if isinstance(size, int) else 0 for size in item.shape[1:]), _DTYPES[item.type]
