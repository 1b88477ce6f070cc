"""A training of a dozen updates, small enough to be repeated at every point where it can be interrupted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.recipe import Training
from fitformer.space import Architecture, SearchSpace
from fitformer.tasks import TranslationTask
from fitformer.training import train
from fitformer.training.processes import ALONE, Processes

SPACE = SearchSpace(
    (16, 8), (16, 8), (2, 1), (2, 1), (24, 16), (16, 8), (2, 1), (24, 16), (16, 8), (2, 1), (2,), (1, 2)
)
SEED = 5


@dataclass
class SmallTraining:
    """One recipe of a training; ``run`` starts it from fresh initial weights, as a new process would."""

    prepared: Path
    supernet: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    batches_per_epoch: int | None = None
    on_select: Callable[[int], None] = lambda update: None
    """Called before every update."""
    on_validate: Callable[[Transformer], None] = lambda model: None
    processes: Processes = ALONE
    validation_loss: Callable[[dict[str, float]], dict[str, float]] = lambda losses: losses
    selected: list[int] = field(default_factory=list)
    architectures: list[Architecture] = field(default_factory=list)

    def make_settings(self) -> Training:
        defaults = {"updates": 12, "batch_tokens": 128, "warmup": 3, "learning_rate": 0.01, "validate_every": 4}
        regular = {"dropout": 0.2, "attention_dropout": 0.1, "weight_decay": 0.01}
        return Training(**{**defaults, **regular, **self.settings})

    def make_model(self) -> Transformer:
        torch.manual_seed(SEED)
        settings = self.make_settings()
        config = TransformerConfig(
            400, 400, max_positions=300, dropout=settings.dropout, attention_dropout=settings.attention_dropout
        )
        return SuperTransformer(config, SPACE) if self.supernet else Transformer(config, SPACE.largest())

    def make_task(self) -> TranslationTask:
        settings = self.make_settings()
        task = TranslationTask(self.prepared, batch_tokens=settings.batch_tokens, seed=SEED, valid_sentences=20)
        whole_epoch = task.epoch
        task.epoch = lambda number: whole_epoch(number)[: self.batches_per_epoch]  # type: ignore[method-assign]
        return task

    def run(self, folder: Path) -> dict[str, Any]:
        model, task = self.make_model(), self.make_task()

        def select(update: int) -> None:
            self.on_select(update)
            self.selected.append(update)
            if isinstance(model, SuperTransformer):
                self.architectures.append(SPACE.sample(random.Random(f"{SEED}-{update}")))
                model.set_active(self.architectures[-1])

        def validate() -> dict[str, float]:
            self.on_validate(model)
            losses = {}
            for name, arch in {"largest": SPACE.largest(), "smallest": SPACE.smallest()}.items():
                if isinstance(model, SuperTransformer):
                    model.set_active(arch)
                losses[name] = task.validation_loss(model)["loss"]
            return self.validation_loss(losses)

        return train(
            model,
            task,
            self.make_settings(),
            folder,
            seed=SEED,
            title="small",
            select=select,
            validate=validate,
            processes=self.processes,
        )


@pytest.fixture
def make_training(prepared: Path) -> Callable[..., SmallTraining]:
    """A function that makes a ``SmallTraining``; keyword arguments are settings of the recipe's section."""

    def make(*, supernet: bool = False, batches_per_epoch: int | None = None, **settings: Any) -> SmallTraining:
        return SmallTraining(prepared, supernet, settings, batches_per_epoch)

    return make
