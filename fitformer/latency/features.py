"""What the latency of an architecture is predicted from: amounts of work, summed over the layers.

Every feature is a total, never an average: an average loses the product depth x size, which is what costs time (on
HAT's released Raspberry Pi data totals bring the error of a linear model from 2.4 to 0.6 %). Lengths, batch size
and vocabulary are the same for all architectures of a data set, so they are part of the coefficients: d alone
stands for the output layer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fitformer.space import Architecture

Floats = NDArray[np.float64]

# e, d: encoder and decoder width; of a layer f: feed-forward, q: query-key-value width, h: heads, n: encoder layers
# attended.
_ENCODER = {
    "encoder.width": "e",
    "encoder.layers": "number of layers",
    "encoder.feed_forward": "sum of e f",
    "encoder.projections": "sum of e q",
    "encoder.attention": "sum of q",
    "encoder.heads": "sum of h",
    "encoder.ffn_width": "sum of f",
}
# The exported encoder graph also projects the keys and values that the decoder attends to, once per sentence.
_BETWEEN = {
    "cross.projections": "sum of e q n",
    "cross.attention": "sum of q n",
    "decoder.layers": "number of layers",
}
_DECODER = {
    "cross.heads": "sum of h n",
    "cross.layers": "sum of n",
    "decoder.width": "d",
    "decoder.layers_width": "sum of d",
    "decoder.feed_forward": "sum of d f",
    "decoder.projections": "sum of d q",
    "decoder.attention": "sum of q",
    "decoder.heads": "sum of h",
    "decoder.ffn_width": "sum of f",
}
FEATURES = _ENCODER | _BETWEEN | _DECODER
FEATURE_NAMES = tuple(FEATURES)
ENCODER_FEATURES = (*_ENCODER, *_BETWEEN)
DECODER_FEATURES = (*_BETWEEN, *_DECODER)

HAT_FEATURE_NAMES = (
    "encoder_embed_dim",
    "encoder_layer_num",
    "encoder_ffn_embed_dim_avg",
    "encoder_self_attention_heads_avg",
    "decoder_embed_dim",
    "decoder_layer_num",
    "decoder_ffn_embed_dim_avg",
    "decoder_self_attention_heads_avg",
    "decoder_ende_attention_heads_avg",
    "decoder_arbitrary_ende_attn_avg",
)


def features(arch: Architecture) -> Floats:
    """Return the totals named by ``FEATURE_NAMES``, shape [features]."""
    e, d = arch.encoder_embed_dim, arch.decoder_embed_dim
    spans = [len(layers) for layers in arch.decoder_cross_layers]
    attended = sum(q * n for q, n in zip(arch.decoder_qkv_dim, spans, strict=True))
    values = {
        "encoder.width": e,
        "encoder.layers": arch.encoder_num_layers,
        "encoder.feed_forward": e * sum(arch.encoder_ffn_dim),
        "encoder.projections": e * sum(arch.encoder_qkv_dim),
        "encoder.attention": sum(arch.encoder_qkv_dim),
        "encoder.heads": sum(arch.encoder_num_heads),
        "encoder.ffn_width": sum(arch.encoder_ffn_dim),
        "cross.projections": e * attended,
        "cross.attention": attended,
        "cross.heads": sum(h * n for h, n in zip(arch.decoder_cross_heads, spans, strict=True)),
        "cross.layers": sum(spans),
        "decoder.width": d,
        "decoder.layers": arch.decoder_num_layers,
        "decoder.layers_width": d * arch.decoder_num_layers,
        "decoder.feed_forward": d * sum(arch.decoder_ffn_dim),
        "decoder.projections": d * sum(arch.decoder_qkv_dim),
        "decoder.attention": sum(arch.decoder_qkv_dim),
        "decoder.heads": sum(arch.decoder_self_heads),
        "decoder.ffn_width": sum(arch.decoder_ffn_dim),
    }
    return np.array([values[name] for name in FEATURE_NAMES], dtype=np.float64)


def hat_features(arch: Architecture) -> Floats:
    """Return HAT's features ``HAT_FEATURE_NAMES``: widths, depths and means over the layers, shape [10]."""
    return np.array(
        [
            arch.encoder_embed_dim,
            arch.encoder_num_layers,
            np.mean(arch.encoder_ffn_dim),
            np.mean(arch.encoder_num_heads),
            arch.decoder_embed_dim,
            arch.decoder_num_layers,
            np.mean(arch.decoder_ffn_dim),
            np.mean(arch.decoder_self_heads),
            np.mean(arch.decoder_cross_heads),
            np.mean([len(layers) for layers in arch.decoder_cross_layers]),
        ],
        dtype=np.float64,
    )


def features_from_hat(averages: Floats, *, qkv_dim: int = 512) -> Floats:
    """Recover totals from rows of HAT's ten averages, [rows, 10] -> [rows, features].

    Exact where the query-key-value width is one number, as it is in all of HAT; only ``cross.heads`` (heads x attended
    layers) is the product of two means, because the released files do not hold the layers themselves.
    """
    e, encoder_layers, encoder_ffn, encoder_heads, d, layers, ffn, self_heads, cross_heads, span = averages.T
    attended = layers * span * qkv_dim
    values = {
        "encoder.width": e,
        "encoder.layers": encoder_layers,
        "encoder.feed_forward": e * encoder_layers * encoder_ffn,
        "encoder.projections": e * encoder_layers * qkv_dim,
        "encoder.attention": encoder_layers * qkv_dim,
        "encoder.heads": encoder_layers * encoder_heads,
        "encoder.ffn_width": encoder_layers * encoder_ffn,
        "cross.projections": e * attended,
        "cross.attention": attended,
        "cross.heads": layers * cross_heads * span,
        "cross.layers": layers * span,
        "decoder.width": d,
        "decoder.layers": layers,
        "decoder.layers_width": d * layers,
        "decoder.feed_forward": d * layers * ffn,
        "decoder.projections": d * layers * qkv_dim,
        "decoder.attention": layers * qkv_dim,
        "decoder.heads": layers * self_heads,
        "decoder.ffn_width": layers * ffn,
    }
    return np.stack([values[name] for name in FEATURE_NAMES], axis=1)
