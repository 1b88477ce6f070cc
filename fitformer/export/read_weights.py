"""Reads a bundle's weights back from its graphs, so that training can go on from what was shipped.

Every float32 weight comes back bit for bit, but for the embedding tables, which the graphs hold multiplied by
sqrt(width): where two neighbouring numbers have the same product, either may come back. So what is certain is this:
graphs written from what was read are the graphs of the bundle, byte for byte. Weights of 8 bits come back as the
numbers that they stand for: rounded, as the bundle computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import nn

from fitformer.errors import BundleError, InputError
from fitformer.export.graphs import EMBEDDING, EXPORTER_VERSION
from fitformer.models import Transformer, TransformerConfig
from fitformer.runtime.bundle import COPY_AGAIN, FACTS_FILE, Bundle
from fitformer.space import Architecture

Array = NDArray[np.float32]

ZERO_POINT = 128  # what ONNX Runtime takes for unsigned bytes when no zero points are given
OUTPUT = "logits"
REASON = 100  # characters of another library's error that are passed on
STEPS = (0, 1, -1, 2, -2)  # neighbours of a quotient among which the number lies that was multiplied


def read_config(bundle: Bundle) -> tuple[TransformerConfig, Architecture]:
    """What the model of a bundle is built from.

    Raises:
        BundleError: a fact is missing or cannot be used.
    """
    file = bundle.path / FACTS_FILE
    try:
        arch = Architecture.from_dict(bundle.facts["architecture"])
        return TransformerConfig.from_dict(bundle.facts["model"]), arch
    except (KeyError, TypeError, AttributeError):
        raise BundleError(f"{file}: does not say how the model is built; {COPY_AGAIN}") from None
    except InputError as error:
        raise BundleError(f"{file}: {error}") from None


def read_weights(bundle: Bundle) -> Transformer:
    """The model of a bundle, in float32.

    Raises:
        BundleError: its graphs are damaged, or others than this version of fitformer writes.
    """
    config, arch = read_config(bundle)
    version = bundle.facts.get("exporter_version")
    form = bundle.facts.get("quantization") or {}
    if version != EXPORTER_VERSION or (bundle.precision == "int8" and form.get("form") != "blockwise"):
        raise BundleError(
            f"{bundle.path / FACTS_FILE}: graphs of exporter version {version} and form {form.get('form', 'fp32')}; "
            f"weights can be read back from version {EXPORTER_VERSION}, fp32 or blockwise int8: export it again"
        )
    encoder, decoder = (_Graph(bundle, part) for part in ("encoder", "decoder"))
    tables = _read_tables(config, arch, encoder, decoder)  # first: it shows whether facts and graphs belong together
    model = Transformer(config, arch)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                _copy(module, weight=_home(name, encoder, decoder).matrix(_stored(name), module.weight.shape))
                _copy(module, bias=_home(name, encoder, decoder).vector(f"{_stored(name)}.bias", len(module.bias)))
            elif isinstance(module, nn.LayerNorm):
                graph, stored = _home(name, encoder, decoder), _stored(name)
                if name == "encoder.norm":
                    stored = f"layers.{arch.decoder_cross_layers[0][0]}.memory"
                size = module.normalized_shape[0]
                _copy(module, **{part: graph.vector(f"{stored}.{part}", size) for part in ("weight", "bias")})
            elif name in tables:
                _copy(module, weight=tables[name])
    return model.eval()


def _home(name: str, encoder: _Graph, decoder: _Graph) -> _Graph:
    """The graph that holds a module's weights: memories are projected in the encoder's."""
    return encoder if name.startswith("encoder.") or name.endswith(".kv_proj") else decoder


def _stored(name: str) -> str:
    """Name in a graph of what a model calls ``name``."""
    _, _, name = name.partition(".")  # encoder or decoder
    if name.endswith(".cross_attn.kv_proj"):
        return f"cross.{name.split('.')[1]}.kv_proj"
    return f"{name.removesuffix('_norm')}.norm" if name.endswith("_norm") else name


def _copy(module: nn.Module, **values: Array) -> None:
    for name, value in values.items():
        getattr(module, name).copy_(torch.from_numpy(np.array(value, np.float32)))  # a copy: ONNX's own is read-only


def _read_tables(config: TransformerConfig, arch: Architecture, encoder: _Graph, decoder: _Graph) -> dict[str, Array]:
    """Embedding tables by the name of their module."""
    own_output = config.share_embeddings == "none"
    source = encoder.table((config.source_vocab_size, arch.encoder_embed_dim), None)
    sizes = config.target_vocab_size, arch.decoder_embed_dim
    target = decoder.table(sizes, None if own_output else OUTPUT)
    if config.share_embeddings == "all":
        # The narrower side knows the leading columns of the wider one's.
        return {"encoder.embed_tokens": _unscaled(sorted((target, source), key=lambda table: -table[0].shape[1]))}
    tables = {"encoder.embed_tokens": _unscaled([source]), "decoder.embed_tokens": _unscaled([target])}
    return tables | ({"output": decoder.rows(OUTPUT, sizes)} if own_output else {})


def _unscaled(tables: Sequence[tuple[Array, float]]) -> Array:
    """Numbers whose product with each factor is what the table says, as far as there are any; the first is the widest.

    A factor of 1 says that the table is not scaled; only the widest is then looked at.
    """
    widest, factor = tables[0]
    if factor == 1.0:
        return widest
    quotient = (widest / np.float64(factor)).astype(np.float32)
    found, pending = quotient.copy(), np.ones(quotient.shape, dtype=bool)
    for step in STEPS:
        tried = quotient
        for _ in range(abs(step)):
            tried = np.nextafter(tried, np.float32(math.copysign(math.inf, step)))
        fits = pending.copy()
        for table, scale in tables:
            columns = table.shape[1]
            fits[:, :columns] &= tried[:, :columns] * np.float32(scale) == table
        found[fits] = tried[fits]
        pending &= ~fits
    return found


class _Graph:
    """The stored tensors of one graph of a bundle."""

    def __init__(self, bundle: Bundle, part: str) -> None:
        self._path, self._is_int8 = bundle.file(bundle.facts["graphs"][part]), bundle.precision == "int8"
        try:
            graph = onnx.load(self._path, load_external_data=False).graph
        except Exception as error:  # protobuf has several classes for it
            reason = " ".join(str(error).split())[:REASON]
            raise BundleError(f"{self._path}: not an ONNX graph ({reason}); {COPY_AGAIN}") from None
        self._tensors: Mapping[str, onnx.TensorProto] = {tensor.name: tensor for tensor in graph.initializer}

    def vector(self, name: str, size: int) -> Array:
        """A bias, or a weight of a norm."""
        return self._tensor(name, (size,))

    def matrix(self, name: str, shape: Sequence[int]) -> Array:
        """The weight ``[out, in]`` of a projection."""
        if self._is_int8:
            return self.rows(name, shape)
        return self._tensor(f"{name}.weight", tuple(shape)[::-1]).T

    def rows(self, name: str, shape: Sequence[int]) -> Array:
        """A matrix ``[out, in]`` that is stored as it is, row by row."""
        if not self._is_int8:
            return self._tensor(f"{name}.weight", tuple(shape))
        return self._dequantised(f"{name}.weight", f"{name}.scale", shape)

    def table(self, shape: Sequence[int], output: str | None) -> tuple[Array, float]:
        """The embedding table ``[V, D]`` as it is stored, and the factor in it; ``output`` is the projection that uses
        the same one.
        """
        factor = math.sqrt(shape[1])
        if not self._is_int8:
            return self._tensor(f"{EMBEDDING}.weight", tuple(shape)), factor
        if output is not None:  # which has the scales without the factor
            return self._dequantised(f"{EMBEDDING}.weight", f"{output}.scale", shape), 1.0
        scaled = self._dequantised(f"{EMBEDDING}.weight", f"{EMBEDDING}.scale", shape)
        return (scaled / np.float32(factor)).astype(np.float32), 1.0

    def _dequantised(self, name: str, scale: str, shape: Sequence[int]) -> Array:
        levels, scales = self._any(name), self._any(scale)
        rows, columns = shape
        if scales.ndim != 2 or len(scales) != rows or len(levels) != rows or levels.size % scales.size:
            raise self._other(name, levels.shape, shape)
        values = (levels.reshape(*scales.shape, -1).astype(np.float32) - ZERO_POINT) * scales[..., None]
        values = values.reshape(rows, -1)
        if values.shape[1] < columns:
            raise self._other(name, levels.shape, shape)
        return np.asarray(values[:, :columns], np.float32)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        value = self._any(name)
        if value.shape != shape or value.dtype != np.float32:
            raise self._other(name, value.shape, shape)
        return value

    def _any(self, name: str) -> NDArray[Any]:
        if name not in self._tensors:
            raise BundleError(f"{self._path}: holds no weight '{name}', which this bundle's model has; {COPY_AGAIN}")
        try:
            return numpy_helper.to_array(self._tensors[name])
        except Exception as error:
            raise BundleError(f"{self._path}: the weight '{name}' is damaged ({str(error)[:REASON]})") from None

    def _other(self, name: str, found: Sequence[int], wanted: Sequence[int]) -> BundleError:
        has, needs = (" x ".join(map(str, shape)) for shape in (found, wanted))
        return BundleError(f"{self._path}: the weight '{name}' is {has}, and the model of this bundle has {needs}")
