"""All stages in order, and what they came to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from fitformer.pipeline.costs import account, rates
from fitformer.pipeline.elsewhere import check_predictors
from fitformer.pipeline.learning import prepare, supernet, train
from fitformer.pipeline.rehearsal import rehearse
from fitformer.pipeline.run import Run, device_of, part_of
from fitformer.pipeline.searching import measure, search
from fitformer.pipeline.shipping import compress, export, report
from fitformer.rundir import write_text
from fitformer.stages import STAGES, Stage

RECIPE = "recipe.yaml"
TIMED = ("beam", "batch_size", "source_length", "target_length")  # conditions under which a limit is kept


def fit(run: Run, *, until: str | None = None) -> dict[str, Any]:
    """Perform all stages in order, or those up to ``until``; what is done is skipped. Returns a summary."""
    stop = STAGES.index(until or "report")
    if stop >= STAGES.index("measure"):
        check_predictors(run)
    _check_other_models(run, stop)
    if not (run.path / RECIPE).exists():
        write_recipe(run)
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
    write_recipe(run)  # not before: a refused recipe must not replace the one that the folder was made with
    return summary(run)


def _check_other_models(run: Run, stop: int) -> None:
    """Look at the bundle to train on and at the teacher first: a wrong one is not to come out after days."""
    _ = run.origin
    if stop >= STAGES.index("train") and run.teacher is not None:
        _ = run.teacher.identity


def write_recipe(run: Run) -> None:
    """Write the recipe, all its settings resolved, into the run folder."""
    write_text(run.path / RECIPE, yaml.safe_dump(run.recipe.model_dump(mode="json"), sort_keys=False))


def dry_run(run: Run, *, until: str | None = None) -> dict[str, Any]:
    """What ``fit`` would do, without doing it: the state of every stage, the size of the space, missing files, and a
    rehearsal of the trainings that are still to be done up to stage ``until`` (see ``rehearsal``).

    Raises:
        InputError: a teacher or a predictor that the recipe names is none.
        NotPossibleError: the rehearsal ran out of memory, or its loss is not a number.
    """
    states = [{"stage": stage.title, "state": stage.state} for stage in _stages(run)]
    facts: dict[str, Any] = {"run": str(run.path), "stages": states, "missing_files": _missing_files(run)}
    if run.recipe.space is not None:
        facts["space"] = {
            "size": run.space.size(),
            "largest": run.space.largest().to_text(),
            "smallest": run.space.smallest().to_text(),
        }
    if run.recipe.train.teacher is not None and run.recipe.train.teacher.exists():
        _ = run.teacher  # a wrong one is an error here, too
    if not facts["missing_files"]:
        check_predictors(run)
    return facts | {"rehearsal": rehearse(run, until=until or "report")}


def _missing_files(run: Run) -> list[str]:
    """Files of the recipe that are not there; of text none once that is prepared."""
    data, teacher = run.recipe.data, run.recipe.train.teacher
    others = [teacher, *(device.predictor for device in run.recipe.devices.values())]
    models = [str(path) for path in others if path is not None and not path.exists()]
    if run.stage("prepare").is_done:
        return models
    corpora = [corpus for corpus in (data.train, data.valid, data.test) if corpus is not None]
    paths = [path for corpus in corpora for path in (*corpus.source, *corpus.target, *corpus.files)]
    paths.extend(run.recipe.prepare.tokenizer.files().values())
    return [str(path) for path in dict.fromkeys(paths) if not path.exists()] + models


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
            elsewhere = facts.get("predicted_latency")
            targets.append(
                {
                    "target": part_of(target),
                    "bundle": str(stage.folder),
                    "limit_ms": facts["limit_ms"],
                    "measured_ms": None if elsewhere else facts["latency"]["latency_ms"],
                    "timed": {name: facts["latency"][name] for name in TIMED},
                    "scored": {
                        "beam": facts["scores"]["decoding"]["beam"],
                        "median_ms": facts["scores"]["latency_ms"]["median"],
                    },
                    "predicted_ms": elsewhere["predicted_ms"] if elsewhere else None,
                    "precision": facts["precision"],
                    "scores": {key: facts["scores"][key] for key in ("bleu", "chrf")},
                    "baselines": facts["baselines"],
                    "samples": facts["samples"],
                }
            )
    page = run.path / "report" / "index.html"
    return {
        "run": str(run.path),
        "targets": targets,
        "cost": account(_stages(run), rates(run.recipe.cost)),
        "report": str(page) if page.exists() else None,
    }
