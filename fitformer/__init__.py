"""fitformer fits a Transformer to the hardware it will run on.

The public names below are loaded when they are first used, so that ``import fitformer`` needs no PyTorch and a small
board can use ``Bundle`` and ``Translator`` with the base install alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fitformer.errors import InputError, NotPossibleError
    from fitformer.latency import LatencyPredictor
    from fitformer.models import SuperTransformer, Transformer, TransformerConfig
    from fitformer.pipeline import Run, fit
    from fitformer.recipe import Recipe, load_recipe
    from fitformer.runtime.bundle import Bundle
    from fitformer.runtime.decoding import DecodeSettings
    from fitformer.runtime.translator import Translator
    from fitformer.space import Architecture, SearchSpace

_HOME = {
    "Architecture": "fitformer.space",
    "Bundle": "fitformer.runtime.bundle",
    "DecodeSettings": "fitformer.runtime.decoding",
    "InputError": "fitformer.errors",
    "LatencyPredictor": "fitformer.latency",
    "NotPossibleError": "fitformer.errors",
    "Recipe": "fitformer.recipe",
    "Run": "fitformer.pipeline",
    "SearchSpace": "fitformer.space",
    "SuperTransformer": "fitformer.models",
    "Transformer": "fitformer.models",
    "TransformerConfig": "fitformer.models",
    "Translator": "fitformer.runtime.translator",
    "fit": "fitformer.pipeline",
    "load_recipe": "fitformer.recipe",
}

__all__ = [
    "Architecture",
    "Bundle",
    "DecodeSettings",
    "InputError",
    "LatencyPredictor",
    "NotPossibleError",
    "Recipe",
    "Run",
    "SearchSpace",
    "SuperTransformer",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "fit",
    "load_recipe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fitformer' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
