"""``fitformer fit`` and one command per stage: all stages in order, or those up to one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitformer import stages
from fitformer.cli import launched, options
from fitformer.cli.output import cost_line, milliseconds, print_json, print_table, program, score
from fitformer.cli.plan import print_plan
from fitformer.errors import InputError, nearest

if TYPE_CHECKING:
    from fitformer.training.processes import Processes

STAGE_HELP = {
    "prepare": "Clean the text, learn the subword model, encode to memory-mapped arrays.",
    "supernet": "... and train the SuperTransformer, whose weights all architectures share.",
    "measure": "... and time sampled architectures on the device and fit the latency predictor.",
    "search": "... and find the best architecture within the limit.",
    "train": "... and train the found architecture.",
    "compress": "... and try 8-bit weights, kept only if they pay.",
    "export": "... and write the bundle, check it against PyTorch and measure it on the device.",
    "report": "... and write the HTML report: all stages, as 'fit' does.",
}
assert tuple(STAGE_HELP) == stages.STAGES
MADE_BY_FITFORMER = (stages.DONE, stages.STARTED, "fitformer.json", "index.html")

Rerun = Annotated[
    str | None,
    typer.Option("--rerun", metavar="STAGE", help="Delete what this stage and all later ones left, and do it again."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would be done, rehearse two updates on random text, estimate; change nothing."
    ),
]


def fit(
    recipe: options.RecipePath,
    run: options.RunFolder = None,
    settings: options.Settings = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STAGE", help=f"Stop after it: {', '.join(STAGE_HELP)}.")
    ] = None,
    rerun: Rerun = None,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a device: all stages in order, from text to a verified bundle and a report.

    What is done with the same settings is skipped; what was killed goes on where it was. The same command again is
    always right.
    """
    perform(recipe, run=run, settings=settings, until=until, rerun=rerun, dry_run=dry_run, as_json=as_json)


def stage_command(stage: str) -> Callable[..., None]:
    """The command of one stage: ``fit`` up to it."""

    def command(
        recipe: options.RecipePath,
        run: options.RunFolder = None,
        settings: options.Settings = None,
        rerun: Rerun = None,
        dry_run: DryRun = False,
        as_json: options.AsJson = False,
    ) -> None:
        perform(recipe, run=run, settings=settings, until=stage, rerun=rerun, dry_run=dry_run, as_json=as_json)

    return command


def perform(
    path: Path,
    *,
    run: Path | None,
    settings: list[str] | None,
    until: str | None,
    rerun: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run the pipeline and print what came out."""
    with launched.processes() as processes:
        if processes is not None and not processes.is_main:
            from fitformer import pipeline

            pipeline.follow(processes)
        else:
            _perform(
                path, processes, run=run, settings=settings, until=until, rerun=rerun, dry_run=dry_run, as_json=as_json
            )


def _perform(
    path: Path,
    processes: Processes | None,
    *,
    run: Path | None,
    settings: list[str] | None,
    until: str | None,
    rerun: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    for option, stage in (("--until", until), ("--rerun", rerun)):
        if stage is not None and stage not in STAGE_HELP:
            raise InputError(f"{option}: no stage '{stage}'{nearest(stage, STAGE_HELP)}; stages: {_names()}")
    if until and rerun and stages.STAGES.index(rerun) > stages.STAGES.index(until):
        raise InputError(f"--rerun: {rerun} comes after {until}, where this would stop")
    from fitformer.recipe import load_recipe  # first: a wrong recipe is told before torch is loaded

    recipe = load_recipe(path, settings or [])
    folder = run or Path("runs") / recipe.name
    _check_folder(folder)
    from fitformer import pipeline

    at_work = pipeline.Run(recipe, folder, *([processes] if processes else []))
    if dry_run:
        plan = pipeline.dry_run(at_work, until=until)
        if as_json:
            print_json(plan)
        else:
            print_plan(plan)
        return
    with stages.locked(folder):
        if rerun:
            _check_only_stages(folder, rerun)
            before = stages.STAGES[: stages.STAGES.index(rerun)]
            if before:  # a recipe that does not fit them is refused here, before anything is deleted
                pipeline.fit(at_work, until=before[-1])
            stages.forget(folder, rerun)
        summary = pipeline.fit(at_work, until=until)
    if as_json:
        print_json(summary)
    else:
        _print(summary, command=_command(path, run))


def _names() -> str:
    return ", ".join(STAGE_HELP)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--run: {folder} is a file; give a folder")


def _check_only_stages(folder: Path, rerun: str) -> None:
    """Refuse to delete a folder that has a stage's name but was made by somebody else."""
    for name in stages.STAGES[stages.STAGES.index(rerun) :]:
        stage = folder / name
        if not stage.exists() or not any(stage.iterdir()):
            continue
        if not any(path.name in MADE_BY_FITFORMER for path in [*stage.glob("*"), *stage.glob("*/*")]):
            raise InputError(f"--rerun: {stage} was not made by fitformer; nothing was deleted; is --run right?")


def _command(recipe: Path, run: Path | None) -> str:
    return f"{program()} {shlex.join(['fit', str(recipe), *(['--run', str(run)] if run else [])])}"


# -- for people -------------------------------------------------------------------------------------------------------


def _print(summary: dict[str, Any], *, command: str) -> None:
    if not summary["targets"]:
        print(f"done so far; the run is in {summary['run']}")
        print(f"next    {command}")
        return
    for target in summary["targets"]:
        _print_target(target)
    print(f"cost    {cost_line(summary['cost'])}")
    print(f"        {summary['cost']['basis_line']}")
    for target in summary["targets"]:
        print(f"bundle  {target['bundle']}")
    if summary["report"]:
        print(f"report  {summary['report']}")
        bundle = shlex.quote(str(summary["targets"][0]["bundle"]))
        print(f"next    echo 'a sentence of your own' | {program()} translate {bundle}")
    else:
        print(f"next    {command}")


def _print_target(target: dict[str, Any]) -> None:
    print(f"{target['target']} ({target['precision']})")
    latency = [["  limit", milliseconds(target["limit_ms"])], ["  measured", milliseconds(target["measured_ms"])]]
    if target["predicted_ms"] is not None:
        latency[1] = ["  predicted; the device is not at hand", milliseconds(target["predicted_ms"])]
    print_table(latency)
    timed, scored = target["timed"], target["scored"]
    print(
        f"  timed with beam {timed['beam']}, {timed['source_length']} tokens in and {timed['target_length']} out; "
        f"scored with beam {scored['beam']}, where a line of the test set takes {milliseconds(scored['median_ms'])}"
    )
    print()
    baselines = target["baselines"]
    systems = {
        "this model": target["scores"],
        "copy of the most similar training translation": baselines["nearest_translation"],
        "copy of the source": baselines["copy_source"],
    }
    print_table(
        [[f"  {name}", score(scores["bleu"]), score(scores["chrf"])] for name, scores in systems.items()],
        header=[f"  {baselines['sentences']:,} unseen lines", "BLEU", "chrF"],
    )
    print()
    for sample in target["samples"]:
        print(f"  source       {sample['source']}")
        print(f"  reference    {sample['reference']}")
        print(f"  translation  {sample['translation']}\n")
