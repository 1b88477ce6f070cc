"""Tasks: how text becomes batches, what the loss is, how a model's output is decoded."""

from fitformer.tasks.translation import Loss, TranslationTask

__all__ = ["Loss", "TranslationTask"]
