"""All stages in order, and what they came to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from fitformer.errors import InputError
from fitformer.pipeline.learning import prepare, supernet, train
from fitformer.pipeline.run import Run, device_of, part_of
from fitformer.pipeline.searching import measure, search
from fitformer.pipeline.shipping import compress, export, report
from fitformer.rundir import write_text
from fitformer.stages import STAGES, Stage

RECIPE = "recipe.yaml"


def fit(run: Run, *, until: str | None = None) -> dict[str, Any]:
    """Perform all stages in order, or those up to ``until``; what is done is skipped. Returns a summary."""
    stop = STAGES.index(until or "report")
    if not (run.path / RECIPE).exists():
        _write_recipe(run)
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
    _write_recipe(run)  # not before: a refused recipe must not replace the one that the folder was made with
    return summary(run)


def _write_recipe(run: Run) -> None:
    write_text(run.path / RECIPE, yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False))


def dry_run(run: Run) -> dict[str, Any]:
    """What ``fit`` would do, without doing it: the state of every stage, the size of the space, missing files.

    Raises:
        InputError: a file of the recipe is missing.
    """
    data = run.recipe.data
    for corpus in (data.train, data.valid, data.test):
        for path in (*corpus.source, *corpus.target, *corpus.files) if corpus else ():
            if not path.exists():
                raise InputError(f"data: {path}: no such file")
    states = [{"stage": stage.title, "state": stage.state} for stage in _stages(run)]
    facts: dict[str, Any] = {"run": str(run.path), "stages": states}
    if run.recipe.space is not None:
        facts["space"] = {
            "size": run.space.size(),
            "largest": run.space.largest().to_text(),
            "smallest": run.space.smallest().to_text(),
        }
    return facts


def _stages(run: Run) -> list[Stage]:
    """The stages of the recipe, one per device or target where they have parts."""
    targets, searched = run.recipe.targets or (None,), run.recipe.space is not None
    stages = [run.stage("prepare")]
    if searched:
        devices = dict.fromkeys(device_of(target) for target in targets)
        stages += [run.stage("supernet"), *(run.stage("measure", device) for device in devices)]
    for name in ("search", "train", "compress", "export")[0 if searched else 1 :]:
        stages += [run.stage(name, part_of(target)) for target in targets]
    return stages


def summary(run: Run) -> dict[str, Any]:
    """What a run has come to: per target the limit, latency, scores, samples, and where bundle and report are."""
    targets = []
    for target in run.recipe.targets or (None,):
        stage = run.stage("export", part_of(target))
        if stage.is_done:
            facts = stage.facts
            targets.append(
                {
                    "target": part_of(target),
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
