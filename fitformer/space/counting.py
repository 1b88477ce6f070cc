"""Parameters and Mult-Adds of an ``Architecture`` by formula, under named conventions.

``hat`` is what the HAT paper's tables print: no embeddings, no output layer, one teacher-forced forward without beam.
``total`` is what a device holds and does: embeddings and output layer too, one token at a time with cached keys and
values, for every hypothesis of the beam. One Mult-Add (MAC) is one multiplication with its addition; FLOPs = 2 MACs.

Letters in formulas: e and d width of encoder and decoder, q width of queries, keys and values, f inner width of the
feed-forward network, S and T source and target tokens (end of sentence counted), K keys that cross-attention sees (S
for each attended encoder layer), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

from fitformer.errors import InputError
from fitformer.space.architecture import Architecture

HAT_LENGTH = 30  # tokens per side in HAT's WMT rows; its IWSLT rows have 23


@dataclass(frozen=True)
class Operators:
    """A count split by what it is spent on; parameters and Mult-Adds have the same parts.

    Attributes:
        embeddings: token tables (parameters only: looking up multiplies nothing).
        attention_projections: queries, keys, values and outputs of every attention.
        attention_products: queries times keys and weights times values (Mult-Adds only).
        feed_forward: the two matrices of every feed-forward network.
        output_layer: hidden state to vocabulary (no parameters where the table is the target embeddings').
        other: norms and scalings, one per element.
    """

    embeddings: int = 0
    attention_projections: int = 0
    attention_products: int = 0
    feed_forward: int = 0
    output_layer: int = 0
    other: int = 0

    def __add__(self, more: Operators) -> Operators:
        mine, others = asdict(self), asdict(more)
        return Operators(**{name: mine[name] + others[name] for name in mine})

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))

    def to_dict(self) -> dict[str, int]:
        """The parts by name."""
        return asdict(self)


@dataclass(frozen=True)
class Counts:
    """Parameters, and Mult-Adds of one source sentence, of one architecture under one convention."""

    parameters: Operators
    macs: Operators

    @property
    def flops(self) -> int:
        """Two per Mult-Add."""
        return 2 * self.macs.total


def hat(arch: Architecture, *, source_length: int = HAT_LENGTH, target_length: int = HAT_LENGTH) -> Counts:
    """Count as HAT's published tables do (specification by its code: ``torchprofile`` 0.1.0 less the output layer).

    Its profiler also counts one operation per element of each norm, scaled query, scaled embedding and position.
    """
    _check_lengths(source_length, target_length)
    macs = Operators(other=_embedding_scaling(arch, source_length, target_length) + source_length + target_length)
    for layer in _encoder_layers(arch):
        macs += layer.encoding(source_length)
    for block in _decoder_layers(arch):
        macs += block.memory(source_length) + block.decoding([target_length] * target_length, source_length)
    return Counts(_layer_parameters(arch), macs)


def total(
    arch: Architecture,
    *,
    source_vocab_size: int,
    target_vocab_size: int,
    share_embeddings: str = "all",
    pre_norm: bool = True,
    source_length: int = HAT_LENGTH,
    target_length: int = HAT_LENGTH,
    beam: int = 1,
) -> Counts:
    """Count what the shipped decode loop needs for one sentence.

    The encoder runs once and its outputs are projected once for each decoder layer. Then follow ``target_length``
    steps, the first for one row and the others for ``beam`` rows, each attending to the positions so far.

    Args:
        share_embeddings: ``all`` (one table for source, target and output), ``decoder`` (target and output) or
            ``none``, as in ``TransformerConfig``.
        pre_norm: both stacks end in one more norm.
    Raises:
        InputError: a length, vocabulary or beam below 1, an unknown way to share.
    """
    _check_lengths(source_length, target_length)
    for name, value in (("source_vocab_size", source_vocab_size), ("target_vocab_size", target_vocab_size)):
        _check_positive(name, value)
    _check_positive("beam", beam)
    encoder_dim, decoder_dim = arch.encoder_embed_dim, arch.decoder_embed_dim
    parameters = _layer_parameters(arch) + _tables(arch, source_vocab_size, target_vocab_size, share_embeddings)
    seen = [position + 1 for position in range(target_length) for _ in range(beam if position else 1)]
    macs = Operators(
        output_layer=len(seen) * decoder_dim * target_vocab_size,
        other=_embedding_scaling(arch, source_length, len(seen)),
    )
    for layer in _encoder_layers(arch):
        macs += layer.encoding(source_length)
    for block in _decoder_layers(arch):
        macs += block.memory(source_length) + block.decoding(seen, source_length)
    if pre_norm:
        parameters += Operators(other=2 * encoder_dim + 2 * decoder_dim)
        normed = {index for layers in arch.decoder_cross_layers for index in layers}
        macs += Operators(other=len(normed) * source_length * encoder_dim + len(seen) * decoder_dim)
    return Counts(parameters, macs)


# -- one layer --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _EncoderLayer:
    dim: int
    qkv: int
    ffn: int

    @property
    def parameters(self) -> Operators:
        return Operators(
            attention_projections=_attention_parameters(self.dim, self.dim, self.qkv),
            feed_forward=_ffn_parameters(self.dim, self.ffn),
            other=4 * self.dim,
        )

    def encoding(self, length: int) -> Operators:
        """Mult-Adds for ``length`` tokens at once."""
        return Operators(
            attention_projections=4 * length * self.dim * self.qkv,
            attention_products=2 * length * length * self.qkv,
            feed_forward=2 * length * self.dim * self.ffn,
            other=2 * length * self.dim + length * self.qkv,
        )


@dataclass(frozen=True)
class _DecoderLayer:
    dim: int
    memory_dim: int
    qkv: int
    ffn: int
    span: int

    @property
    def parameters(self) -> Operators:
        return Operators(
            attention_projections=_attention_parameters(self.dim, self.dim, self.qkv)
            + _attention_parameters(self.dim, self.memory_dim, self.qkv),
            feed_forward=_ffn_parameters(self.dim, self.ffn),
            other=6 * self.dim,
        )

    def memory(self, source_length: int) -> Operators:
        """Mult-Adds for the keys and values of the attended encoder outputs."""
        return Operators(attention_projections=2 * self.span * source_length * self.memory_dim * self.qkv)

    def decoding(self, seen: list[int], source_length: int) -> Operators:
        """Mult-Adds for one decoded position per entry; the entry says to how many positions it attends."""
        rows = len(seen)
        return Operators(
            attention_projections=rows * 6 * self.dim * self.qkv,
            attention_products=2 * self.qkv * (sum(seen) + rows * self.span * source_length),
            feed_forward=rows * 2 * self.dim * self.ffn,
            other=rows * (3 * self.dim + 2 * self.qkv),
        )


def _encoder_layers(arch: Architecture) -> Iterator[_EncoderLayer]:
    for qkv, ffn in zip(arch.encoder_qkv_dim, arch.encoder_ffn_dim, strict=True):
        yield _EncoderLayer(arch.encoder_embed_dim, qkv, ffn)


def _decoder_layers(arch: Architecture) -> Iterator[_DecoderLayer]:
    for qkv, ffn, attended in zip(arch.decoder_qkv_dim, arch.decoder_ffn_dim, arch.decoder_cross_layers, strict=True):
        yield _DecoderLayer(arch.decoder_embed_dim, arch.encoder_embed_dim, qkv, ffn, len(attended))


def _layer_parameters(arch: Architecture) -> Operators:
    layers: list[_EncoderLayer | _DecoderLayer] = [*_encoder_layers(arch), *_decoder_layers(arch)]
    return sum((layer.parameters for layer in layers), Operators())


def _attention_parameters(dim: int, memory_dim: int, qkv: int) -> int:
    """dq + 2eq + 3q for queries, keys and values, qd + d for the output."""
    return dim * qkv + 2 * memory_dim * qkv + 3 * qkv + qkv * dim + dim


def _ffn_parameters(dim: int, ffn: int) -> int:
    return 2 * dim * ffn + ffn + dim


def _tables(arch: Architecture, source_vocab: int, target_vocab: int, share: str) -> Operators:
    encoder_dim, decoder_dim = arch.encoder_embed_dim, arch.decoder_embed_dim
    if share == "all":
        return Operators(embeddings=source_vocab * max(encoder_dim, decoder_dim))
    if share not in ("decoder", "none"):
        raise InputError(f"share_embeddings: '{share}' must be one of all, decoder, none")
    own_output = target_vocab * decoder_dim if share == "none" else 0
    return Operators(embeddings=source_vocab * encoder_dim + target_vocab * decoder_dim, output_layer=own_output)


def _embedding_scaling(arch: Architecture, source_tokens: int, target_tokens: int) -> int:
    return source_tokens * arch.encoder_embed_dim + target_tokens * arch.decoder_embed_dim


def _check_lengths(source_length: int, target_length: int) -> None:
    _check_positive("source_length", source_length)
    _check_positive("target_length", target_length)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name}: {value} is too small, the least is 1")
