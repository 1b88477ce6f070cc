"""``SuperTransformer``: one weight-sharing model with every architecture of a search space in it (HAT, section 2.2).

It is the ``Transformer`` of the space's largest architecture with elastic leaves. ``set_active`` selects one of them,
``extract`` returns it as a plain ``Transformer`` with copied weights: same state-dict keys, leading slices.
"""

from __future__ import annotations

from torch import nn

from fitformer.models.config import TransformerConfig
from fitformer.models.elastic import ELASTIC, ElasticEmbedding, ElasticLayerNorm, ElasticLinear, copy_active
from fitformer.models.layers import DecoderLayer, EncoderLayer
from fitformer.models.transformer import Stack, Transformer
from fitformer.space import Architecture, SearchSpace


class SuperTransformer(Transformer):
    """All architectures of ``space`` in one set of weights."""

    def __init__(self, config: TransformerConfig, space: SearchSpace) -> None:
        super().__init__(config, space.largest(), leaves=ELASTIC)
        self.space = space

    def set_active(self, arch: Architecture) -> None:
        """Make ``forward`` compute ``arch``; its sizes must not exceed those of the largest architecture."""
        self.arch = arch
        encoder_dim, decoder_dim = arch.encoder_embed_dim, arch.decoder_embed_dim
        _activate_stack(self.encoder, encoder_dim)
        _activate_stack(self.decoder, decoder_dim)
        if self.config.share_embeddings == "none":
            self.output.set_active(decoder_dim)
        for index, encoder_layer in enumerate(self.encoder_layers):
            _activate_encoder_layer(encoder_layer, arch, index)
        for index, decoder_layer in enumerate(self.decoder_layers):
            _activate_decoder_layer(decoder_layer, arch, index)

    def extract(self, arch: Architecture) -> Transformer:
        """Return ``arch`` as a plain model with the inherited weights; positions and dropout keep our reference."""
        before = self.arch
        self.set_active(arch)
        plain = Transformer(self.config, arch)
        for name, leaf in plain.named_modules():
            if isinstance(leaf, nn.Linear | nn.LayerNorm | ElasticEmbedding):
                copy_active(self.get_submodule(name), leaf)
        self.set_active(before)
        return plain.train(self.training)


def _activate_stack(stack: Stack, dim: int) -> None:
    stack.embed_tokens.set_active(dim)
    if isinstance(stack.norm, ElasticLayerNorm):
        stack.norm.set_active(dim)


def _activate_encoder_layer(layer: EncoderLayer, arch: Architecture, index: int) -> None:
    dim, qkv_dim, ffn_dim = arch.encoder_embed_dim, arch.encoder_qkv_dim[index], arch.encoder_ffn_dim[index]
    layer.self_attn.num_heads = arch.encoder_num_heads[index]
    _activate_linear(layer.self_attn.in_proj, dim, 3 * qkv_dim)
    _activate_linear(layer.self_attn.out_proj, qkv_dim, dim)
    _activate_linear(layer.fc1, dim, ffn_dim)
    _activate_linear(layer.fc2, ffn_dim, dim)
    _activate_norms(dim, layer.self_attn_norm, layer.ffn_norm)


def _activate_decoder_layer(layer: DecoderLayer, arch: Architecture, index: int) -> None:
    dim, qkv_dim, ffn_dim = arch.decoder_embed_dim, arch.decoder_qkv_dim[index], arch.decoder_ffn_dim[index]
    layer.self_attn.num_heads = arch.decoder_self_heads[index]
    layer.cross_attn.num_heads = arch.decoder_cross_heads[index]
    _activate_linear(layer.self_attn.in_proj, dim, 3 * qkv_dim)
    _activate_linear(layer.self_attn.out_proj, qkv_dim, dim)
    _activate_linear(layer.cross_attn.q_proj, dim, qkv_dim)
    _activate_linear(layer.cross_attn.kv_proj, arch.encoder_embed_dim, 2 * qkv_dim)
    _activate_linear(layer.cross_attn.out_proj, qkv_dim, dim)
    _activate_linear(layer.fc1, dim, ffn_dim)
    _activate_linear(layer.fc2, ffn_dim, dim)
    _activate_norms(dim, layer.self_attn_norm, layer.cross_attn_norm, layer.ffn_norm)


def _activate_linear(leaf: nn.Module, in_features: int, out_features: int) -> None:
    assert isinstance(leaf, ElasticLinear)
    leaf.set_active(in_features, out_features)


def _activate_norms(dim: int, *norms: nn.Module) -> None:
    for norm in norms:
        assert isinstance(norm, ElasticLayerNorm)
        norm.set_active(dim)
