"""``GraphBuilder``: adds nodes and weights to an ONNX graph under unique names.

Graphs are written node by node and not traced from PyTorch, for three reasons: it takes milliseconds, so that
measuring fifty architectures spends its time on measuring; the fused operators of ONNX Runtime can be named;
and the same model always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17  # the first with LayerNormalization
FUSED_OPSET = 1  # of com.microsoft, the operators that only ONNX Runtime has
FUSED_DOMAIN = "com.microsoft"
IR_VERSION = 8  # that of opset 17; read by every ONNX Runtime since 1.12

Shape = Sequence[int | str]


class GraphBuilder:
    """One graph under construction. Values are referred to by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._used: set[str] = set()

    def input(self, name: str, shape: Shape, *, integer: bool = False) -> str:
        """Declare an input, float32 or int64; a text in ``shape`` names a free axis."""
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return self._unique(name)

    def output(self, name: str, shape: Shape) -> None:
        """Declare the float32 value ``name`` as an output."""
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def weight(self, name: str, value: NDArray[Any]) -> str:
        """Add a tensor that is part of the graph; the name must be new."""
        name = self._unique(name)
        self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def has(self, name: str) -> bool:
        """Whether a value of that name exists."""
        return name in self._used

    def integers(self, *values: int) -> str:
        """A small int64 vector such as a shape or axes; equal ones are stored once."""
        name = "integers_" + "_".join(map(str, values)).replace("-", "m")
        return name if name in self._weights else self.weight(name, np.array(values, np.int64))

    def node(self, kind: str, inputs: Sequence[str], name: str, *, domain: str = "", **attributes: Any) -> str:
        """Add a node with one result, called ``name``, and return that name."""
        self.nodes(kind, inputs, [name], domain=domain, **attributes)
        return name

    def nodes(
        self, kind: str, inputs: Sequence[str], names: Sequence[str], *, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several results, called ``names`` ("" for one that is not wanted)."""
        for name in filter(None, names):
            self._unique(name)
        self._nodes.append(helper.make_node(kind, inputs, names, name=names[0], domain=domain, **attributes))
        return list(names)

    def build(self, producer_version: str) -> onnx.ModelProto:
        """Return the finished model."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, initializer=list(self._weights.values())
        )
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED_DOMAIN, FUSED_OPSET)]
        model = helper.make_model(
            graph, opset_imports=imports, producer_name="fitformer", producer_version=producer_version
        )
        model.ir_version = IR_VERSION
        return model

    def _unique(self, name: str) -> str:
        assert name not in self._used, f"two values called {name}"
        self._used.add(name)
        return name
