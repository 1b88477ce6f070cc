"""The stages that learn: prepare, supernet, train."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.named import NamedCorpus
from fitformer.data.prepare import PrepareSettings
from fitformer.data.prepare import prepare as prepare_corpus
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.export.read_weights import read_weights
from fitformer.models import SuperTransformer, Transformer
from fitformer.pipeline.origin import origin_facts, tokenizer_of
from fitformer.pipeline.run import (
    MODEL,
    Run,
    load_supernet,
    model_config,
    part_of,
    training_task,
)
from fitformer.pipeline.teaching import teach, training_pairs
from fitformer.recipe import Corpus, Recipe, Target
from fitformer.rundir import read_json, write_json
from fitformer.space import Architecture, SearchSpace
from fitformer.tasks import TranslationTask
from fitformer.training import train as train_model
from fitformer.training.loop import clean_up
from fitformer.training.processes import Processes
from fitformer.training.sandwich import Sampling


def prepare(run: Run) -> dict[str, Any]:
    """Clean the text, learn the subword model, encode to memory-mapped arrays."""
    data, section = run.recipe.data, run.recipe.prepare
    tokenizer = TokenizerSettings(**section.tokenizer.model_dump())
    settings = PrepareSettings(
        train=_corpus(run.recipe, data.train),
        valid=_corpus(run.recipe, data.valid, held_out=True) if data.valid else None,
        test=_corpus(run.recipe, data.test, held_out=True) if data.test else None,
        source_language=data.source_language,
        target_language=data.target_language,
        valid_every=data.valid_every,
        held_out_pairs=data.held_out_pairs,
        tokenizer=tokenizer,
        given_tokenizer=None if run.origin is None else tokenizer_of(run.origin),
        cleaning=CleaningSettings(**section.cleaning.model_dump()),
        max_tokens=section.max_tokens,
        licence=data.licence,
    )
    files = section.tokenizer.files().values()
    inputs = {**run.section("data", "prepare"), "files": _fingerprints(data.train, data.valid, data.test, files=files)}
    if data.builtin == "numbers":  # a generated text is another one with another seed
        inputs |= run.section("seed")
    if run.origin is not None:
        inputs["bundle"] = run.origin.identity
    return run.stage("prepare").perform(inputs, lambda folder: prepare_corpus(settings, folder))


def _corpus(
    recipe: Recipe, corpus: Corpus | None, *, held_out: bool = False
) -> CorpusFiles | BuiltinCorpus | NamedCorpus:
    data = recipe.data
    if corpus is None:
        assert data.builtin is not None
        return BuiltinCorpus(data.builtin, size=data.builtin_pairs, seed=recipe.seed)
    if corpus.is_named:
        languages = data.source_language, data.target_language
        return NamedCorpus(*languages, mtdata=corpus.mtdata, sacrebleu=corpus.sacrebleu, held_out=held_out)
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


def _fingerprints(*corpora: Corpus | None, files: Iterable[Path] = ()) -> dict[str, int]:
    """Sizes of the input files, enough to notice that a file was replaced; checksums stand in stats.json."""
    paths = [path for corpus in corpora if corpus for path in (*corpus.source, *corpus.target, *corpus.files)]
    paths.extend(files)
    return {str(path): path.stat().st_size if path.exists() else -1 for path in paths}


def supernet(run: Run) -> dict[str, Any]:
    """Train the SuperTransformer: other architectures of the space at every update, all sharing weights."""

    def work(folder: Path) -> dict[str, Any]:
        run.call("supernet", None)
        return _train_supernet(run, folder)

    facts = run.stage("supernet").perform(supernet_inputs(run), work)
    clean_up(run.stage("supernet").folder)
    return facts


def supernet_inputs(run: Run) -> dict[str, Any]:
    """What decides about the SuperTransformer; a finished one with the same inputs is not trained again."""
    return {
        **run.section("seed", "model", "supernet"),
        "space": run.space.to_dict(),
        "prepare": run.stage("prepare").identity,
    }


def _train_supernet(run: Run, folder: Path) -> dict[str, Any]:
    """The training itself, in every process."""
    settings, space, seed = run.recipe.supernet, run.space, run.recipe.seed
    torch.manual_seed(seed)
    task = training_task(run, settings, processes=run.processes)
    model = SuperTransformer(model_config(run, settings), space).to(task.device)
    if run.processes.is_main:
        write_json(folder / MODEL, {"config": model.config.to_dict(), "space": space.to_dict()})
    watched = watched_architectures(space, seed)
    return train_model(
        model,
        task,
        settings,
        folder,
        seed=seed,
        title="supernet",
        validate=lambda: validation_losses(model, task, watched),
        processes=run.processes,
        **Sampling(model, task, settings, seed).hooks(),
    )


def validation_losses(
    model: SuperTransformer, task: TranslationTask, architectures: Mapping[str, Architecture]
) -> dict[str, float]:
    """Validation loss of each architecture with the shared weights, in nats per target token."""
    losses = {}
    for name, arch in architectures.items():
        model.set_active(arch)
        losses[name] = task.validation_loss(model)["loss"]
    return losses


def watched_architectures(space: SearchSpace, seed: int) -> dict[str, Architecture]:
    """Architectures whose validation loss is followed: the extremes and two drawn ones."""
    rng = random.Random(f"{seed}-watched")
    drawn = {f"drawn {i + 1}": space.sample(rng) for i in range(2)}
    return {"largest": space.largest(), "smallest": space.smallest(), **drawn}


def train(run: Run, target: Target | None) -> dict[str, Any]:
    """Train the found architecture from inherited or new weights, the recipe's fixed one from new ones, or the model of
    its bundle from what it knows; from the text's translations, or from those of a teacher.
    """
    part = part_of(target)

    def work(folder: Path) -> dict[str, Any]:
        taught, seconds = teach(run)
        run.call("train", target)
        facts = _train(run, target, folder) | taught
        if run.origin is not None:
            facts["began_with"] = origin_facts(run.origin)
        return facts | {"seconds": round(facts["seconds"] + seconds, 1)}

    inputs = {
        **run.section("seed", "model", "train", "architecture"),
        "prepare": run.stage("prepare").identity,
        "search": run.stage("search", target.name).identity if run.recipe.space is not None and target else None,
    }
    if run.teacher is not None:  # it may have moved; another one in its place is another input
        inputs["train"]["teacher"] = run.teacher.identity
    facts = run.stage("train", part).perform(inputs, work)
    clean_up(run.stage("train", part).folder)
    return facts


def _train(run: Run, target: Target | None, folder: Path) -> dict[str, Any]:
    """The training itself, in every process."""
    settings, seed = run.recipe.train, run.recipe.seed
    torch.manual_seed(seed)
    task = training_task(run, settings, processes=run.processes, training_pairs=training_pairs(run))
    model = _untrained(run, target).to(task.device)
    if run.processes.is_main:
        write_json(folder / MODEL, {"config": model.config.to_dict(), "architecture": model.arch.to_dict()})
    title = f"train {part_of(target)}"
    return train_model(model, task, settings, folder, seed=seed, title=title, processes=run.processes)


def follow(processes: Processes) -> None:
    """A process that is not the main one: take part in the trainings it is called to, until the main one has done."""
    while (call := processes.wait()) is not None:
        run = Run(Recipe.model_validate(call["recipe"]), Path(call["run"]), processes)
        target = next((target for target in run.recipe.targets if target.name == call["target"]), None)
        if call["stage"] == "supernet":
            _train_supernet(run, run.stage("supernet").folder)
        else:
            _train(run, target, run.stage("train", part_of(target)).folder)


def _untrained(run: Run, target: Target | None) -> Transformer:
    """The model that training starts from."""
    settings, fixed = run.recipe.train, run.fixed_architecture()
    config = model_config(run, settings)
    if fixed is not None:
        model = Transformer(config, fixed)
        if run.origin is not None and settings.start == "inherited":
            model.load_state_dict(read_weights(run.origin).state_dict())
        return model
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
