"""``SearchSpace``: the choices per dimension from which architectures are drawn (HAT, section 2.1; its Table 1).

A space is data: a preset is a YAML file in ``space/presets``. Randomness is always an explicit ``random.Random``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from fitformer.errors import RecipeError, nearest
from fitformer.space.architecture import Architecture

PRESETS = Path(__file__).parent / "presets"

Layer = TypeVar("Layer")
EncoderLayer = tuple[int, int, int]  # ffn_dim, qkv_dim, num_heads
DecoderLayer = tuple[int, int, int, int, int]  # ffn_dim, qkv_dim, self_heads, cross_heads, cross_span


@dataclass(frozen=True)
class SearchSpace:
    """Choices of every elastic dimension; a per-layer dimension is chosen for each layer on its own.

    ``decoder_cross_span`` of 1, 2 or 3 means that a decoder layer attends to the last 1, 2 or 3 encoder layers.

    Raises:
        RecipeError: a dimension without choices, a repeated or non-positive choice, heads that fit no qkv width.
    """

    encoder_embed_dim: tuple[int, ...]
    decoder_embed_dim: tuple[int, ...]
    encoder_num_layers: tuple[int, ...]
    decoder_num_layers: tuple[int, ...]
    encoder_ffn_dim: tuple[int, ...]
    encoder_qkv_dim: tuple[int, ...]
    encoder_num_heads: tuple[int, ...]
    decoder_ffn_dim: tuple[int, ...]
    decoder_qkv_dim: tuple[int, ...]
    decoder_self_heads: tuple[int, ...]
    decoder_cross_heads: tuple[int, ...]
    decoder_cross_span: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for field in fields(self):
            choices = getattr(self, field.name)
            if not choices or any(type(c) is not int or c < 1 for c in choices) or len(set(choices)) != len(choices):
                raise RecipeError(
                    f"space.{field.name}: {list(choices)} must be different whole numbers of at least 1, one or more"
                )
        for heads, widths in _HEADS_OF.items():
            for num_heads, qkv_dim in product(getattr(self, heads), getattr(self, widths)):
                if qkv_dim % num_heads:
                    raise RecipeError(f"space.{heads}: {num_heads} must divide every choice of {widths} ({qkv_dim})")

    # -- the space as a set -------------------------------------------------------------------------------------

    def size(self) -> int:
        """Exact number of different architectures: sum over depths of (choices of one layer) ** depth."""
        total = 0
        for encoder_depth in self.encoder_num_layers:
            encoders = len(self._encoder_layers) ** encoder_depth
            # With a shallow encoder a longer span attends to the same layers as the longest possible one.
            layer = len(self._decoder_layers) // len(self.decoder_cross_span) * len(self._spans(encoder_depth))
            total += encoders * sum(layer**depth for depth in self.decoder_num_layers)
        return total * len(self.encoder_embed_dim) * len(self.decoder_embed_dim)

    def largest(self) -> Architecture:
        """The architecture with the largest choice of every dimension: the shape of the SuperTransformer."""
        return self._extreme(max)

    def smallest(self) -> Architecture:
        """The architecture with the smallest choice of every dimension (fewest heads, last encoder layer only)."""
        return self._extreme(min)

    def contains(self, arch: Architecture) -> bool:
        """Whether ``arch`` can be drawn from this space."""
        encoder, decoder = _encoder_layers_of(arch), _decoder_layers_of(arch)
        spans = self._spans(arch.encoder_num_layers)
        return (
            arch.encoder_embed_dim in self.encoder_embed_dim
            and arch.decoder_embed_dim in self.decoder_embed_dim
            and len(encoder) in self.encoder_num_layers
            and len(decoder) in self.decoder_num_layers
            and all(layer in self._encoder_layers for layer in encoder)
            and all((*layer[:4], self.decoder_cross_span[0]) in self._decoder_layers for layer in decoder)
            and all(layer[4] in spans for layer in decoder)
            and arch.decoder_cross_layers == tuple(_last(arch.encoder_num_layers, layer[4]) for layer in decoder)
        )

    def enumerate(self) -> Iterator[Architecture]:
        """Yield every architecture once; only sensible for a space of small ``size()``."""
        widths = product(self.encoder_embed_dim, self.decoder_embed_dim)
        for (encoder_dim, decoder_dim), depth in product(widths, self.encoder_num_layers):
            layers = list(dict.fromkeys(_quintuple((*d[:4], min(d[4], depth))) for d in self._decoder_layers))
            for encoder in product(self._encoder_layers, repeat=depth):
                for decoder_depth in self.decoder_num_layers:
                    for decoder in product(layers, repeat=decoder_depth):
                        yield _assemble(encoder_dim, decoder_dim, encoder, decoder)

    # -- drawing ------------------------------------------------------------------------------------------------

    def sample(self, rng: random.Random) -> Architecture:
        """Draw an architecture: every choice uniform and independent (HAT, section 2.2)."""
        encoder = [self._draw_encoder_layer(rng) for _ in range(rng.choice(self.encoder_num_layers))]
        decoder = [self._draw_decoder_layer(rng) for _ in range(rng.choice(self.decoder_num_layers))]
        return _assemble(rng.choice(self.encoder_embed_dim), rng.choice(self.decoder_embed_dim), encoder, decoder)

    def mutate(self, arch: Architecture, prob: float, rng: random.Random) -> Architecture:
        """Redraw each choice of ``arch`` with probability ``prob`` (HAT's mutation); new layers are drawn afresh."""

        def redraw(value: int, choices: Sequence[int]) -> int:
            return rng.choice(choices) if rng.random() < prob else value

        encoder = _resize(
            _encoder_layers_of(arch),
            redraw(arch.encoder_num_layers, self.encoder_num_layers),
            lambda: self._draw_encoder_layer(rng),
        )
        decoder = _resize(
            self._decoder_layers_as_drawn(arch),
            redraw(arch.decoder_num_layers, self.decoder_num_layers),
            lambda: self._draw_decoder_layer(rng),
        )
        return _assemble(
            redraw(arch.encoder_embed_dim, self.encoder_embed_dim),
            redraw(arch.decoder_embed_dim, self.decoder_embed_dim),
            [_triple(map(redraw, layer, self._encoder_choices)) for layer in encoder],
            [_quintuple(map(redraw, layer, self._decoder_choices)) for layer in decoder],
        )

    def crossover(self, first: Architecture, second: Architecture, rng: random.Random) -> Architecture:
        """Take each choice from either parent with probability 1/2; a layer only one parent has comes from it."""

        def either(a: int, b: int) -> int:
            return a if rng.random() < 0.5 else b

        encoders, decoders = (
            (_encoder_layers_of(first), _encoder_layers_of(second)),
            (self._decoder_layers_as_drawn(first), self._decoder_layers_as_drawn(second)),
        )
        encoder_depth = either(len(encoders[0]), len(encoders[1]))
        decoder_depth = either(len(decoders[0]), len(decoders[1]))
        return _assemble(
            either(first.encoder_embed_dim, second.encoder_embed_dim),
            either(first.decoder_embed_dim, second.decoder_embed_dim),
            [_triple(map(either, a, b)) for a, b in _paired(*encoders, encoder_depth)],
            [_quintuple(map(either, a, b)) for a, b in _paired(*decoders, decoder_depth)],
        )

    # -- files --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as lists, ready for JSON or YAML."""
        return {name: list(choices) for name, choices in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchSpace:
        """Read choices; a single number stands for one choice.

        Raises:
            RecipeError: an unknown or missing dimension, or choices that make no space.
        """
        names = [field.name for field in fields(cls)]
        for name in data:
            if name not in names:
                raise RecipeError(f"space.{name}: no such dimension{nearest(name, names)}; allowed: {', '.join(names)}")
        for name in names:
            if name not in data and name != "decoder_cross_span":
                raise RecipeError(f"space.{name}: missing; give a list of choices")
        return cls(**{name: tuple(v) if isinstance(v, list | tuple) else (v,) for name, v in data.items()})

    @classmethod
    def preset(cls, name: str) -> SearchSpace:
        """Load a preset by name.

        Raises:
            RecipeError: no preset of that name.
        """
        import yaml  # only the recipes' side of fitformer installs it

        path = PRESETS / f"{name}.yaml"
        if name not in cls.preset_names():
            names = cls.preset_names()
            raise RecipeError(f"space: no preset '{name}'{nearest(name, names)}; there are: {', '.join(names)}")
        return cls.from_dict(yaml.safe_load(path.read_text(encoding="utf-8")))

    @staticmethod
    def preset_names() -> list[str]:
        """Names of the presets that fitformer ships."""
        return sorted(path.stem for path in PRESETS.glob("*.yaml"))

    # -- one layer ----------------------------------------------------------------------------------------------

    @property
    def _encoder_choices(self) -> tuple[tuple[int, ...], ...]:
        return self.encoder_ffn_dim, self.encoder_qkv_dim, self.encoder_num_heads

    @property
    def _decoder_choices(self) -> tuple[tuple[int, ...], ...]:
        heads = self.decoder_self_heads, self.decoder_cross_heads
        return self.decoder_ffn_dim, self.decoder_qkv_dim, *heads, self.decoder_cross_span

    @cached_property
    def _encoder_layers(self) -> list[EncoderLayer]:
        return [_triple(layer) for layer in product(*self._encoder_choices)]

    @cached_property
    def _decoder_layers(self) -> list[DecoderLayer]:
        return [_quintuple(layer) for layer in product(*self._decoder_choices)]

    def _draw_encoder_layer(self, rng: random.Random) -> EncoderLayer:
        return _triple(map(rng.choice, self._encoder_choices))

    def _draw_decoder_layer(self, rng: random.Random) -> DecoderLayer:
        return _quintuple(map(rng.choice, self._decoder_choices))

    def _decoder_layers_as_drawn(self, arch: Architecture) -> list[DecoderLayer]:
        """Decoder layers with a span that is a choice: the shortest of which a shallow encoder leaves what is there."""

        def choice(span: int) -> int:
            return min((c for c in self.decoder_cross_span if c >= span), default=max(self.decoder_cross_span))

        return [_quintuple((*layer[:4], choice(layer[4]))) for layer in _decoder_layers_of(arch)]

    def _spans(self, encoder_depth: int) -> set[int]:
        return {min(span, encoder_depth) for span in self.decoder_cross_span}

    def _extreme(self, pick: Callable[[Sequence[int]], int]) -> Architecture:
        encoder = [_triple(map(pick, self._encoder_choices))] * pick(self.encoder_num_layers)
        decoder = [_quintuple(map(pick, self._decoder_choices))] * pick(self.decoder_num_layers)
        return _assemble(pick(self.encoder_embed_dim), pick(self.decoder_embed_dim), encoder, decoder)


_HEADS_OF = {
    "encoder_num_heads": "encoder_qkv_dim",
    "decoder_self_heads": "decoder_qkv_dim",
    "decoder_cross_heads": "decoder_qkv_dim",
}


def _last(encoder_depth: int, span: int) -> tuple[int, ...]:
    """Indices of the last ``span`` encoder layers, the last first."""
    return tuple(range(encoder_depth - 1, max(encoder_depth - 1 - span, -1), -1))


def _assemble(
    encoder_dim: int, decoder_dim: int, encoder: Sequence[EncoderLayer], decoder: Sequence[DecoderLayer]
) -> Architecture:
    cross = tuple(_last(len(encoder), layer[4]) for layer in decoder)
    columns: list[Any] = [*zip(*encoder, strict=True), *list(zip(*decoder, strict=True))[:4], cross]
    return Architecture(encoder_dim, decoder_dim, *columns)


def _encoder_layers_of(arch: Architecture) -> list[EncoderLayer]:
    return list(zip(arch.encoder_ffn_dim, arch.encoder_qkv_dim, arch.encoder_num_heads, strict=True))


def _decoder_layers_of(arch: Architecture) -> list[DecoderLayer]:
    spans = tuple(len(layers) for layers in arch.decoder_cross_layers)
    heads = arch.decoder_self_heads, arch.decoder_cross_heads
    return list(zip(arch.decoder_ffn_dim, arch.decoder_qkv_dim, *heads, spans, strict=True))


def _resize(layers: list[Layer], depth: int, draw: Callable[[], Layer]) -> list[Layer]:
    return layers[:depth] + [draw() for _ in range(depth - len(layers))]


def _paired(first: list[Layer], second: list[Layer], depth: int) -> list[tuple[Layer, Layer]]:
    return [
        (first[i] if i < len(first) else second[i], second[i] if i < len(second) else first[i]) for i in range(depth)
    ]


def _triple(values: Any) -> EncoderLayer:
    ffn_dim, qkv_dim, heads = values
    return ffn_dim, qkv_dim, heads


def _quintuple(values: Any) -> DecoderLayer:
    ffn_dim, qkv_dim, self_heads, cross_heads, span = values
    return ffn_dim, qkv_dim, self_heads, cross_heads, span
