"""HAT's own configurations: SubTransformer files to and from ``Architecture``, choice lists to and from ``SearchSpace``.

The files are lists of command-line options of the original ``train.py`` in YAML. Three forms of a SubTransformer are
read: those options (``encoder-embed-dim-subtransformer: 512``; also with underscores, as in a checkpoint's arguments),
the two-level dictionary that the code works with (``encoder: {encoder_embed_dim: 512, ...}``) and the gene of its
search. A per-layer list may be longer than the number of layers; what is beyond is not used (HAT's sampler and its
genes make such lists).

HAT's "arbitrary encoder-decoder attention" of a decoder layer: -1 is the last encoder layer, 1 the last two, 2 the
last three. It counts in the layers of the SuperTransformer: where the encoder of the SubTransformer is shallower, the
missing layers are copies of its last one.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.errors import InputError, nearest
from fitformer.space import Architecture, SearchSpace

QKV_DIM = 512  # of every published model (option --qkv-dim)
ENCODER_LAYERS = DECODER_LAYERS = 6  # of every published SuperTransformer
SPANS = {-1: 1, 1: 2, 2: 3}  # arbitrary attention -> encoder layers attended to
MOST = 2**31 - 1
LARGEST_FILE = 1 << 20  # bytes; the published files have 700

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
# Dimension of a SearchSpace: option of a SuperTransformer's file.
_CHOICES = {
    "encoder_embed_dim": "encoder-embed-choice",
    "decoder_embed_dim": "decoder-embed-choice",
    "encoder_num_layers": "encoder-layer-num-choice",
    "decoder_num_layers": "decoder-layer-num-choice",
    "encoder_ffn_dim": "encoder-ffn-embed-dim-choice",
    "encoder_num_heads": "encoder-self-attention-heads-choice",
    "decoder_ffn_dim": "decoder-ffn-embed-dim-choice",
    "decoder_self_heads": "decoder-self-attention-heads-choice",
    "decoder_cross_heads": "decoder-ende-attention-heads-choice",
    "decoder_cross_span": "decoder-arbitrary-ende-attn-choice",
}


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


# -- files ------------------------------------------------------------------------------------------------------------


def read_options(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of options as a mapping; nothing in it is ever executed.

    Raises:
        InputError: the file is missing, not text, no YAML or no mapping; the message names it.
    """
    from fitformer.recipe.loading import parse_yaml  # YAML is installed with the recipes' side only

    data = parse_yaml(read_small(path), str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a HAT configuration (expected 'option: value' lines)")
    return {str(key): value for key, value in data.items()}


def read_small(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        InputError: the file is missing, a folder, too large for a configuration or not text.
    """
    try:
        if path.is_file() and path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: not a configuration ({path.stat().st_size:,} bytes of a text are too many)")
        with path.open("rb") as stream:
            return stream.read(LARGEST_FILE).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a configuration (it is not text)") from None


def read_configuration(path: Path) -> HatConfiguration:
    """Read a SubTransformer's file; see ``parse_configuration``."""
    return parse_configuration(read_options(path), str(path))


def read_search_space(path: Path) -> SearchSpace:
    """Read the choice lists of a SuperTransformer's file; see ``parse_search_space``."""
    return parse_search_space(read_options(path), str(path))


def format_options(options: Mapping[str, Any]) -> str:
    """The text of an original file: one ``option: value`` a line."""
    return "".join(f"{key}: {value}\n" for key, value in options.items())


# -- SubTransformers ----------------------------------------------------------------------------------------------


def is_sub(options: Mapping[str, Any]) -> bool:
    """Whether the options, or the two-level dictionary, describe a SubTransformer."""
    return any(isinstance(options.get(part), Mapping) for part in _DEPTHS) or any(
        _dashed(key).endswith("-subtransformer") and value is not None for key, value in options.items()
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
    depths = {side: _size(*found[side], where) for side in _DEPTHS}
    values: dict[str, Any] = {name: _size(*found[name], where) for name in _WIDTHS}
    for name in _LISTS:
        values[name] = _per_layer(name, *found[name], depths[name.partition("_")[0]], where)
    extra = {_dashed(key): value for key, value in options.items() if _dashed(key) in _SUPER and value is not None}
    qkv_dim, layers = (_size(key, extra[key], where) if key in extra else None for key in _SUPER)
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


# -- genes --------------------------------------------------------------------------------------------------------


def to_gene(
    config: HatConfiguration, *, encoder_layers: int = ENCODER_LAYERS, decoder_layers: int = DECODER_LAYERS
) -> list[int]:
    """The flat list of HAT's search: 40 numbers for six and six layers; unused layers repeat layer 0.

    (The original does not fill up the arbitrary attention, and fails on its own published files.)

    Raises:
        InputError: more layers than the gene has.
    """
    if config.encoder_layers > encoder_layers or config.decoder_layers > decoder_layers:
        raise InputError(f"gene: it has {encoder_layers} and {decoder_layers} layers, too few for this configuration")

    def filled(values: tuple[int, ...], length: int) -> list[int]:
        return [*values, *values[:1] * (length - len(values))]

    gene = [config.encoder_embed_dim, config.encoder_layers]
    for values in (config.encoder_ffn_dim, config.encoder_heads):
        gene += filled(values, encoder_layers)
    gene += [config.decoder_embed_dim, config.decoder_layers]
    for name in ("decoder_ffn_dim", "decoder_self_heads", "decoder_cross_heads", "decoder_arbitrary"):
        gene += filled(getattr(config, name), decoder_layers)
    return gene


def from_gene(
    gene: Sequence[int], *, encoder_layers: int = ENCODER_LAYERS, decoder_layers: int = DECODER_LAYERS
) -> HatConfiguration:
    """Read the flat list of HAT's search.

    Raises:
        InputError: it has another length, or a value that is not allowed.
    """
    length = 4 + 2 * encoder_layers + 4 * decoder_layers
    if len(gene) != length:
        raise InputError(f"gene: {len(gene)} numbers, but {encoder_layers} and {decoder_layers} layers have {length}")
    rest = list(gene)

    def take(count: int) -> list[int]:
        taken, rest[:] = rest[:count], rest[count:]
        return taken

    encoder = dict(zip(("encoder_embed_dim", "encoder_layer_num"), take(2), strict=True))
    encoder |= {key: take(encoder_layers) for key in ("encoder_ffn_embed_dim", "encoder_self_attention_heads")}
    decoder = dict(zip(("decoder_embed_dim", "decoder_layer_num"), take(2), strict=True))
    lists = [key for _, part, key in _LISTS.values() if part == "decoder"]
    decoder |= {key: take(decoder_layers) for key in lists}
    return parse_configuration({"encoder": encoder, "decoder": decoder}, "gene")


# -- SuperTransformers --------------------------------------------------------------------------------------------


def parse_search_space(options: Mapping[str, Any], where: str = "configuration") -> SearchSpace:
    """Check the choice lists of a SuperTransformer (``encoder-embed-choice: [640, 512]``, ...).

    Raises:
        InputError: a list is missing or has a value that is not allowed.
    """
    given = {_dashed(key): value for key, value in options.items() if value is not None}
    for key in given:
        if key.endswith("-choice") and key not in _CHOICES.values():
            raise InputError(_unknown(where, key, _CHOICES.values()))
    missing = [option for option in _CHOICES.values() if option not in given]
    if missing:
        raise InputError(f"{where}: {missing[0]}: missing; a SuperTransformer needs {', '.join(_CHOICES.values())}")
    qkv_dim = _size("qkv-dim", given["qkv-dim"], where) if "qkv-dim" in given else QKV_DIM
    choices: dict[str, tuple[int, ...]] = {"encoder_qkv_dim": (qkv_dim,), "decoder_qkv_dim": (qkv_dim,)}
    for dimension, option in _CHOICES.items():
        spans = dimension == "decoder_cross_span"
        values = _numbers(option, given[option], where, "different whole numbers")
        _check_each(option, values, where, tuple(SPANS) if spans else ())
        if len(set(values)) != len(values):
            raise InputError(f"{where}: {option}: {list(values)} names a choice twice")
        choices[dimension] = tuple(SPANS[value] for value in values) if spans else values
    try:
        return SearchSpace(**choices)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def from_search_space(space: SearchSpace) -> dict[str, Any]:
    """The choice lists, ``qkv-dim`` and the sizes of the SuperTransformer, as options of an original file.

    Raises:
        InputError: HAT has no such space: several qkv widths, or attention to more than three encoder layers.
    """
    widths = sorted({*space.encoder_qkv_dim, *space.decoder_qkv_dim})
    if len(widths) > 1:
        raise InputError(f"space.encoder_qkv_dim: HAT has one qkv width for all layers, this space has {widths}")
    values = {span: value for value, span in SPANS.items()}
    if not set(space.decoder_cross_span) <= set(values):
        raise InputError(f"space.decoder_cross_span: {list(space.decoder_cross_span)}; HAT knows only 1, 2 and 3")
    largest = space.largest()
    options: dict[str, Any] = {
        "encoder-embed-dim": largest.encoder_embed_dim,
        "decoder-embed-dim": largest.decoder_embed_dim,
        "encoder-ffn-embed-dim": largest.encoder_ffn_dim[0],
        "decoder-ffn-embed-dim": largest.decoder_ffn_dim[0],
        "encoder-layers": largest.encoder_num_layers,
        "decoder-layers": largest.decoder_num_layers,
        "encoder-attention-heads": largest.encoder_num_heads[0],
        "decoder-attention-heads": max(largest.decoder_self_heads[0], largest.decoder_cross_heads[0]),
        "qkv-dim": widths[0],
    }
    for dimension, option in _CHOICES.items():
        choices = getattr(space, dimension)
        options[option] = [values[c] for c in choices] if dimension == "decoder_cross_span" else list(choices)
    return options


# -- options and values -------------------------------------------------------------------------------------------


def _dashed(key: str) -> str:
    return str(key).replace("_", "-")


def _flat(options: Mapping[str, Any], where: str) -> dict[str, tuple[str, Any]]:
    """Attribute: the option's name and value."""
    allowed = [option for option, _, _ in _SUB.values()]
    whole = "arch" in options
    given = {_dashed(key): (key, value) for key, value in options.items() if value is not None}
    for key, (name, _) in given.items():
        if key not in allowed and key not in _SUPER and (key.endswith("-subtransformer") or not whole):
            raise InputError(_unknown(where, name, allowed))
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
                raise InputError(_unknown(where, f"{part}.{key}", [f"{part}.{name}" for name in allowed]))
        for key in allowed:
            if section.get(key) is None:
                raise InputError(f"{where}: {part}.{key}: missing; allowed: {', '.join(allowed)}")
    for key in options:
        if key not in _DEPTHS and _dashed(key) not in _SUPER:
            raise InputError(_unknown(where, key, [*_DEPTHS, *_SUPER]))
    return {name: (f"{part}.{key}", options[part][key]) for name, (_, part, key) in _SUB.items()}


def _unknown(where: str, key: str, allowed: Any) -> str:
    return f"{where}: {key}: no such option{nearest(key, allowed)}; allowed: {', '.join(allowed)}"


def _per_layer(name: str, key: str, value: Any, depth: int, where: str) -> tuple[int, ...]:
    numbers = _numbers(key, value, where, "a list of whole numbers, one for each layer")
    if len(numbers) < depth:
        raise InputError(f"{where}: {key}: {list(numbers)} must have a value for each of {depth} layers")
    _check_each(key, numbers[:depth], where, tuple(SPANS) if name == "decoder_arbitrary" else ())
    return numbers[:depth]


def _check_each(key: str, values: tuple[int, ...], where: str, allowed: tuple[int, ...]) -> None:
    for value in values:
        if allowed and value not in allowed:
            raise InputError(f"{where}: {key}: {value} is not allowed; allowed: {', '.join(map(str, allowed))}")
        if not allowed and not 1 <= value <= MOST:
            raise InputError(f"{where}: {key}: {value} is not allowed; allowed: whole numbers of at least 1")


def _size(key: str, value: Any, where: str) -> int:
    number = _number(value)
    if number is None or not 1 <= number <= MOST:
        raise InputError(f"{where}: {key}: {reprlib.repr(value)} is not allowed; allowed: a whole number of at least 1")
    return number


def _numbers(key: str, value: Any, where: str, allowed: str) -> tuple[int, ...]:
    items = re.split(r"[,\s]+", value.strip("[]() \t\n")) if isinstance(value, str) else value
    numbers = [_number(item) for item in items] if isinstance(items, list | tuple) else [_number(items)]
    if not numbers or None in numbers:
        raise InputError(f"{where}: {key}: {reprlib.repr(value)} is not allowed; allowed: {allowed}")
    return tuple(number for number in numbers if number is not None)


def _number(value: Any) -> int | None:
    """A whole number, or its digits; HAT evaluates such strings as code, here only digits are numbers."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", value):
        return int(value)
    return value if type(value) is int else None
