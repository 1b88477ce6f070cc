"""The gene of HAT's evolutionary search: a configuration as a flat list of raw values, unused layers included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fitformer.errors import InputError
from fitformer.hat.configuration import DECODER_LAYERS, ENCODER_LAYERS, HatConfiguration, parse_configuration

ENCODER_LISTS = ("encoder_ffn_embed_dim", "encoder_self_attention_heads")
DECODER_LISTS = (
    "decoder_ffn_embed_dim",
    "decoder_self_attention_heads",
    "decoder_ende_attention_heads",
    "decoder_arbitrary_ende_attn",
)


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

    encoder: dict[str, Any] = dict(zip(("encoder_embed_dim", "encoder_layer_num"), take(2), strict=True))
    encoder |= {key: take(encoder_layers) for key in ENCODER_LISTS}
    decoder: dict[str, Any] = dict(zip(("decoder_embed_dim", "decoder_layer_num"), take(2), strict=True))
    decoder |= {key: take(decoder_layers) for key in DECODER_LISTS}
    return parse_configuration({"encoder": encoder, "decoder": decoder}, "gene")
