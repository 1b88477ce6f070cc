"""Which architectures of a SuperTransformer learn at an update, and from what.

Uniform sampling trains one random architecture per update (HAT, section 2.2). The sandwich rule (Yu and Huang 2019,
"Universally slimmable networks"; Yu et al. 2020, "BigNAS") trains the largest, the smallest and some random ones on the
same batches, so that the extremes, between which all others lie, improve at every update; with in-place distillation
the largest learns from the labels, and the others from the largest's predictions on the spot. Before either, the
largest can be trained alone for a while (Cai et al. 2020, "Once-for-all").

The architectures of an update are a function of the seed and its number alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch

from fitformer.models import SuperTransformer
from fitformer.recipe import Supernet
from fitformer.space import Architecture
from fitformer.tasks import TranslationTask
from fitformer.tasks.loss import Predictions
from fitformer.tasks.translation import PairTensors
from fitformer.training.importance import sort_by_importance
from fitformer.training.loop import Reorder, Step


class Hooks(TypedDict):
    """What makes the loop train a SuperTransformer by a rule."""

    select: Callable[[int], None]
    step: Step | None
    reorder: Reorder | None


@dataclass
class Sampling:
    """The rule of one training; ``hooks`` is what the loop needs of it."""

    model: SuperTransformer
    task: TranslationTask
    settings: Supernet
    seed: int

    def __post_init__(self) -> None:
        self.chosen: tuple[Architecture, ...] = ()

    def hooks(self) -> Hooks:
        """Keyword arguments of ``train``. One architecture per update needs no step but the loop's own."""
        is_sandwich = self.settings.sampling == "sandwich"
        return {
            "select": self.select,
            "step": self.step if is_sandwich else None,
            "reorder": self.reorder if self.settings.importance_sorting else None,
        }

    def architectures(self, update: int) -> tuple[Architecture, ...]:
        """What learns at ``update`` (the first is 1); more than one: the largest, the smallest, random ones."""
        settings, space = self.settings, self.model.space
        if update <= settings.largest_first:
            return (space.largest(),)
        rng = random.Random(f"{self.seed}-{update}")
        if settings.sampling == "uniform":
            return (space.sample(rng),)
        drawn = (space.sample(rng) for _ in range(settings.random_architectures))
        return space.largest(), space.smallest(), *drawn

    def select(self, update: int) -> None:
        """Choose the architectures of an update and activate the first."""
        self.chosen = self.architectures(update)
        self.model.set_active(self.chosen[0])

    def reorder(self, update: int, optimizer: torch.optim.Optimizer) -> bool:
        """Sort the channels by importance once, after the updates of the largest alone."""
        if update != self.settings.largest_first + 1:
            return False
        sort_by_importance(self.model, optimizer)
        return True

    def step(self, batches: Sequence[PairTensors], tokens: int) -> float:
        """Accumulate the gradients of the mean loss over architectures and target tokens; returns the summed loss.

        The mean, not the sum, over the architectures, so that one learning rate serves every rule.
        """
        return sum((self._learn(batch, tokens) for batch in batches), 0.0)

    def _learn(self, batch: PairTensors, tokens: int) -> float:
        total, teacher, share = 0.0, None, self.settings.distillation
        for arch in self.chosen:
            self.model.set_active(arch)
            predicted, target = self.task.predict(self.model, batch)
            loss = self.task.loss_of(predicted, target, teacher=teacher, share=share).smoothed
            (loss / (tokens * len(self.chosen))).backward()
            if teacher is None:
                teacher = Predictions(predicted.hidden.detach(), predicted.weight.detach())
            total += float(loss.detach())
        return total / len(self.chosen)
