"""A random model for the tests of compression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fitformer.models import Transformer, TransformerConfig
from fitformer.space import Architecture


@pytest.fixture(scope="session")
def model_of() -> Callable[..., Transformer]:
    """A model of the given architecture text with 60 ids, norms and biases moved away from their initial values."""

    def make(text: str, seed: int = 0, **config: Any) -> Transformer:
        torch.manual_seed(seed)
        settings = {"source_vocab_size": 60, "target_vocab_size": 60, "max_positions": 40, **config}
        model = Transformer(TransformerConfig(**settings), Architecture.from_text(text))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn(parameter.shape), alpha=0.3)
        return model.eval()

    return make
