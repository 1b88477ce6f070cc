"""The guided tour: one short function per stage of ``fitformer fit``, in order.

Stages talk through files in the run folder. What one needs from another is read here and passed in as a path, a value
or a callable, so that the rooms below know nothing of each other.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from fitformer.compress.decide import decide
from fitformer.compress.quantize import BlockwiseInt8
from fitformer.data.arrays import IntArray, TokenArrays
from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings
from fitformer.data.prepare import prepare as prepare_corpus
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.device import available_threads, device_card
from fitformer.errors import NotPossibleError
from fitformer.export.bundle import TokenizerFiles, add_facts, write_bundle
from fitformer.export.check import check_export
from fitformer.export.graphs import EXPORTER_VERSION, FLOAT32, graph_bytes
from fitformer.export.matrices import Matrices
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
from fitformer.report import render_report
from fitformer.rundir import folder_bytes, publish, read_json, write_json, write_text
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.evaluate import evaluate
from fitformer.runtime.scores import score_translations
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.timing import Timing, time_model
from fitformer.runtime.translator import Translator
from fitformer.search import EvolutionSettings, Finalist, find_architecture
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import STAGES, Stage
from fitformer.tasks import TranslationTask
from fitformer.tasks.baselines import baseline_scores
from fitformer.training import train as train_model
from fitformer.training.checkpoint import WEIGHTS, load_weights
from fitformer.training.loop import clean_up
from fitformer.training.precision import compute_dtype

MODEL = "model.json"
GOLDEN_SENTENCES = 8
LATENCY_ROUNDS = 3
SAMPLES = 10


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
        self.run, self.model, self.conditions = run, _load_supernet(run), conditions
        self.repeats_factor = repeats_factor
        self.sessions: dict[Architecture, OnnxStepModel] = {}

    def time(self, arch: Architecture) -> Timing:
        """Latency of one architecture."""
        if arch not in self.sessions:
            while len(self.sessions) > 1:  # the first is the reference model; the others are asked for once
                self.sessions.popitem()
            graphs = graph_bytes(self.model.extract(arch))
            self.sessions[arch] = OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=self.conditions.threads)
        return _time(self.run, self.sessions[arch], self.conditions, repeats_factor=self.repeats_factor)


def _time(run: Run, session: OnnxStepModel, conditions: Conditions, *, repeats_factor: int) -> Timing:
    """Time one pair of graphs under the run's conditions."""
    return time_model(
        session,
        source_length=conditions.source_length,
        target_length=conditions.target_length,
        vocab_size=read_json(run.prepared / "stats.json")["vocab_size"]["source"],
        batch_size=conditions.batch_size,
        beam=conditions.beam,
        warmup=run.recipe.measure.warmup,
        repeats=run.recipe.measure.repeats * repeats_factor,
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


# -- compress ---------------------------------------------------------------------------------------------------------


def compress(run: Run, target: Target | None) -> dict[str, Any]:
    """Try 8-bit weights; keep them if they are measured faster and lose little enough on the validation set."""
    section, part, device = run.recipe.compress, _part(target), _device(target)

    def work(folder: Path) -> dict[str, Any]:
        model = _load_trained(run, part)
        forms: dict[str, Matrices] = {"fp32": FLOAT32, **({"int8": BlockwiseInt8()} if section.int8 else {})}
        bundles = {name: _write_bundle(run, folder / name, model, form) for name, form in forms.items()}
        latency = _paired_latency(run, bundles, device)
        bleu = {name: _bleu(run, bundle, "valid") for name, bundle in bundles.items()}
        if not section.int8:
            decision = {
                "kept": "fp32",
                "reason": "fp32 is kept: the recipe asks for no int8.",
                "fp32_ms": latency["fp32"],
            }
        else:
            decision = decide(
                fp32_ms=latency["fp32"],
                int8_ms=latency["int8"],
                fp32_bleu=bleu["fp32"],
                int8_bleu=bleu["int8"],
                allowed_loss=section.allowed_bleu_loss,
            ).to_dict()
        say(f"compress: {decision['reason']}")
        decision["bytes"] = {name: folder_bytes(folder / name) for name in bundles}
        write_json(folder / "decision.json", decision)
        return decision

    inputs = {
        **run.section("compress", "export"),
        "exporter_version": EXPORTER_VERSION,
        "train": run.stage("train", part).identity,
    }
    return run.stage("compress", part).perform(inputs, work)


def _paired_latency(run: Run, bundles: dict[str, Bundle], device: str) -> dict[str, float]:
    """Median latency of each bundle in milliseconds, timed in turns so that drift touches all alike."""
    conditions = _conditions(run, device)
    sessions = {name: bundle.step_model(conditions.threads) for name, bundle in bundles.items()}
    rounds: dict[str, list[float]] = {name: [] for name in bundles}
    for _ in range(LATENCY_ROUNDS):
        for name, session in sessions.items():
            rounds[name].append(_time(run, session, conditions, repeats_factor=1).latency_ms)
    return {name: statistics.median(values) for name, values in rounds.items()}


def _bleu(run: Run, bundle: Bundle, split: str) -> float:
    sources, references = _texts(run, split)
    translator = Translator(bundle, threads=available_threads())
    outputs = [translation.text for translation in translator.translate(sources)]
    return float(score_translations(outputs, references, samples=1)["bleu"]["score"])


def _texts(run: Run, split: str) -> tuple[list[str], list[str]]:
    source, target = (
        (run.prepared / f"{split}.{side}.txt").read_text(encoding="utf-8").split("\n")[:-1]
        for side in ("source", "target")
    )
    return source, target


def _write_bundle(run: Run, folder: Path, model: Transformer, form: Matrices) -> Bundle:
    data, section, stats = run.recipe.data, run.recipe.export, read_json(run.prepared / "stats.json")
    models = stats["tokenizer"]["models"]
    return write_bundle(
        folder,
        model=model,
        tokenizer=TokenizerFiles("sentencepiece", run.prepared / models["source"], run.prepared / models["target"]),
        source_language=data.source_language,
        target_language=data.target_language,
        decoding=DecodeSettings(**section.model_dump(exclude={"check_sentences"})),
        golden_sources=_texts(run, "valid")[0][:GOLDEN_SENTENCES],
        max_source_length=run.recipe.prepare.max_tokens,
        matrices=form,
        licence=stats["licence"],
        training={"seed": run.recipe.seed, "recipe": run.recipe.name, "torch": torch.__version__},
    )


# -- export -----------------------------------------------------------------------------------------------------------


def export(run: Run, target: Target | None) -> dict[str, Any]:
    """Write the bundle, check it token for token against PyTorch, measure it again and score it on the test set."""
    part, device = _part(target), _device(target)
    compressed = run.stage("compress", part)

    def work(folder: Path) -> dict[str, Any]:
        model, kept = _load_trained(run, part), compressed.facts["kept"]
        unchecked = folder.with_name(f".{folder.name}.unchecked")
        bundle = _write_bundle(run, unchecked, model, BlockwiseInt8() if kept == "int8" else FLOAT32)
        ids = [list(map(int, ids)) for ids in _check_sentences(run)]
        checks = {"fp32": check_export(model, Bundle.load(compressed.folder / "fp32"), ids)}
        if run.recipe.compress.int8:
            checks["int8"] = check_export(model, Bundle.load(compressed.folder / "int8"), ids)
        record = _final_latency(run, bundle, target, device)
        sources, references = _texts(run, "test")
        facts = evaluate(bundle, sources, references, threads=_conditions(run, device).threads, keep_translations=True)
        outputs = facts.pop("translations")
        write_text(unchecked / "test.translations.txt", "".join(f"{line}\n" for line in outputs))
        scores = {"test": {"bleu": facts["bleu"], "chrf": facts["chrf"], "sentences": facts["sentences"]}}
        add_facts(unchecked, scores=scores, latency=[record])
        publish(unchecked, folder)
        return {
            "check": checks,
            "latency": record,
            "limit_ms": record["limit_ms"],
            "precision": kept,
            "scores": facts,
            "baselines": baseline_scores(run.prepared),
            "samples": _samples(sources, references, outputs),
            "bundle_bytes": folder_bytes(folder),
        }

    inputs = {**run.section("export", "measure"), "compress": compressed.identity}
    return run.stage("export", part).perform(inputs, work)


def _check_sentences(run: Run) -> list[IntArray]:
    """An even selection of encoded validation sentences."""
    arrays = TokenArrays(run.prepared / "valid.source")
    count = min(run.recipe.export.check_sentences, len(arrays))
    return [arrays[len(arrays) * i // count] for i in range(count)]


def _final_latency(run: Run, bundle: Bundle, target: Target | None, device: str) -> dict[str, Any]:
    """Measure the finished bundle; other work on the machine only slows it down, so it has three tries at its limit.

    Raises:
        NotPossibleError: it keeps the limit in none of them.
    """
    conditions = _conditions(run, device)
    limit_ms = _limit_ms(run, target) if target else None
    session = bundle.step_model(conditions.threads)
    for _ in range(LATENCY_ROUNDS):
        timing = _time(run, session, conditions, repeats_factor=3)
        if limit_ms is None or timing.latency_ms <= limit_ms:
            lengths = conditions.to_dict()
            return {
                "latency_ms": timing.latency_ms,
                "encoder_ms": timing.encoder.mean,
                "decoder_ms": timing.decoder.mean,
                "std_ms": timing.total.std,
                "limit_ms": limit_ms,
                "precision": bundle.precision,
                **lengths,
                "warmup": timing.warmup,
                "repeats": timing.repeats,
                "device": device_card(conditions.threads),
            }
    raise NotPossibleError(
        f"export: the finished bundle takes {timing.latency_ms:.3g} ms, over the limit of {limit_ms:.3g} ms, in "
        f"{LATENCY_ROUNDS} measurements; is something else running? Try again, or raise the limit or search.margin"
    )


def _limit_ms(run: Run, target: Target) -> float:
    if run.recipe.space is None:
        return target.limit_ms(math.nan)
    return target.limit_ms(run.stage("measure", target.device).facts["largest_ms"])


def _samples(sources: Sequence[str], references: Sequence[str], outputs: Sequence[str]) -> list[dict[str, str]]:
    """Lines spread over the test set with their references and translations."""
    count = min(SAMPLES, len(sources))
    rows = [len(sources) * i // count for i in range(count)]
    return [{"source": sources[i], "reference": references[i], "translation": outputs[i]} for i in rows]


def _device(target: Target | None) -> str:
    return target.device if target else "cpu"


# -- report and the whole ---------------------------------------------------------------------------------------------


def report(run: Run) -> dict[str, Any]:
    """Write one HTML page about everything in the run folder."""
    return {"report": str(render_report(run.path))}


def fit(run: Run, *, until: str | None = None) -> dict[str, Any]:
    """Perform all stages in order, or those up to ``until``; what is done is skipped. Returns a summary."""
    stop = STAGES.index(until or "report")
    write_text(run.path / "recipe.yaml", yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False))
    steps: list[tuple[str, Callable[[], Any]]] = [("prepare", lambda: prepare(run))]
    if run.recipe.space is not None:
        steps.append(("supernet", lambda: supernet(run)))
        devices = dict.fromkeys(target.device for target in run.recipe.targets)
        steps += [("measure", partial(measure, run, device)) for device in devices]
        steps += [("search", partial(search, run, target)) for target in run.recipe.targets]
    for target in run.recipe.targets or (None,):
        steps += [
            ("train", partial(train, run, target)),
            ("compress", partial(compress, run, target)),
            ("export", partial(export, run, target)),
        ]
    steps.append(("report", lambda: report(run)))
    for name, perform in steps:
        if STAGES.index(name) <= stop:
            perform()
    return summary(run)


def summary(run: Run) -> dict[str, Any]:
    """What a run has come to: per target the limit, latency, scores, samples, and where bundle and report are."""
    targets = []
    for target in run.recipe.targets or (None,):
        stage = run.stage("export", _part(target))
        if stage.is_done:
            facts = stage.facts
            targets.append(
                {
                    "target": _part(target),
                    "bundle": str(stage.folder),
                    "limit_ms": facts["limit_ms"],
                    "measured_ms": facts["latency"]["latency_ms"],
                    "precision": facts["precision"],
                    "scores": {key: facts["scores"][key] for key in ("bleu", "chrf")},
                    "baselines": facts["baselines"],
                    "samples": facts["samples"],
                }
            )
    page = run.path / "report" / "index.html"
    return {"run": str(run.path), "targets": targets, "report": str(page) if page.exists() else None}


# -- what several stages need -----------------------------------------------------------------------------------------


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
