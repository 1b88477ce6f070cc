"""A checkpoint of HAT as our ``SuperTransformer``: sizes and options, names, and the order of rows.

HAT's special ids are ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, ours pad 0, unk 1, bos 2, eos 3: the first four
rows of every table change places, words keep their ids. HAT packs queries, keys and values of a cross-attention in one
matrix where encoder and decoder of the SuperTransformer are equally wide, else it has three; ours has one for queries
and one for keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fitformer.errors import InputError
from fitformer.hat.checkpoint import Checkpoint
from fitformer.hat.options import size
from fitformer.models import SuperTransformer, TransformerConfig
from fitformer.models.config import EOS
from fitformer.space import SearchSpace

ROWS = (1, 3, 0, 2)  # HAT's row for each of our special ids
POSITION_OFFSET = 2  # HAT counts positions from its padding id 1; padding itself has row 1
MAX_POSITIONS, MOST_POSITIONS = 1024, 65536  # fairseq's default for source and target, and what we take

# Options and the only values of them that our model can represent; what is absent has the first.
_ONLY: dict[str, tuple[Any, ...]] = {
    "task": ("translation",),
    "activation_fn": ("relu",),
    "vocab_original_scaling": (False,),
    "encoder_learned_pos": (False,),
    "decoder_learned_pos": (False,),
    "no_token_positional_embeddings": (False,),
    "adaptive_input": (False,),
    "adaptive_softmax_cutoff": (None,),
}
_SIZES = (
    "encoder_embed_dim",
    "decoder_embed_dim",
    "encoder_layers",
    "decoder_layers",
    "encoder_ffn_embed_dim",
    "decoder_ffn_embed_dim",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "qkv_dim",
)
# Not weights: versions of the format, and a scalar that HAT keeps to know its device.
_NO_WEIGHTS = tuple(
    f"{side}.{name}" for side in ("encoder", "decoder") for name in ("version", "embed_positions._float_tensor")
)
_LAYER_PARTS = {
    "encoder": {"self_attn.out_proj": "self_attn.out_proj", "fc1": "fc1", "fc2": "fc2"},
    "decoder": {
        "self_attn.out_proj": "self_attn.out_proj",
        "encoder_attn.out_proj": "cross_attn.out_proj",
        "fc1": "fc1",
        "fc2": "fc2",
    },
}
_NORMS = {
    "encoder": {"self_attn_layer_norm": "self_attn_norm", "final_layer_norm": "ffn_norm"},
    "decoder": {
        "self_attn_layer_norm": "self_attn_norm",
        "encoder_attn_layer_norm": "cross_attn_norm",
        "final_layer_norm": "ffn_norm",
    },
}


def super_transformer(checkpoint: Checkpoint) -> SuperTransformer:
    """The whole SuperTransformer of a checkpoint, in single precision and evaluation mode.

    Its space is one architecture, the whole; any that is not larger can be activated and extracted.

    Raises:
        InputError: an option that our model cannot represent, or weights that are missing, of another shape, not
            finite, or beyond those that the options ask for; the message names the option or the weight.
    """
    config, space = read_config(checkpoint), read_shape(checkpoint)
    weights = converted(checkpoint)
    model = SuperTransformer(config, space)
    model.load_state_dict(weights)
    return model.eval()


def read_config(checkpoint: Checkpoint) -> TransformerConfig:
    """The options of a checkpoint as ours; see ``super_transformer``."""
    args, path = checkpoint.args, checkpoint.path
    for name, allowed in _ONLY.items():
        if (value := args.get(name, allowed[0])) not in allowed:
            raise InputError(f"{path}: {name}: {value!r} cannot be represented; only {allowed[0]!r} can")
    sizes = {name: _size(checkpoint, name) for name in _SIZES}
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if args.get(name, sizes["decoder_embed_dim"]) != sizes["decoder_embed_dim"]:
            raise InputError(f"{path}: {name}: {args[name]!r} cannot be represented; only decoder_embed_dim can")
    rows = {}
    for side in ("encoder", "decoder"):
        table = checkpoint.weights.get(f"{side}.embed_tokens.weight")
        if table is None or table.dim() != 2 or len(table) <= len(ROWS):
            raise InputError(f"{path}: {side}.embed_tokens.weight: missing, or not a table of embeddings")
        rows[side] = len(table)
    try:
        return TransformerConfig(
            rows["encoder"],
            rows["decoder"],
            share_embeddings=_sharing(args),
            pre_norm=_is_pre_norm(checkpoint),
            max_positions=max(max_positions(checkpoint, side) for side in ("source", "target")),
            dropout=_share(checkpoint, "dropout"),
            attention_dropout=_share(checkpoint, "attention_dropout"),
            position_offset=POSITION_OFFSET,
            start_id=EOS,
            norm_every_memory=False,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def read_shape(checkpoint: Checkpoint) -> SearchSpace:
    """The one architecture that is the whole SuperTransformer; see ``super_transformer``."""
    sizes = {name: (_size(checkpoint, name),) for name in _SIZES}
    try:
        return SearchSpace(
            encoder_embed_dim=sizes["encoder_embed_dim"],
            decoder_embed_dim=sizes["decoder_embed_dim"],
            encoder_num_layers=sizes["encoder_layers"],
            decoder_num_layers=sizes["decoder_layers"],
            encoder_ffn_dim=sizes["encoder_ffn_embed_dim"],
            encoder_qkv_dim=sizes["qkv_dim"],
            encoder_num_heads=sizes["encoder_attention_heads"],
            decoder_ffn_dim=sizes["decoder_ffn_embed_dim"],
            decoder_qkv_dim=sizes["qkv_dim"],
            decoder_self_heads=sizes["decoder_attention_heads"],
            decoder_cross_heads=sizes["decoder_attention_heads"],
        )
    except InputError as error:
        raise InputError(f"{checkpoint.path}: {error}") from None


def max_positions(checkpoint: Checkpoint, side: str) -> int:
    """Most tokens of the ``source`` or ``target`` side, end of sentence counted."""
    name = f"max_{side}_positions"
    found = size(name, checkpoint.args.get(name) or MAX_POSITIONS, str(checkpoint.path))
    if found > MOST_POSITIONS:
        raise InputError(f"{checkpoint.path}: {name}: {found} is too many; the most is {MOST_POSITIONS}")
    return found


def converted(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights under our names, in single precision; see ``super_transformer``."""
    taker = _Taker(checkpoint)
    found: dict[str, Tensor] = {}
    for side in ("encoder", "decoder"):
        dim = taker.sizes[f"{side}_embed_dim"]
        rows = len(checkpoint.weights[f"{side}.embed_tokens.weight"])
        found[f"{side}.embed_tokens.weight"] = reordered(taker.take(f"{side}.embed_tokens.weight", rows, dim))
        for index in range(taker.sizes[f"{side}_layers"]):
            found |= _layer(taker, side, f"{side}.layers.{index}.")
        if _is_pre_norm(checkpoint):
            found |= {f"{side}.norm.{kind}": taker.take(f"{side}.layer_norm.{kind}", dim) for kind in _KINDS}
    sharing = _sharing(checkpoint.args)
    if sharing == "all" and not torch.equal(*(found[f"{side}.embed_tokens.weight"] for side in ("encoder", "decoder"))):
        raise InputError(f"{checkpoint.path}: share_all_embeddings: the tables of encoder and decoder differ")
    if sharing == "none":
        found["output.weight"] = reordered(taker.take("decoder.embed_out", rows, dim))
    taker.check_all_taken()
    return found


def reordered(table: Tensor) -> Tensor:
    """Rows of a table, or any tensor with one entry per id on its first axis, in the order of our ids."""
    return torch.cat((table[list(ROWS)], table[len(ROWS) :]))


_KINDS = ("weight", "bias")


class _Taker:
    """Hands out each weight once, checked, and knows what is left."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.path = checkpoint.path
        self.sizes = {name: _size(checkpoint, name) for name in _SIZES}
        self._left = {name: value for name, value in checkpoint.weights.items() if name not in _NO_WEIGHTS}

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the weight."""
        return name in self._left

    def take(self, name: str, *shape: int) -> Tensor:
        """The weight ``name`` in single precision."""
        value = self._left.pop(name, None)
        if value is None:
            raise InputError(f"{self.path}: {name}: missing; the options (args) ask for it")
        if tuple(value.shape) != shape:
            raise InputError(f"{self.path}: {name}: is {list(value.shape)}, the options (args) ask for {list(shape)}")
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"{self.path}: {name}: holds values that are no finite numbers; did the training diverge?")
        return value.float()

    def check_all_taken(self) -> None:
        """Refuse a checkpoint of which something is left."""
        if self._left:
            names = sorted(self._left)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(f"{self.path}: {names[0]}{more}: no part of the model that the options (args) describe")


def _layer(taker: _Taker, side: str, prefix: str) -> dict[str, Tensor]:
    dim, qkv_dim, ffn_dim = (taker.sizes[name] for name in (f"{side}_embed_dim", "qkv_dim", f"{side}_ffn_embed_dim"))
    shapes = {"out_proj": (dim, qkv_dim), "fc1": (ffn_dim, dim), "fc2": (dim, ffn_dim)}
    found: dict[str, Tensor] = {
        f"{prefix}self_attn.in_proj.weight": taker.take(f"{prefix}self_attn.in_proj_weight", 3 * qkv_dim, dim),
        f"{prefix}self_attn.in_proj.bias": taker.take(f"{prefix}self_attn.in_proj_bias", 3 * qkv_dim),
    }
    for theirs, ours in _LAYER_PARTS[side].items():
        shape = shapes[theirs.rpartition(".")[2]]
        found[f"{prefix}{ours}.weight"] = taker.take(f"{prefix}{theirs}.weight", *shape)
        found[f"{prefix}{ours}.bias"] = taker.take(f"{prefix}{theirs}.bias", shape[0])
    for theirs, ours in _NORMS[side].items():
        found |= {f"{prefix}{ours}.{kind}": taker.take(f"{prefix}{theirs}.{kind}", dim) for kind in _KINDS}
    return found | (_cross_attention(taker, prefix) if side == "decoder" else {})


def _cross_attention(taker: _Taker, prefix: str) -> dict[str, Tensor]:
    encoder_dim, dim, qkv_dim = (taker.sizes[name] for name in ("encoder_embed_dim", "decoder_embed_dim", "qkv_dim"))
    theirs, ours = f"{prefix}encoder_attn.", f"{prefix}cross_attn."
    if encoder_dim == dim and not taker.has(f"{theirs}q_proj_weight"):
        packed = taker.take(f"{theirs}in_proj_weight", 3 * qkv_dim, dim)
        queries, keys_values = packed[:qkv_dim], packed[qkv_dim:]
    else:
        queries = taker.take(f"{theirs}q_proj_weight", qkv_dim, dim)
        keys_values = torch.cat([taker.take(f"{theirs}{kv}_proj_weight", qkv_dim, encoder_dim) for kv in "kv"])
    bias = taker.take(f"{theirs}in_proj_bias", 3 * qkv_dim)
    return {
        f"{ours}q_proj.weight": queries,
        f"{ours}q_proj.bias": bias[:qkv_dim],
        f"{ours}kv_proj.weight": keys_values,
        f"{ours}kv_proj.bias": bias[qkv_dim:],
    }


def _size(checkpoint: Checkpoint, name: str) -> int:
    if name not in checkpoint.args:
        raise InputError(f"{checkpoint.path}: {name}: missing in args; is this a checkpoint of HAT?")
    return size(name, checkpoint.args[name], str(checkpoint.path))


def _share(checkpoint: Checkpoint, name: str) -> float:
    value = checkpoint.args.get(name, 0.0)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise InputError(f"{checkpoint.path}: {name}: {value!r} is not allowed; allowed: at least 0, below 1")
    return float(value)


def _sharing(args: Mapping[str, Any]) -> str:
    if args.get("share_all_embeddings"):
        return "all"
    return "decoder" if args.get("share_decoder_input_output_embed") else "none"


def _is_pre_norm(checkpoint: Checkpoint) -> bool:
    """Whether sublayers are normalised before; both stacks must agree and end in a norm, as ours do."""
    args, path = checkpoint.args, checkpoint.path
    encoder, decoder = (bool(args.get(f"{side}_normalize_before")) for side in ("encoder", "decoder"))
    if encoder != decoder:
        raise InputError(
            f"{path}: decoder_normalize_before: {decoder} with encoder_normalize_before: {encoder} "
            "cannot be represented; they must be the same"
        )
    if not encoder:
        return False
    if args.get("no_decoder_final_norm"):
        raise InputError(f"{path}: no_decoder_final_norm: True cannot be represented; only False can")
    for side, least in (("encoder", 2), ("decoder", 3)):  # HAT's own loader drops the last norm of older ones
        version = checkpoint.weights.get(f"{side}.version")
        if version is None or version.numel() != 1 or float(version) < least:
            raise InputError(
                f"{path}: {side}.version: missing or below {least}: a pre-norm model without a last norm, "
                "which cannot be represented"
            )
    return True
