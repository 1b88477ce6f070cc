"""HAT's SubTransformer configurations to and from ``Architecture``.

The files are lists of command-line options of the original ``train.py`` in YAML. Two forms are read: those options
(``encoder-embed-dim-subtransformer: 512``; also with underscores, as in a checkpoint's arguments) and the two-level
dictionary that the code works with (``encoder: {encoder_embed_dim: 512, ...}``). A per-layer list may be longer than
the number of layers; what is beyond is not used (HAT's sampler and its genes make such lists).

HAT's "arbitrary encoder-decoder attention" of a decoder layer: -1 is the last encoder layer, 1 the last two, 2 the
last three. It counts in the layers of the SuperTransformer: where the encoder of the SubTransformer is shallower, the
missing layers are copies of its last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.hat.options import check_each, dashed, numbers, read_options, size, unknown
from fitformer.space import Architecture

QKV_DIM = 512  # of every published model (option --qkv-dim)
ENCODER_LAYERS = DECODER_LAYERS = 6  # of every published SuperTransformer
SPANS = {-1: 1, 1: 2, 2: 3}  # arbitrary attention -> encoder layers attended to

# Attribute: (option of the file, part and key of the two-level dictionary).
_WIDTHS = {
    "encoder_embed_dim": ("encoder-embed-dim-subtransformer", "encoder", "encoder_embed_dim"),
    "decoder_embed_dim": ("decoder-embed-dim-subtransformer", "decoder", "decoder_embed_dim"),
}
_DEPTHS = {
    "encoder": ("encoder-layer-num-subtransformer", "encoder", "encoder_layer_num"),
    "decoder": ("decoder-layer-num-subtransformer", "decoder", "decoder_layer_num"),
}
_LISTS = {
    "encoder_ffn_dim": ("encoder-ffn-embed-dim-all-subtransformer", "encoder", "encoder_ffn_embed_dim"),
    "decoder_ffn_dim": ("decoder-ffn-embed-dim-all-subtransformer", "decoder", "decoder_ffn_embed_dim"),
    "encoder_heads": (
        "encoder-self-attention-heads-all-subtransformer",
        "encoder",
        "encoder_self_attention_heads",
    ),
    "decoder_self_heads": (
        "decoder-self-attention-heads-all-subtransformer",
        "decoder",
        "decoder_self_attention_heads",
    ),
    "decoder_cross_heads": (
        "decoder-ende-attention-heads-all-subtransformer",
        "decoder",
        "decoder_ende_attention_heads",
    ),
    "decoder_arbitrary": ("decoder-arbitrary-ende-attn-all-subtransformer", "decoder", "decoder_arbitrary_ende_attn"),
}
_SUB = _WIDTHS | _DEPTHS | _LISTS
_SUPER = ("qkv-dim", "encoder-layers")  # of the SuperTransformer; HAT reads them from its file, we from either


@dataclass(frozen=True)
class HatConfiguration:
    """A SubTransformer as HAT writes it, its lists cut to its depth.

    Attributes:
        decoder_arbitrary: -1, 1 or 2 for each decoder layer.
        qkv_dim: width of queries, keys and values, where the file says it.
        super_encoder_layers: encoder layers of the SuperTransformer, where the file says it.
    """

    encoder_embed_dim: int
    decoder_embed_dim: int
    encoder_ffn_dim: tuple[int, ...]
    encoder_heads: tuple[int, ...]
    decoder_ffn_dim: tuple[int, ...]
    decoder_self_heads: tuple[int, ...]
    decoder_cross_heads: tuple[int, ...]
    decoder_arbitrary: tuple[int, ...]
    qkv_dim: int | None = None
    super_encoder_layers: int | None = None

    @property
    def encoder_layers(self) -> int:
        """Encoder layers of the SubTransformer."""
        return len(self.encoder_ffn_dim)

    @property
    def decoder_layers(self) -> int:
        """Decoder layers of the SubTransformer."""
        return len(self.decoder_ffn_dim)

    def to_options(self) -> dict[str, Any]:
        """The options of a SubTransformer file, in the order of the published ones."""
        values = {name: getattr(self, name) for name in [*_WIDTHS, *_LISTS]}
        values |= {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        order = [*_WIDTHS, "encoder_ffn_dim", "decoder_ffn_dim", *_DEPTHS, *list(_LISTS)[2:]]
        options = {_SUB[name][0]: list(v) if isinstance(v := values[name], tuple) else v for name in order}
        extra = zip(_SUPER, (self.qkv_dim, self.super_encoder_layers), strict=True)
        return options | {key: value for key, value in extra if value is not None}

    def to_dictionary(self) -> dict[str, dict[str, Any]]:
        """The two-level dictionary that the original code works with."""
        options = self.to_options()
        found: dict[str, dict[str, Any]] = {"encoder": {}, "decoder": {}}
        for option, part, key in _SUB.values():
            found[part][key] = options[option]
        return found


def read_configuration(path: Path) -> HatConfiguration:
    """Read a SubTransformer's file; see ``parse_configuration``."""
    return parse_configuration(read_options(path), str(path))


def is_sub(options: Mapping[str, Any]) -> bool:
    """Whether the options, or the two-level dictionary, describe a SubTransformer."""
    return any(isinstance(options.get(part), Mapping) for part in _DEPTHS) or any(
        dashed(key).endswith("-subtransformer") and value is not None for key, value in options.items()
    )


def parse_configuration(options: Mapping[str, Any], where: str = "configuration") -> HatConfiguration:
    """Check the options of a SubTransformer, or its two-level dictionary.

    Args:
        where: what the error messages call it.
    Raises:
        InputError: an option is missing, unknown or has a value that is not allowed, or a list is shorter than the
            number of layers. Other options of the original ``train.py`` are allowed in a whole training configuration
            (one that has ``arch``).
    """
    found = _two_level(options, where) if any(part in options for part in _DEPTHS) else _flat(options, where)
    depths = {side: size(*found[side], where) for side in _DEPTHS}
    values: dict[str, Any] = {name: size(*found[name], where) for name in _WIDTHS}
    for name in _LISTS:
        values[name] = _per_layer(name, *found[name], depths[name.partition("_")[0]], where)
    extra = {dashed(key): value for key, value in options.items() if dashed(key) in _SUPER and value is not None}
    qkv_dim, layers = (size(key, extra[key], where) if key in extra else None for key in _SUPER)
    return HatConfiguration(**values, qkv_dim=qkv_dim, super_encoder_layers=layers)


def to_architecture(
    config: HatConfiguration, *, qkv_dim: int | None = None, encoder_layers: int | None = None
) -> Architecture:
    """The same model as an ``Architecture``.

    Args:
        qkv_dim: width of queries, keys and values; by default what the file says, else 512.
        encoder_layers: encoder layers of the SuperTransformer; by default what the file says, else 6. It matters only
            for a shallower encoder (see above).
    Raises:
        InputError: heads that do not divide ``qkv_dim``, a deeper encoder than the SuperTransformer's, or arbitrary
            attention to more layers than it has.
    """
    qkv_dim = qkv_dim or config.qkv_dim or QKV_DIM
    depth = config.encoder_layers
    layers = encoder_layers or config.super_encoder_layers or max(ENCODER_LAYERS, depth)
    if depth > layers:
        raise InputError(
            f"{_DEPTHS['encoder'][0]}: {depth} is too many, the SuperTransformer has {layers} (encoder-layers)"
        )
    for value in config.decoder_arbitrary:
        if SPANS[value] > layers:
            raise InputError(
                f"{_LISTS['decoder_arbitrary'][0]}: {value} attends to the last {SPANS[value]} encoder layers, "
                f"but the SuperTransformer has {layers} (encoder-layers)"
            )
    return Architecture(
        config.encoder_embed_dim,
        config.decoder_embed_dim,
        config.encoder_ffn_dim,
        (qkv_dim,) * depth,
        config.encoder_heads,
        config.decoder_ffn_dim,
        (qkv_dim,) * config.decoder_layers,
        config.decoder_self_heads,
        config.decoder_cross_heads,
        tuple(_attended(value, depth, layers) for value in config.decoder_arbitrary),
    )


def from_architecture(arch: Architecture) -> dict[str, Any]:
    """The options of a SubTransformer file for ``arch``; ``to_architecture`` reads back exactly the same.

    ``qkv-dim`` and ``encoder-layers`` (options of the SuperTransformer's file) are added where they differ from those
    of the published models and matter.

    Raises:
        InputError: HAT has no such model: several qkv widths, or other encoder layers attended to.
    """
    widths = sorted({*arch.encoder_qkv_dim, *arch.decoder_qkv_dim})
    if len(widths) > 1:
        raise InputError(f"architecture: HAT has one qkv width for all layers, this one has {widths}")
    depth = arch.encoder_num_layers
    fitting = (
        (layers, values)
        for layers in (ENCODER_LAYERS, depth, depth + 1, depth + 2)
        if layers >= depth and None not in (values := _arbitrary(arch, layers))
    )
    layers, values = next(fitting, (0, []))
    if not layers:
        raise InputError(
            "architecture: HAT's decoder layers attend to the last one, two or three encoder layers, the last first, "
            f"not to {sorted(set(arch.decoder_cross_layers))} of {depth}"
        )
    config = HatConfiguration(
        arch.encoder_embed_dim,
        arch.decoder_embed_dim,
        arch.encoder_ffn_dim,
        arch.encoder_num_heads,
        arch.decoder_ffn_dim,
        arch.decoder_self_heads,
        arch.decoder_cross_heads,
        tuple(value for value in values if value is not None),
        qkv_dim=None if widths[0] == QKV_DIM else widths[0],
        super_encoder_layers=None if layers == max(ENCODER_LAYERS, depth) else layers,
    )
    return config.to_options()


def _attended(value: int, depth: int, super_depth: int) -> tuple[int, ...]:
    outputs = [min(index, depth - 1) for index in range(super_depth)]
    return depth - 1, *outputs[-2 : -1 - SPANS[value] : -1]


def _arbitrary(arch: Architecture, super_depth: int) -> list[int | None]:
    """HAT's value for each decoder layer, or None where it has none."""
    known = {
        _attended(value, arch.encoder_num_layers, super_depth): value for value in SPANS if SPANS[value] <= super_depth
    }
    return [known.get(layers) for layers in arch.decoder_cross_layers]


def _flat(options: Mapping[str, Any], where: str) -> dict[str, tuple[str, Any]]:
    """Attribute: the option's name and value."""
    allowed = [option for option, _, _ in _SUB.values()]
    whole = "arch" in options
    given = {dashed(key): (key, value) for key, value in options.items() if value is not None}
    for key, (name, _) in given.items():
        if key not in allowed and key not in _SUPER and (key.endswith("-subtransformer") or not whole):
            raise InputError(unknown(where, name, allowed))
    for option in allowed:
        if option not in given:
            raise InputError(f"{where}: {option}: missing; a SubTransformer needs {', '.join(allowed)}")
    return {name: given[option] for name, (option, _, _) in _SUB.items()}


def _two_level(options: Mapping[str, Any], where: str) -> dict[str, tuple[str, Any]]:
    for part in _DEPTHS:
        section = options.get(part)
        allowed = [key for _, side, key in _SUB.values() if side == part]
        if not isinstance(section, Mapping):
            raise InputError(f"{where}: {part}: must be a dictionary with {', '.join(allowed)}")
        for key in section:
            if key not in allowed:
                raise InputError(unknown(where, f"{part}.{key}", [f"{part}.{name}" for name in allowed]))
        for key in allowed:
            if section.get(key) is None:
                raise InputError(f"{where}: {part}.{key}: missing; allowed: {', '.join(allowed)}")
    for key in options:
        if key not in _DEPTHS and dashed(key) not in _SUPER:
            raise InputError(unknown(where, key, [*_DEPTHS, *_SUPER]))
    return {name: (f"{part}.{key}", options[part][key]) for name, (_, part, key) in _SUB.items()}


def _per_layer(name: str, key: str, value: Any, depth: int, where: str) -> tuple[int, ...]:
    found = numbers(key, value, where, "a list of whole numbers, one for each layer")
    if len(found) < depth:
        raise InputError(f"{where}: {key}: {list(found)} must have a value for each of {depth} layers")
    check_each(key, found[:depth], where, tuple(SPANS) if name == "decoder_arbitrary" else ())
    return found[:depth]
