"""``Architecture``: one Transformer of a search space, as an immutable value with per-layer entries.

It is what every stage passes to the next: the SuperTransformer activates it, the exporter draws its graph, the
predictor estimates its latency and the search mutates it. One text form (a line) and one JSON form (a dictionary).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from fitformer.errors import InputError

_TEXT = re.compile(r"enc (\d+):(.*)\| dec (\d+):(.*)")


@dataclass(frozen=True)
class Architecture:
    """Sizes of an encoder-decoder Transformer (HAT, section 2; here with explicit per-layer entries).

    ``decoder_cross_layers[i]`` holds the indices of the encoder layers whose outputs decoder layer ``i`` attends to,
    the last encoder layer first ("arbitrary encoder-decoder attention"). ``decoder_qkv_dim[i]`` is the width of
    queries, keys and values of both attentions of decoder layer ``i``.

    Raises:
        InputError: lists of different length, a non-positive size, heads that do not divide the qkv width, an
            attended encoder layer that does not exist.
    """

    encoder_embed_dim: int
    decoder_embed_dim: int
    encoder_ffn_dim: tuple[int, ...]
    encoder_qkv_dim: tuple[int, ...]
    encoder_num_heads: tuple[int, ...]
    decoder_ffn_dim: tuple[int, ...]
    decoder_qkv_dim: tuple[int, ...]
    decoder_self_heads: tuple[int, ...]
    decoder_cross_heads: tuple[int, ...]
    decoder_cross_layers: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for side, names in _PER_LAYER.items():
            lengths = {name: len(getattr(self, name)) for name in names}
            if len(set(lengths.values())) != 1 or 0 in lengths.values():
                raise InputError(f"architecture: {side} lists must have one entry per layer, got lengths {lengths}")
        for name in ("encoder_embed_dim", "decoder_embed_dim"):
            _check_positive(name, getattr(self, name))
        for name in [*_PER_LAYER["encoder"], *_PER_LAYER["decoder"][:-1]]:
            for value in getattr(self, name):
                _check_positive(name, value)
        self._check_heads("encoder_num_heads", "encoder_qkv_dim")
        self._check_heads("decoder_self_heads", "decoder_qkv_dim")
        self._check_heads("decoder_cross_heads", "decoder_qkv_dim")
        for layers in self.decoder_cross_layers:
            if not layers or any(type(i) is not int or not 0 <= i < self.encoder_num_layers for i in layers):
                raise InputError(
                    f"architecture: decoder_cross_layers {list(layers)} must name encoder layers "
                    f"0 to {self.encoder_num_layers - 1}, at least one"
                )

    def _check_heads(self, heads: str, widths: str) -> None:
        for num_heads, qkv_dim in zip(getattr(self, heads), getattr(self, widths), strict=True):
            if qkv_dim % num_heads:
                raise InputError(f"architecture: {heads} {num_heads} must divide {widths} {qkv_dim}")

    @property
    def encoder_num_layers(self) -> int:
        """Number of encoder layers."""
        return len(self.encoder_ffn_dim)

    @property
    def decoder_num_layers(self) -> int:
        """Number of decoder layers."""
        return len(self.decoder_ffn_dim)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: field names with integers and lists."""
        return {
            name: [list(v) if isinstance(v, tuple) else v for v in value] if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Architecture:
        """Read the JSON form.

        Raises:
            InputError: a field is missing, unknown or not made of whole numbers.
        """
        names = [field.name for field in fields(cls)]
        if set(data) != set(names):
            missing, unknown = sorted(set(names) - set(data)), sorted(set(data) - set(names))
            raise InputError(f"architecture: missing fields {missing}, unknown fields {unknown}")
        try:
            return cls(**{name: _frozen(data[name]) for name in names})
        except TypeError:
            raise InputError("architecture: sizes must be whole numbers, per-layer sizes lists of them") from None

    def to_text(self) -> str:
        """Return the line ``enc WIDTH: FFN/QKV/HEADS ... | dec WIDTH: FFN/QKV/SELF/CROSS@LAYER,LAYER ...``."""
        encoder = [
            f"{f}/{q}/{h}"
            for f, q, h in zip(self.encoder_ffn_dim, self.encoder_qkv_dim, self.encoder_num_heads, strict=True)
        ]
        decoder = [
            f"{f}/{q}/{s}/{c}@{','.join(map(str, layers))}"
            for f, q, s, c, layers in zip(
                self.decoder_ffn_dim,
                self.decoder_qkv_dim,
                self.decoder_self_heads,
                self.decoder_cross_heads,
                self.decoder_cross_layers,
                strict=True,
            )
        ]
        return f"enc {self.encoder_embed_dim}: {' '.join(encoder)} | dec {self.decoder_embed_dim}: {' '.join(decoder)}"

    @classmethod
    def from_text(cls, text: str) -> Architecture:
        """Read the line that ``to_text`` writes.

        Raises:
            InputError: the line has another form.
        """
        match = _TEXT.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError
            encoder = [tuple(map(int, layer.split("/"))) for layer in match[2].split()]
            decoder = [layer.split("@") for layer in match[4].split()]
            sizes = [tuple(map(int, left.split("/"))) for left, _ in decoder]
            encoder_columns = list(zip(*encoder, strict=True))
            decoder_columns = list(zip(*sizes, strict=True))
            if (len(encoder_columns), len(decoder_columns)) != (3, 4):
                raise ValueError
            cross = tuple(tuple(map(int, right.split(","))) for _, right in decoder)
            columns: list[Any] = [*encoder_columns, *decoder_columns, cross]
            return cls(int(match[1]), int(match[3]), *columns)
        except InputError:
            raise
        except (ValueError, TypeError):
            raise InputError(
                f"architecture: cannot read '{text}' (expected the form of Architecture.to_text)"
            ) from None


_PER_LAYER = {
    "encoder": ("encoder_ffn_dim", "encoder_qkv_dim", "encoder_num_heads"),
    "decoder": (
        "decoder_ffn_dim",
        "decoder_qkv_dim",
        "decoder_self_heads",
        "decoder_cross_heads",
        "decoder_cross_layers",
    ),
}


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"architecture: {name} must be whole numbers of at least 1, got {value!r}")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value
