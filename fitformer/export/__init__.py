"""From a model to what ships: ONNX graphs, the bundle around them, and the proof that they say what PyTorch says."""

from fitformer.export.bundle import TokenizerFiles, add_facts, write_bundle
from fitformer.export.check import check_export
from fitformer.export.graphs import EXPORTER_VERSION, graph_bytes, write_graphs
from fitformer.export.torch_steps import TorchStepModel

__all__ = [
    "EXPORTER_VERSION",
    "TokenizerFiles",
    "TorchStepModel",
    "add_facts",
    "check_export",
    "graph_bytes",
    "write_bundle",
    "write_graphs",
]
