"""The stages that choose: measure and search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fitformer.device import device_card
from fitformer.export.graphs import EXPORTER_VERSION
from fitformer.latency import (
    AnyPredictor,
    Conditions,
    LatencyPredictor,
    MeasureSettings,
    check_useful,
    choose_architectures,
    cross_validate,
    load_predictor,
)
from fitformer.latency import measure as measure_latencies
from fitformer.pipeline.elsewhere import adopt_predictor, is_at_hand, not_measured
from fitformer.pipeline.run import (
    Run,
    load_supernet,
    training_task,
)
from fitformer.pipeline.timing import ArchitectureTimer, conditions_of, time_against
from fitformer.progress import say
from fitformer.recipe import Target
from fitformer.rundir import read_json, write_json
from fitformer.search import EvolutionSettings, Finalist, find_architecture
from fitformer.space import Architecture


def measure(run: Run, device: str) -> dict[str, Any]:
    """Time sampled architectures on the device, extracted and exported, and fit the latency predictor.

    For a device with a given predictor nothing is timed.
    """
    if not is_at_hand(run, device):
        return adopt_predictor(run, device)
    settings, space = run.recipe.measure, run.space
    conditions = conditions_of(run, device)

    def work(folder: Path) -> dict[str, Any]:
        timer = ArchitectureTimer(run, conditions)
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
        "device": run.recipe.devices[device].model_dump(exclude={"predictor"}),
        "exporter_version": EXPORTER_VERSION,
        "supernet": run.stage("supernet").identity,
    }
    return run.stage("measure", device).perform(inputs, work)


def search(run: Run, target: Target) -> dict[str, Any]:
    """Find the architecture of lowest validation loss whose measured latency keeps the target's limit.

    Where the device is not at hand it is the predicted latency.
    """
    measured = run.stage("measure", target.device)
    limit_ms = target.limit_ms(measured.facts["largest_ms"])
    settings, space = run.recipe.search, run.space
    allowed_ms = limit_ms * (1 - settings.margin)

    at_hand = is_at_hand(run, target.device)

    def work(folder: Path) -> dict[str, Any]:
        path = measured.folder / "predictor.json"
        task = training_task(run, run.recipe.supernet)
        model = load_supernet(run).to(task.device)
        predictor: AnyPredictor
        timing: dict[str, Any] = {"measure": None, "refit": None}
        if at_hand:
            predictor, timing = _timed(run, path, conditions_of(run, target.device), allowed_ms)
        else:
            predictor = load_predictor(path)

        def fitness(arch: Architecture) -> float:
            model.set_active(arch)
            return task.validation_loss(model)["loss"]

        found = find_architecture(
            space,
            fitness,
            predictor.predict_ms,
            allowed_ms,
            folder=folder,
            settings=_evolution(run),
            finalists=settings.finalists,
            **timing,
        )
        best = read_json(folder / "best.json") | {"limit_ms": limit_ms}
        if not at_hand:
            best["not_measured"] = not_measured(run, target.device)
            say(f"search: predicted {best['predicted_ms']:.4g} ms; not measured: {best['not_measured']}")
        write_json(folder / "best.json", best)
        return {**found.facts(), **best}

    inputs = {
        **run.section("search"),
        "latency": target.latency,
        "measure": measured.identity,
        "supernet": run.stage("supernet").identity,
    }
    return run.stage("search", target.name).perform(inputs, work)


def _timed(
    run: Run, path: Path, conditions: Conditions, allowed_ms: float
) -> tuple[LatencyPredictor, dict[str, Callable[..., Any]]]:
    """The predictor of a device that is at hand, how finalists are timed there, and how they correct it."""
    predictor = LatencyPredictor.load(path, conditions=conditions)
    timer = ArchitectureTimer(run, conditions, repeats_factor=3)

    def time(arch: Architecture) -> float:
        return time_against(allowed_ms, lambda: timer.time(arch)).latency_ms

    def refit(finalists: Sequence[Finalist]) -> Callable[[Architecture], float]:
        return predictor.update({f.architecture: f.measured_ms for f in finalists}).predict_ms

    return predictor, {"measure": time, "refit": refit}


def _evolution(run: Run) -> EvolutionSettings:
    section = run.recipe.search.model_dump(exclude={"finalists", "margin", "valid_sentences"})
    return EvolutionSettings(**section, seed=run.recipe.seed)
