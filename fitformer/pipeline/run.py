"""A recipe at work in a folder, and what several stages read from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fitformer.data.batches import BOS, EOS
from fitformer.data.evaluation import read_evaluation_text
from fitformer.device import available_threads
from fitformer.distillation import TeacherSource
from fitformer.export.read_weights import read_config
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.pipeline.origin import open_origin, teacher_source
from fitformer.recipe import Recipe, Target, Training
from fitformer.rundir import read_json
from fitformer.runtime.bundle import Bundle
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import Stage
from fitformer.tasks import TranslationTask
from fitformer.training.checkpoint import WEIGHTS, load_weights
from fitformer.training.precision import compute_device, compute_dtype
from fitformer.training.processes import ALONE, Processes

MODEL = "model.json"
START_IDS = {"bos": BOS, "eos": EOS}


@dataclass(frozen=True)
class Run:
    """A recipe at work in a folder; of several ``processes`` the main one performs the stages."""

    recipe: Recipe
    path: Path
    processes: Processes = ALONE

    def stage(self, name: str, part: str = "") -> Stage:
        """The stage ``name``, of a device or target where it has parts."""
        return Stage(self.path, name, part, self.recipe.defaults(), self.gpus(name))

    def gpus(self, stage: str) -> int:
        """GPUs at work in a stage: one per process in a training, one in a search."""
        recipe = self.recipe
        learning = {"supernet": recipe.supernet, "search": recipe.supernet, "train": recipe.train}.get(stage)
        if learning is None or learning.device == "cpu" or not torch.cuda.is_available():
            return 0
        return 1 if stage == "search" else self.processes.count

    def call(self, stage: str, target: Target | None) -> None:
        """Call the other processes to a training."""
        if self.processes.count > 1:
            recipe, name = self.recipe.model_dump(mode="json"), target.name if target else None
            self.processes.call({"recipe": recipe, "run": str(self.path.absolute()), "stage": stage, "target": name})

    @property
    def prepared(self) -> Path:
        """Folder of the prepared corpus."""
        return self.stage("prepare").folder

    @property
    def space(self) -> SearchSpace:
        """The recipe's search space."""
        space = self.recipe.search_space()
        assert space is not None
        return space

    @cached_property
    def origin(self) -> Bundle | None:
        """The bundle that the recipe trains on; ``None`` where it begins anew.

        Raises:
            BundleError: it cannot be used.
            InputError: it does not fit the recipe.
        """
        return None if self.recipe.bundle is None else open_origin(self.recipe)

    @cached_property
    def teacher(self) -> TeacherSource | None:
        """The teacher of the training; ``None`` where the text itself teaches.

        Raises:
            InputError: it cannot be used.
        """
        return teacher_source(self.recipe)

    def fixed_architecture(self) -> Architecture | None:
        """The architecture that the recipe or its bundle gives; ``None`` for a space."""
        return self.recipe.fixed_architecture() if self.origin is None else read_config(self.origin)[1]

    @property
    def start_id(self) -> int:
        """What the decoder starts from."""
        return START_IDS[self.recipe.model.start] if self.origin is None else read_config(self.origin)[0].start_id

    def section(self, *names: str) -> dict[str, Any]:
        """Sections of the recipe as JSON, under their names: a stage's inputs."""
        return {name: self.recipe.model_dump(mode="json")[name] for name in names}


def model_config(run: Run, settings: Training) -> TransformerConfig:
    if run.origin is not None:
        config, _ = read_config(run.origin)
        return replace(config, dropout=settings.dropout, attention_dropout=settings.attention_dropout)
    section, stats = run.recipe.model, read_json(run.prepared / "stats.json")
    share = section.share_embeddings or ("all" if run.recipe.prepare.tokenizer.joint else "decoder")
    return TransformerConfig(
        source_vocab_size=stats["vocab_size"]["source"],
        target_vocab_size=stats["vocab_size"]["target"],
        share_embeddings=share,
        pre_norm=section.pre_norm,
        max_positions=2 * run.recipe.prepare.max_tokens + 16,
        dropout=settings.dropout,
        attention_dropout=settings.attention_dropout,
        position_offset=section.position_offset,
        start_id=START_IDS[section.start],
        norm_every_memory=section.norm_every_memory,
    )


def training_task(
    run: Run, settings: Training, *, processes: Processes = ALONE, training_pairs: Path | None = None
) -> TranslationTask:
    """The prepared corpus as a task on the device of ``settings``; ``processes`` are at work on it together.

    ``training_pairs``: a folder with other pairs to learn from.
    """
    torch.set_num_threads(settings.threads or max(1, available_threads() // processes.count_here))
    device = compute_device(settings.device)
    return TranslationTask(
        run.prepared,
        batch_tokens=settings.batch_tokens,
        seed=run.recipe.seed,
        label_smoothing=settings.label_smoothing,
        device=device,
        dtype=compute_dtype(settings.precision, device),
        valid_sentences=run.recipe.search.valid_sentences,
        start_id=run.start_id,
        training_pairs=training_pairs,
    )


def load_supernet(run: Run) -> SuperTransformer:
    folder = run.stage("supernet").folder
    facts = read_json(folder / MODEL)
    model = SuperTransformer(TransformerConfig.from_dict(facts["config"]), SearchSpace.from_dict(facts["space"]))
    load_weights(folder / WEIGHTS, model)
    return model.eval()


def load_trained(run: Run, part: str) -> Transformer:
    folder = run.stage("train", part).folder
    facts = read_json(folder / MODEL)
    model = Transformer(TransformerConfig.from_dict(facts["config"]), Architecture.from_dict(facts["architecture"]))
    load_weights(folder / WEIGHTS, model)
    return model.eval()


def evaluation_texts(run: Run, split: str) -> tuple[list[str], list[str]]:
    pairs = list(read_evaluation_text(run.prepared, split))
    return [source for source, _ in pairs], [target for _, target in pairs]


def part_of(target: Target | None) -> str:
    return target.name if target else "model"


def device_of(target: Target | None) -> str:
    return target.device if target else "cpu"
