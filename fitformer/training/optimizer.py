"""The optimizer of every training, and its step: clip, set the rate of the schedule, move the weights."""

from __future__ import annotations

import torch
from torch import nn

from fitformer.recipe import Training
from fitformer.training.schedule import learning_rate


def make_optimizer(model: nn.Module, settings: Training) -> torch.optim.AdamW:
    """Adam with decoupled weight decay, its rate still to be set."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=0.0,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def optimize(model: nn.Module, optimizer: torch.optim.Optimizer, settings: Training, update: int) -> float:
    """Move the weights along the gradients of ``update`` and forget these; returns the learning rate."""
    if settings.clip_norm:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    rate = learning_rate(settings, update)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return rate
