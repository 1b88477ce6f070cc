"""Random small models for the exporter's tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fitformer.export import TokenizerFiles
from fitformer.models import Transformer, TransformerConfig
from fitformer.runtime.tokenizer import WordTokenizer
from fitformer.space import Architecture, SearchSpace

VOCAB = 50

# Heads of 4 to 32 channels (fused and plain decoder attention), widths that differ, spans of 1 to 3.
SPACE = SearchSpace(
    encoder_embed_dim=(32, 20, 48),
    decoder_embed_dim=(32, 24, 40),
    encoder_num_layers=(3, 2),
    decoder_num_layers=(3, 2, 1),
    encoder_ffn_dim=(64, 30),
    encoder_qkv_dim=(32, 16),
    encoder_num_heads=(4, 2, 1),
    decoder_ffn_dim=(64, 30),
    decoder_qkv_dim=(32, 16),
    decoder_self_heads=(4, 2, 1),
    decoder_cross_heads=(4, 2, 1),
    decoder_cross_span=(1, 2, 3),
)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    """A model of an architecture drawn by ``seed``, with norms and biases moved away from their initial values."""

    def make(seed: int, *, arch: Architecture | None = None, **config: Any) -> Transformer:
        settings = {"share_embeddings": ("all", "decoder", "none")[seed % 3], "pre_norm": seed % 2 == 0, **config}
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        reference = {"encoder_reference_dim": 48, "decoder_reference_dim": 48}
        model = Transformer(
            TransformerConfig(VOCAB, VOCAB, max_positions=40, **{**reference, **settings}),
            arch or SPACE.sample(random.Random(seed)),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
        return model.eval()

    return make


@pytest.fixture
def make_batch() -> Callable[..., tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Padded source ids of rows of different length, and decoder input ids beginning with bos."""

    def make(seed: int, *, rows: int = 4, source: int = 9, target: int = 6) -> Any:
        rng = np.random.default_rng(seed)
        ids = rng.integers(4, VOCAB, (rows, source))
        for row in range(rows):
            length = source - (row * 2) % source
            ids[row, length - 1], ids[row, length:] = 3, 0
        tokens = rng.integers(4, VOCAB, (rows, target))
        tokens[:, 0] = 2
        return ids, tokens

    return make


@pytest.fixture
def words(tmp_path: Path) -> TokenizerFiles:
    """A tokenizer of words w4, w5, ... as large as the test models' vocabulary."""
    path = tmp_path / "words.txt"
    path.write_text(WordTokenizer.file_text(f"w{i}" for i in range(4, VOCAB)), encoding="utf-8")
    return TokenizerFiles("words", path, path)
