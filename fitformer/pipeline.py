"""The guided tour: one short function per stage of ``fitformer fit``, in order.

Stages talk through files in the run folder. What one needs from another is read here and passed in as a path, a value
or a callable, so that the rooms below know nothing of each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings
from fitformer.data.prepare import prepare as prepare_corpus
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.device import available_threads, device_card
from fitformer.export.graphs import EXPORTER_VERSION, graph_bytes
from fitformer.latency import (
    Conditions,
    LatencyPredictor,
    MeasureSettings,
    check_useful,
    choose_architectures,
    cross_validate,
)
from fitformer.latency import measure as measure_latencies
from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.progress import say
from fitformer.recipe import Corpus, Recipe, Target, Training
from fitformer.rundir import read_json, write_json
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.timing import Timing, time_model
from fitformer.search import EvolutionSettings, Finalist, find_architecture
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import Stage
from fitformer.tasks import TranslationTask
from fitformer.training import train as train_model
from fitformer.training.checkpoint import WEIGHTS, load_weights
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


def _watched(space: SearchSpace, seed: int) -> dict[str, Architecture]:
    """Architectures whose validation loss is followed: the extremes and two drawn ones."""
    rng = random.Random(f"{seed}-watched")
    drawn = {f"drawn {i + 1}": space.sample(rng) for i in range(2)}
    return {"largest": space.largest(), "smallest": space.smallest(), **drawn}


def _load_supernet(run: Run) -> SuperTransformer:
    folder = run.stage("supernet").folder
    facts = read_json(folder / MODEL)
    model = SuperTransformer(TransformerConfig.from_dict(facts["config"]), SearchSpace.from_dict(facts["space"]))
    load_weights(folder / WEIGHTS, model)
    return model.eval()


# -- measure ----------------------------------------------------------------------------------------------------------


def measure(run: Run, device: str) -> dict[str, Any]:
    """Time sampled architectures on the device, extracted and exported, and fit the latency predictor."""
    settings, space = run.recipe.measure, run.space
    conditions = _conditions(run, device)

    def work(folder: Path) -> dict[str, Any]:
        timer = _Timer(run, conditions)
        card = device_card(conditions.threads)
        write_json(folder / "device.json", card)
        measured = measure_latencies(
            choose_architectures(space, settings.architectures, run.recipe.seed),
            timer.time,
            space.sample(random.Random("reference")),
            folder / "records.csv",
            conditions,
            settings=MeasureSettings(
                reference_every=settings.reference_every, drift_tolerance=settings.drift_tolerance
            ),
        )
        quality = cross_validate(measured.records)
        say(f"measure: predictor {quality.summary()}")
        write_json(folder / "quality.json", quality.to_dict())
        check_useful(quality)
        LatencyPredictor.fit(measured.records, device=card).save(folder / "predictor.json")
        largest = next(r for r in measured.records if r.arch == space.largest())
        figures = {k: v for k, v in quality.to_dict().items() if not isinstance(v, list)}
        return {
            "conditions": conditions.to_dict(),
            "largest_ms": largest.latency_ms,
            "reference_ms": measured.reference_ms,
            "drifted": measured.drifted,
            "repeated": measured.repeated,
            "quality": figures,
        }

    inputs = {
        **run.section("measure"),
        "device": run.recipe.devices[device].model_dump(),
        "exporter_version": EXPORTER_VERSION,
        "supernet": run.stage("supernet").identity,
    }
    return run.stage("measure", device).perform(inputs, work)


def _conditions(run: Run, device: str) -> Conditions:
    settings, medians = run.recipe.measure, read_json(run.prepared / "stats.json")["median_lengths"]
    return Conditions(
        threads=run.recipe.devices[device].threads,
        batch_size=settings.batch_size,
        beam=settings.beam,
        source_length=settings.source_length or round(medians["source"]) + 1,  # and the end of the sentence
        target_length=settings.target_length or round(medians["target"]) + 1,
        exporter_version=EXPORTER_VERSION,
    )


class _Timer:
    """Times architectures: extracted from the SuperTransformer, exported, run by the decode loop that ships."""

    def __init__(self, run: Run, conditions: Conditions, *, repeats_factor: int = 1) -> None:
        self.model, self.conditions = _load_supernet(run), conditions
        self.settings, self.repeats_factor = run.recipe.measure, repeats_factor
        self.sessions: dict[Architecture, OnnxStepModel] = {}

    def time(self, arch: Architecture) -> Timing:
        """Latency of one architecture."""
        if arch not in self.sessions:
            while len(self.sessions) > 1:  # the first is the reference model; the others are asked for once
                self.sessions.popitem()
            graphs = graph_bytes(self.model.extract(arch))
            self.sessions[arch] = OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=self.conditions.threads)
        repeats = self.settings.repeats * self.repeats_factor
        return time_session(
            self.sessions[arch], self.conditions, self.model.config, warmup=self.settings.warmup, repeats=repeats
        )


def time_session(
    session: OnnxStepModel, conditions: Conditions, config: TransformerConfig, *, warmup: int, repeats: int
) -> Timing:
    """Time one pair of graphs under the run's conditions."""
    return time_model(
        session,
        source_length=conditions.source_length,
        target_length=conditions.target_length,
        vocab_size=config.source_vocab_size,
        batch_size=conditions.batch_size,
        beam=conditions.beam,
        warmup=warmup,
        repeats=repeats,
    )


# -- search -----------------------------------------------------------------------------------------------------------


def search(run: Run, target: Target) -> dict[str, Any]:
    """Find the architecture of lowest validation loss whose measured latency keeps the target's limit."""
    measured = run.stage("measure", target.device)
    limit_ms = target.limit_ms(measured.facts["largest_ms"])
    settings, space = run.recipe.search, run.space

    def work(folder: Path) -> dict[str, Any]:
        conditions = _conditions(run, target.device)
        predictor = LatencyPredictor.load(measured.folder / "predictor.json", conditions=conditions)
        model, task, timer = (
            _load_supernet(run),
            _task(run, run.recipe.supernet),
            _Timer(run, conditions, repeats_factor=3),
        )

        def fitness(arch: Architecture) -> float:
            model.set_active(arch)
            return task.validation_loss(model)["loss"]

        def refit(finalists: Sequence[Finalist]) -> Callable[[Architecture], float]:
            return predictor.update({f.architecture: f.measured_ms for f in finalists}).predict_ms

        found = find_architecture(
            space,
            fitness,
            predictor.predict_ms,
            limit_ms * (1 - settings.margin),
            measure=lambda arch: timer.time(arch).latency_ms,
            refit=refit,
            folder=folder,
            settings=_evolution(run),
            finalists=settings.finalists,
        )
        best = read_json(folder / "best.json") | {"limit_ms": limit_ms}
        write_json(folder / "best.json", best)
        return {**found.facts(), **best}

    inputs = {
        **run.section("search"),
        "latency": target.latency,
        "measure": measured.identity,
        "supernet": run.stage("supernet").identity,
    }
    return run.stage("search", target.name).perform(inputs, work)


def _evolution(run: Run) -> EvolutionSettings:
    section = run.recipe.search.model_dump(exclude={"finalists", "margin", "valid_sentences"})
    return EvolutionSettings(**section, seed=run.recipe.seed)


# -- train ------------------------------------------------------------------------------------------------------------


def train(run: Run, target: Target | None) -> dict[str, Any]:
    """Train the found architecture from inherited or new weights, or the recipe's fixed one from new ones."""
    settings, seed, part = run.recipe.train, run.recipe.seed, _part(target)

    def work(folder: Path) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = _untrained(run, target)
        write_json(folder / MODEL, {"config": model.config.to_dict(), "architecture": model.arch.to_dict()})
        return train_model(model, _task(run, settings), settings, folder, seed=seed, title=f"train {part}")

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
    config = _model_config(run, settings)
    if fixed is not None:
        return Transformer(config, fixed)
    assert target is not None
    best = Architecture.from_dict(read_json(run.stage("search", target.name).folder / "best.json")["architecture"])
    supernet = _load_supernet(run)
    config = replace(
        config,
        encoder_reference_dim=supernet.config.encoder_reference_dim,
        decoder_reference_dim=supernet.config.decoder_reference_dim,
    )
    model = Transformer(config, best)
    if settings.start == "inherited":
        model.load_state_dict(supernet.extract(best).state_dict())
    return model


def _load_trained(run: Run, part: str) -> Transformer:
    folder = run.stage("train", part).folder
    facts = read_json(folder / MODEL)
    model = Transformer(TransformerConfig.from_dict(facts["config"]), Architecture.from_dict(facts["architecture"]))
    load_weights(folder / WEIGHTS, model)
    return model.eval()


def _part(target: Target | None) -> str:
    return target.name if target else "model"


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
