"""Importance-sorted slicing: after a phase that trains the largest architecture alone, its best channels come first."""

from __future__ import annotations

import torch

from fitformer.models import SuperTransformer
from fitformer.models.importance import reorderings


def sort_by_importance(model: SuperTransformer, optimizer: torch.optim.Optimizer) -> None:
    """Reorder weights, and the optimizer's moments with them, so that slices keep what matters most.

    The largest architecture computes what it did, and an optimizer step commutes with the reordering. A function of
    the weights alone: a training that is killed and repeats it comes to the same order.
    """
    for reordering in reorderings(model):
        parameter = reordering.parameter
        reordering.apply(parameter)
        for value in optimizer.state.get(parameter, {}).values():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                reordering.apply(value)
