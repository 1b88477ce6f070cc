"""Which architectures a checkpoint of HAT holds: the space that it was trained with, and one of its SubTransformers."""

from __future__ import annotations

from pathlib import Path

from fitformer.errors import InputError
from fitformer.hat.checkpoint import Checkpoint
from fitformer.hat.choices import parse_search_space
from fitformer.hat.configuration import HatConfiguration, parse_configuration, to_architecture
from fitformer.hat.weights import read_shape
from fitformer.space import Architecture, SearchSpace

# Attribute of a configuration, its option, and the option of the checkpoint that bounds it.
_BOUNDS = (
    ("encoder_embed_dim", "encoder-embed-dim-subtransformer", "encoder_embed_dim"),
    ("decoder_embed_dim", "decoder-embed-dim-subtransformer", "decoder_embed_dim"),
    ("encoder_layers", "encoder-layer-num-subtransformer", "encoder_layers"),
    ("decoder_layers", "decoder-layer-num-subtransformer", "decoder_layers"),
    ("encoder_ffn_dim", "encoder-ffn-embed-dim-all-subtransformer", "encoder_ffn_embed_dim"),
    ("decoder_ffn_dim", "decoder-ffn-embed-dim-all-subtransformer", "decoder_ffn_embed_dim"),
)
# Attribute of an architecture without its side, and the option with the choices of it.
_CHOICES = {"embed_dim": "embed_choice", "num_layers": "layer_num_choice", "ffn_dim": "ffn_embed_dim_choice"}


def read_search_space(checkpoint: Checkpoint) -> SearchSpace:
    """The space that a SuperTransformer was trained with: its ``*_choice`` options.

    Raises:
        InputError: an option is missing, wrong, or has a choice larger than the weights.
    """
    space = parse_search_space(checkpoint.args, str(checkpoint.path))
    largest, whole = space.largest(), read_shape(checkpoint).largest()
    for name, option in _CHOICES.items():
        for side in ("encoder", "decoder"):
            choice, most = (_largest(getattr(arch, f"{side}_{name}")) for arch in (largest, whole))
            if choice > most:
                raise InputError(f"{checkpoint.path}: {side}_{option}: {choice} is more than the {most} of the weights")
    return space


def sub_architecture(checkpoint: Checkpoint, config: HatConfiguration, where: Path) -> Architecture:
    """The architecture that ``config``, read from the file ``where``, selects from a checkpoint.

    Raises:
        InputError: it asks for more than the checkpoint has, or says something else about it; the key is named.
    """
    whole = read_shape(checkpoint).largest()
    qkv_dim, layers = whole.encoder_qkv_dim[0], whole.encoder_num_layers
    for key, given, have in (
        ("qkv-dim", config.qkv_dim, qkv_dim),
        ("encoder-layers", config.super_encoder_layers, layers),
    ):
        if given not in (None, have):
            raise InputError(f"{where}: {key}: {given}, but {checkpoint.path} has {have}")
    for attribute, option, bound in _BOUNDS:
        wanted, most = _largest(getattr(config, attribute)), checkpoint.args[bound]
        if wanted > most:
            raise InputError(f"{where}: {option}: {wanted} is more than the {most} of {checkpoint.path} ({bound})")
    try:
        return to_architecture(config, qkv_dim=qkv_dim, encoder_layers=layers)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def warnings_about(checkpoint: Checkpoint, config: HatConfiguration) -> list[str]:
    """What may be a mix-up: another SubTransformer than the one trained, or one outside of the trained space."""
    own = checkpoint.sub_options
    if own:
        try:
            trained = parse_configuration(own, str(checkpoint.path)).to_options()
        except InputError as error:
            return [f"the checkpoint's own SubTransformer options cannot be compared: {error}"]
        given = config.to_options()
        different = [key for key in trained if key in given and given[key] != trained[key]]
        listed = "; ".join(f"{key}: {given[key]}, trained was {trained[key]}" for key in different)
        return [f"the checkpoint is of another SubTransformer: {listed}"] if different else []
    try:
        space = parse_search_space(checkpoint.args, str(checkpoint.path))
    except InputError:
        return []  # without choice lists there is nothing to compare with
    if not _is_within(config, space):
        return ["the configuration has sizes that the SuperTransformer was not trained with (its *_choice options)"]
    return []


def depth_warning(checkpoint: Checkpoint, space: SearchSpace) -> str | None:
    """HAT and fitformer disagree about "the last two encoder layers" of an encoder shallower than the whole."""
    layers = read_shape(checkpoint).encoder_num_layers[0]
    if max(space.decoder_cross_span) > 1 and min(space.encoder_num_layers) < layers:
        return (
            f"encoder_layer_num_choice: encoders of less than {layers} layers were trained by HAT with copies of the "
            "last layer where a decoder layer attends to several; here those are the last layers themselves"
        )
    return None


def _is_within(config: HatConfiguration, space: SearchSpace) -> bool:
    return (
        config.encoder_embed_dim in space.encoder_embed_dim
        and config.decoder_embed_dim in space.decoder_embed_dim
        and config.encoder_layers in space.encoder_num_layers
        and config.decoder_layers in space.decoder_num_layers
        and set(config.encoder_ffn_dim) <= set(space.encoder_ffn_dim)
        and set(config.encoder_heads) <= set(space.encoder_num_heads)
        and set(config.decoder_ffn_dim) <= set(space.decoder_ffn_dim)
        and set(config.decoder_self_heads) <= set(space.decoder_self_heads)
        and set(config.decoder_cross_heads) <= set(space.decoder_cross_heads)
    )


def _largest(value: int | tuple[int, ...]) -> int:
    return max(value) if isinstance(value, tuple) else value
