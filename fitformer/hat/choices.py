"""HAT's choice lists (``encoder-embed-choice: [640, 512]``, of a SuperTransformer) to and from ``SearchSpace``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.hat.configuration import QKV_DIM, SPANS
from fitformer.hat.options import check_each, dashed, numbers, read_options, size, unknown
from fitformer.space import SearchSpace

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


def read_search_space(path: Path) -> SearchSpace:
    """Read the choice lists of a SuperTransformer's file; see ``parse_search_space``."""
    return parse_search_space(read_options(path), str(path))


def parse_search_space(options: Mapping[str, Any], where: str = "configuration") -> SearchSpace:
    """Check the choice lists of a SuperTransformer (``encoder-embed-choice: [640, 512]``, ...).

    Raises:
        InputError: a list is missing or has a value that is not allowed.
    """
    given = {dashed(key): value for key, value in options.items() if value is not None}
    for key in given:
        if key.endswith("-choice") and key not in _CHOICES.values():
            raise InputError(unknown(where, key, _CHOICES.values()))
    missing = [option for option in _CHOICES.values() if option not in given]
    if missing:
        raise InputError(f"{where}: {missing[0]}: missing; a SuperTransformer needs {', '.join(_CHOICES.values())}")
    qkv_dim = size("qkv-dim", given["qkv-dim"], where) if "qkv-dim" in given else QKV_DIM
    choices: dict[str, tuple[int, ...]] = {"encoder_qkv_dim": (qkv_dim,), "decoder_qkv_dim": (qkv_dim,)}
    for dimension, option in _CHOICES.items():
        spans = dimension == "decoder_cross_span"
        values = numbers(option, given[option], where, "different whole numbers")
        check_each(option, values, where, tuple(SPANS) if spans else ())
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
