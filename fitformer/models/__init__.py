"""Transformers: ordinary PyTorch, written once; with elastic leaves the same classes are the SuperTransformer."""

from fitformer.models.config import TransformerConfig
from fitformer.models.super_transformer import SuperTransformer
from fitformer.models.transformer import Transformer

__all__ = ["SuperTransformer", "Transformer", "TransformerConfig"]
