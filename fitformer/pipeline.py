"""The guided tour: one short function per stage of ``fitformer fit``, in order.

Stages talk through files in the run folder. What one needs from another is read here and passed in as a path, a value
or a callable, so that the rooms below know nothing of each other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings
from fitformer.data.prepare import prepare as prepare_corpus
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.device import available_threads
from fitformer.models import SuperTransformer, TransformerConfig
from fitformer.recipe import Corpus, Recipe, Training
from fitformer.rundir import read_json, write_json
from fitformer.space import SearchSpace
from fitformer.stages import Stage
from fitformer.tasks import TranslationTask
from fitformer.training import train as train_model
from fitformer.training.loop import clean_up
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
        return Stage(self.path, name, part)

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


# -- prepare ----------------------------------------------------------------------------------------------------------


def prepare(run: Run) -> dict[str, Any]:
    """Clean the text, learn the subword model, encode to memory-mapped arrays."""
    data, section = run.recipe.data, run.recipe.prepare
    tokenizer = TokenizerSettings(**section.tokenizer.model_dump())
    settings = PrepareSettings(
        train=_corpus(run.recipe, data.train),
        valid=_corpus(run.recipe, data.valid) if data.valid else None,
        test=_corpus(run.recipe, data.test) if data.test else None,
        source_language=data.source_language,
        target_language=data.target_language,
        held_out_pairs=data.held_out_pairs,
        tokenizer=tokenizer,
        cleaning=CleaningSettings(**section.cleaning.model_dump()),
        max_tokens=section.max_tokens,
        licence=data.licence,
    )
    inputs = {**run.section("data", "prepare"), "files": _fingerprints(data.train, data.valid, data.test)}
    return run.stage("prepare").perform(inputs, lambda folder: prepare_corpus(settings, folder))


def _corpus(recipe: Recipe, corpus: Corpus | None) -> CorpusFiles | BuiltinCorpus:
    data = recipe.data
    if corpus is None:
        assert data.builtin is not None
        return BuiltinCorpus(data.builtin, size=data.builtin_pairs, seed=recipe.seed)
    return CorpusFiles(
        corpus.format,
        data.source_language,
        data.target_language,
        source=corpus.source,
        target=corpus.target,
        files=corpus.files,
        source_field=corpus.source_field,
        target_field=corpus.target_field,
    )


def _fingerprints(*corpora: Corpus | None) -> dict[str, int]:
    """Sizes of the input files, enough to notice that a file was replaced; checksums stand in stats.json."""
    paths = [path for corpus in corpora if corpus for path in (*corpus.source, *corpus.target, *corpus.files)]
    return {str(path): path.stat().st_size if path.exists() else -1 for path in paths}


# -- supernet ---------------------------------------------------------------------------------------------------------


def supernet(run: Run) -> dict[str, Any]:
    """Train the SuperTransformer: another architecture of the space at every update, all sharing weights."""
    settings, space, seed = run.recipe.supernet, run.space, run.recipe.seed

    def work(folder: Path) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = SuperTransformer(_model_config(run, settings), space)
        write_json(folder / MODEL, {"config": model.config.to_dict(), "space": space.to_dict()})
        task = _task(run, settings)
        watched = _watched(space, seed)

        def select(update: int) -> None:
            model.set_active(space.sample(random.Random(f"{seed}-{update}")))

        def validate() -> dict[str, float]:
            losses = {}
            for name, arch in watched.items():
                model.set_active(arch)
                losses[name] = task.validation_loss(model)["loss"]
            return losses

        return train_model(model, task, settings, folder, seed=seed, title="supernet", select=select, validate=validate)

    inputs = {
        **run.section("seed", "model", "supernet"),
        "space": space.to_dict(),
        "prepare": run.stage("prepare").identity,
    }
    facts = run.stage("supernet").perform(inputs, work)
    clean_up(run.stage("supernet").folder)
    return facts


def _watched(space: SearchSpace, seed: int) -> dict[str, Any]:
    """Architectures whose validation loss is followed: the extremes and two drawn ones."""
    rng = random.Random(f"{seed}-watched")
    drawn = {f"drawn {i + 1}": space.sample(rng) for i in range(2)}
    return {"largest": space.largest(), "smallest": space.smallest(), **drawn}


def _model_config(run: Run, settings: Training) -> TransformerConfig:
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


def _task(run: Run, settings: Training) -> TranslationTask:
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
