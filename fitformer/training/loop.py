"""The training loop. One update is: select, draw dropout, read batches, loss, sum over the processes, clip, step, log,
validate, save.

Everything random is a function of the seed and the update number, so that a training killed at any moment and started
again ends with the same weights as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fitformer.data.arrays import IntArray
from fitformer.errors import NotPossibleError
from fitformer.models import Transformer
from fitformer.progress import Progress
from fitformer.recipe import Training
from fitformer.tasks import TranslationTask
from fitformer.tasks.translation import PairTensors
from fitformer.training.checkpoint import (
    STATE,
    WEIGHTS,
    load_state,
    read_tensors,
    save_state,
    unique_parameters,
    write_tensors,
)
from fitformer.training.logs import NoLog, TrainingLog
from fitformer.training.optimizer import make_optimizer, optimize
from fitformer.training.processes import ALONE, Processes

SECONDS_BETWEEN_SAVES = 30.0
UPDATES_PER_LOG_LINE = 50

Step = Callable[[Sequence[PairTensors], int], float]
"""Accumulates the gradients of an update's batches, given their number of target tokens; returns the summed loss."""
Reorder = Callable[[int, torch.optim.Optimizer], bool]
"""Changes weights and moments before an update; whether it did, so that older weights are no longer comparable."""


def plain_step(task: TranslationTask, model: Transformer) -> Step:
    """Gradients of the plain loss."""

    def step(batches: Sequence[PairTensors], tokens: int) -> float:
        total = 0.0
        for batch in batches:
            loss = task.loss(model, batch)
            (loss.smoothed / tokens).backward()
            total += float(loss.smoothed.detach())
        return total

    return step


@dataclass
class Trainer:
    """One training: the model with its task, settings and folder, and the hooks that make it a SuperTransformer's.

    ``select(update)`` is called before each update (draws and activates an architecture); ``validate()`` returns
    validation losses by name, of which the mean decides about early stopping; ``step`` computes gradients in another
    way than by the plain loss; ``reorder`` changes the weights before an update. Of several ``processes`` the main one
    validates and writes; the others learn from their share of the same updates.
    """

    model: Transformer
    task: TranslationTask
    settings: Training
    folder: Path
    seed: int
    select: Callable[[int], None] | None
    validate: Callable[[], dict[str, float]]
    title: str
    step: Step | None = None
    reorder: Reorder | None = None
    processes: Processes = ALONE

    def run(self) -> dict[str, Any]:
        """Train to the end, from wherever a killed run stopped; write the weights; return the facts."""
        is_main = self.processes.is_main
        self.folder.mkdir(parents=True, exist_ok=True)
        self.optimizer = make_optimizer(self.model, self.settings)
        self.position = load_state(self.folder, self.model, self.optimizer)
        self.processes.check_same("updates done", self.position.update)
        self.batches = self._batches()
        self._began = time.monotonic() - self.position.seconds
        self._sum_loss = self._sum_tokens = 0.0
        with (
            TrainingLog(self.folder, update=self.position.update) if is_main else NoLog() as self.log,
            Progress(
                self.title, self.settings.updates, unit="updates", start=self.position.update, quiet=not is_main
            ) as progress,
        ):
            self._loop(progress)
        return self._finish() if is_main else {}

    def _loop(self, progress: Progress) -> None:
        settings, position = self.settings, self.position
        self.model.train()
        saved = time.monotonic()
        while position.update < settings.updates and not self._out_of_patience():
            position.update += 1
            loss = self._update()
            progress.update(position.update, loss=loss)
            last = position.update == settings.updates
            if position.update % settings.validate_every == 0 or last:
                self._validate()
                saved = float("-inf")
            if self.processes.is_main and (last or time.monotonic() - saved >= SECONDS_BETWEEN_SAVES):
                position.seconds = time.monotonic() - self._began
                save_state(self.folder, self.model, self.optimizer, position)
                saved = time.monotonic()

    def _out_of_patience(self) -> bool:
        return bool(self.settings.patience) and self.position.validations_since_best >= self.settings.patience

    def _update(self) -> float:
        """One optimizer step over ``accumulate`` batches; returns the mean loss per target token."""
        settings, update = self.settings, self.position.update
        if self.reorder is not None and self.reorder(update, self.optimizer):
            self.position.snapshots.clear()  # of weights in another order: no mean with what comes now
        if self.select is not None:
            self.select(update)
        self.model.mask_pool.start_update(self.processes.seed(self.seed), update)
        dealt = [next(self.batches) for _ in range(settings.accumulate)]
        tokens = sum(map(self.task.target_tokens, dealt))
        batches = [self.task.batch(indices) for indices in self.processes.deal(dealt)]
        share = (self.step or plain_step(self.task, self.model))(batches, tokens)
        total = self.processes.sum_gradients(list(self.model.parameters()), share)
        rate = optimize(self.model, self.optimizer, settings, update)
        self.position.target_tokens += tokens
        self._note(total, tokens, rate)
        return total / tokens

    def _note(self, loss: float, tokens: int, rate: float) -> None:
        if loss != loss or loss == float("inf"):
            raise NotPossibleError(
                f"{self.title}: the loss is no longer a number at update {self.position.update}; "
                f"lower learning_rate ({self.settings.learning_rate}) or raise warmup ({self.settings.warmup}), "
                f"then --rerun {self.title.split()[0]}"
            )
        self._sum_loss += loss
        self._sum_tokens += tokens
        if self.position.update % UPDATES_PER_LOG_LINE == 0:
            seconds = time.monotonic() - self._began
            self.log.write(
                self.position.update,
                loss=self._sum_loss / self._sum_tokens,
                learning_rate=rate,
                epoch=self.position.epoch,
                target_tokens=self.position.target_tokens,
                tokens_per_s=self.position.target_tokens / max(seconds, 1e-9),
                seconds=seconds,
            )
            self._sum_loss = self._sum_tokens = 0.0

    def _batches(self) -> Iterator[IntArray]:
        """The endless stream of batches, as sentence indices, from the saved position on; it moves the position."""
        position = self.position
        while True:
            order = self.task.epoch(position.epoch)
            while position.next_batch < len(order):
                indices = order[position.next_batch]
                position.next_batch += 1
                yield indices
            position.epoch, position.next_batch = position.epoch + 1, 0

    def _validate(self) -> None:
        position, mean = self.position, 0.0
        if self.processes.is_main:
            losses = self.validate()
            self.log.write(position.update, valid=losses)
            mean = sum(losses.values()) / len(losses)
        mean = self.processes.agree(mean)
        if mean < position.best_loss:
            position.best_loss, position.validations_since_best = mean, 0
        else:
            position.validations_since_best += 1
        if self.settings.average_last > 1:
            self._keep_snapshot()

    def _keep_snapshot(self) -> None:
        position = self.position
        if self.processes.is_main:
            write_tensors(self._snapshot(position.update), {**unique_parameters(self.model)})
        position.snapshots.append(position.update)
        while len(position.snapshots) > self.settings.average_last:
            # One older snapshot stays until the next state is on disk: a kill in between resumes from the older state.
            del position.snapshots[0]
        if not self.processes.is_main:
            return
        for path in self.folder.glob("snapshot-*.safetensors"):
            update = int(path.stem.partition("-")[2])
            if update < position.snapshots[0] - self.settings.validate_every:
                path.unlink()

    def _snapshot(self, update: int) -> Path:
        return self.folder / f"snapshot-{update}.safetensors"

    def _finish(self) -> dict[str, Any]:
        """Average the snapshots, write the weights, remove what only an unfinished training needs."""
        position = self.position
        if len(position.snapshots) > 1:
            self._average(position.snapshots)
        facts = {
            "updates": position.update,
            "target_tokens": position.target_tokens,
            "epochs": position.epoch,
            "seconds": round(position.seconds, 1),
            "averaged": max(len(position.snapshots), 1),
            "valid": self.validate(),
        }
        write_tensors(self.folder / WEIGHTS, {**unique_parameters(self.model)})
        return facts

    def _average(self, snapshots: list[int]) -> None:
        mean: dict[str, torch.Tensor] = {}
        for update in snapshots:
            for name, value in read_tensors(self._snapshot(update))[0].items():
                mean[name] = mean.get(name, torch.zeros_like(value)) + value / len(snapshots)
        with torch.no_grad():
            for name, parameter in unique_parameters(self.model).items():
                parameter.copy_(mean[name])


def train(
    model: Transformer,
    task: TranslationTask,
    settings: Training,
    folder: Path,
    *,
    seed: int,
    title: str,
    validate: Callable[[], dict[str, float]] | None = None,
    select: Callable[[int], None] | None = None,
    step: Step | None = None,
    reorder: Reorder | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Train ``model`` and write ``weights.safetensors`` to ``folder``; see ``Trainer`` for the hooks.

    Returns the facts of the training: updates, target tokens, seconds, validation losses of the final weights; in a
    process that is not the main one, nothing.

    Raises:
        InputError: a damaged state from an earlier run.
        NotPossibleError: the loss diverged, the disk is full, or another process ended.
    """
    check = validate or (lambda: task.validation_loss(model))
    return Trainer(model, task, settings, folder, seed, select, check, title, step, reorder, processes).run()


def clean_up(folder: Path) -> None:
    """Remove what only an unfinished training needs: state and snapshots. Called when the stage is recorded as done."""
    half_written = [*folder.glob(".*.tmp"), *folder.glob(".tmp*")]  # by kills: ours, and those of safetensors
    for path in [folder / STATE, *folder.glob("snapshot-*.safetensors"), *half_written]:
        path.unlink(missing_ok=True)
