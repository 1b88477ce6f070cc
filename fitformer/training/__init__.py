"""One training loop for the SuperTransformer, retraining and baselines."""

from fitformer.training.loop import train

__all__ = ["train"]
