"""The stages that learn: prepare, supernet, train."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings
from fitformer.data.prepare import prepare as prepare_corpus
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.models import SuperTransformer, Transformer
from fitformer.pipeline.run import (
    MODEL,
    Run,
    load_supernet,
    model_config,
    part_of,
    training_task,
)
from fitformer.recipe import Corpus, Recipe, Target
from fitformer.rundir import read_json, write_json
from fitformer.space import Architecture, SearchSpace
from fitformer.training import train as train_model
from fitformer.training.loop import clean_up


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
    if data.builtin == "numbers":  # a generated text is another one with another seed
        inputs |= run.section("seed")
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


def supernet(run: Run) -> dict[str, Any]:
    """Train the SuperTransformer: another architecture of the space at every update, all sharing weights."""
    settings, space, seed = run.recipe.supernet, run.space, run.recipe.seed

    def work(folder: Path) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = SuperTransformer(model_config(run, settings), space)
        write_json(folder / MODEL, {"config": model.config.to_dict(), "space": space.to_dict()})
        task = training_task(run, settings)
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


def _watched(space: SearchSpace, seed: int) -> dict[str, Architecture]:
    """Architectures whose validation loss is followed: the extremes and two drawn ones."""
    rng = random.Random(f"{seed}-watched")
    drawn = {f"drawn {i + 1}": space.sample(rng) for i in range(2)}
    return {"largest": space.largest(), "smallest": space.smallest(), **drawn}


def train(run: Run, target: Target | None) -> dict[str, Any]:
    """Train the found architecture from inherited or new weights, or the recipe's fixed one from new ones."""
    settings, seed, part = run.recipe.train, run.recipe.seed, part_of(target)

    def work(folder: Path) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = _untrained(run, target)
        write_json(folder / MODEL, {"config": model.config.to_dict(), "architecture": model.arch.to_dict()})
        return train_model(model, training_task(run, settings), settings, folder, seed=seed, title=f"train {part}")

    inputs = {
        **run.section("seed", "model", "train", "architecture"),
        "prepare": run.stage("prepare").identity,
        "search": run.stage("search", target.name).identity if run.recipe.space is not None and target else None,
    }
    facts = run.stage("train", part).perform(inputs, work)
    clean_up(run.stage("train", part).folder)
    return facts


def _untrained(run: Run, target: Target | None) -> Transformer:
    """The model that training starts from."""
    settings, fixed = run.recipe.train, run.recipe.fixed_architecture()
    config = model_config(run, settings)
    if fixed is not None:
        return Transformer(config, fixed)
    assert target is not None
    best = Architecture.from_dict(read_json(run.stage("search", target.name).folder / "best.json")["architecture"])
    supernet = load_supernet(run)
    config = replace(
        config,
        encoder_reference_dim=supernet.config.encoder_reference_dim,
        decoder_reference_dim=supernet.config.decoder_reference_dim,
    )
    model = Transformer(config, best)
    if settings.start == "inherited":
        model.load_state_dict(supernet.extract(best).state_dict())
    return model
