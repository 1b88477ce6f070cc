"""A recipe at work in a folder, and what several stages read from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fitformer.data.evaluation import read_evaluation_text
from fitformer.device import available_threads
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.recipe import Recipe, Target, Training
from fitformer.rundir import read_json
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import Stage
from fitformer.tasks import TranslationTask
from fitformer.training.checkpoint import WEIGHTS, load_weights
from fitformer.training.precision import compute_dtype

MODEL = "model.json"


@dataclass(frozen=True)
class Run:
    """A recipe at work in a folder."""

    recipe: Recipe
    path: Path
    device: str = "cpu"

    def stage(self, name: str, part: str = "") -> Stage:
        """The stage ``name``, of a device or target where it has parts."""
        return Stage(self.path, name, part, self.recipe.defaults())

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

    def section(self, *names: str) -> dict[str, Any]:
        """Sections of the recipe as JSON, under their names: a stage's inputs."""
        return {name: self.recipe.model_dump(mode="json")[name] for name in names}


def model_config(run: Run, settings: Training) -> TransformerConfig:
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
    )


def training_task(run: Run, settings: Training) -> TranslationTask:
    torch.set_num_threads(settings.threads or available_threads())
    return TranslationTask(
        run.prepared,
        batch_tokens=settings.batch_tokens,
        seed=run.recipe.seed,
        label_smoothing=settings.label_smoothing,
        device=run.device,
        dtype=compute_dtype(settings.precision, run.device),
        valid_sentences=run.recipe.search.valid_sentences,
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
