"""What ``--dry-run`` prints for people: the plan, and what the rehearsal of the trainings found."""

from __future__ import annotations

from typing import Any

from fitformer.cli.output import amount, cost_line, print_table, size
from fitformer.progress import duration

MOST_FILES = 3  # missing ones that are named; --json has all


def print_plan(plan: dict[str, Any]) -> None:
    """Print the stages with their state, missing files, the space, and the rehearsal."""
    print(f"run      {plan['run']}")
    if plan["missing_files"]:
        print(f"missing  {_files(plan['missing_files'])}; fit needs them")
    if "space" in plan:
        print(f"space    {plan['space']['size']:,} architectures")
        print(f"  largest   {plan['space']['largest']}")
        print(f"  smallest  {plan['space']['smallest']}")
    print()
    print_table(
        [[entry["stage"], entry["state"]] for entry in plan["stages"]], header=["stage", "state"], figures=False
    )
    print()
    _print_rehearsal(plan["rehearsal"], is_upper="space" in plan)


def _files(paths: list[str]) -> str:
    more = len(paths) - MOST_FILES
    return ", ".join(paths[:MOST_FILES]) + (f" and {more} more files" if more > 0 else "")


def _print_rehearsal(rehearsal: dict[str, Any], *, is_upper: bool) -> None:
    models = rehearsal["models"]
    if not models:
        print("rehearsal: nothing to train up to that stage")
        return
    lengths, vocab = rehearsal["lengths"], rehearsal["vocab_size"]
    print(
        f"rehearsal: {rehearsal['updates']} updates per model on random tokens; {lengths['source']} source and "
        f"{lengths['target']} target tokens a sentence ({lengths['from']}), vocabulary {vocab['source']:,}/"
        f"{vocab['target']:,} ({vocab['from']}); one batch per update instead of all 'accumulate'"
    )
    for model in models:
        what = "SuperTransformer with" if model["stage"] == "supernet" else "single model"
        print(f"  {model['stage']}: {what} {model['architecture']}")
    print()
    rows = [[title, *(text(model) for model in models)] for title, text in ROWS]
    print_table([[f"  {row[0]}", *row[1:]] for row in rows], header=["", *(model["stage"] for model in models)])
    print()
    for model in models:
        _print_notes(model, is_upper=is_upper)
    if len(models) > 1:
        here = rehearsal["here"]
        print(f"all trainings here:          {cost_line(here) if here else 'not rehearsed'}")
        print(f"all trainings on one GPU:    {cost_line(rehearsal['gpu'])}")
    print(f"the GPU: {rehearsal['gpu_assumed']}")
    print("hours are those of the trainings alone, without validation and the other stages")


def _print_notes(model: dict[str, Any], *, is_upper: bool) -> None:
    stage, tokens = model["stage"], model["rehearsed_tokens"]
    if not tokens:
        print(f"{stage}: not rehearsed, the free memory is not enough; lower its batch_tokens and raise its accumulate")
    elif tokens < model["batch_tokens"]:
        print(
            f"{stage}: rehearsed with {tokens:,} tokens a batch, to save memory or time; what depends on it is scaled"
        )
    if stage == "train" and model["trainings"] > 1:
        print(f"{stage}: {model['trainings']} targets, one training each")
    if model["average_share"] < 1:
        print(
            f"{stage}: an average update makes {model['average_share']:.0%} of the rehearsed Mult-Adds; time is scaled"
        )


def _memory(part: str) -> Any:
    return lambda model: size(model["memory"][part])


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3g} s" if seconds < 60 else duration(seconds)


def _cost(where: str, key: str) -> Any:
    return lambda model: "-" if model[where] is None else amount(model[where][key])


def _price(where: str) -> Any:
    return lambda model: "-" if model[where] is None else f"{amount(model[where]['price'])} {model[where]['currency']}"


ROWS: list[tuple[str, Any]] = [
    ("parameters", lambda model: f"{model['params'] / 1e6:,.2f} M"),
    ("weights", _memory("weights")),
    ("gradients", _memory("gradients")),
    ("optimizer", _memory("optimizer")),
    ("activations and the rest", lambda model: f"{size(model['memory']['activations'])}, {model['memory']['basis']}"),
    ("all memory of the training", _memory("total")),
    ("peak of the whole process", lambda model: size(model["memory"]["process_peak"] or 0)),
    ("device, precision", lambda model: f"{model['device']}, {model['precision']}"),
    ("loss of the updates", lambda model: " ".join(f"{loss:.3f}" for loss in model["losses"]) or "-"),
    ("one batch", lambda model: _time(model["pass_seconds"])),
    ("one optimizer step", lambda model: _time(model["optimizer_seconds"])),
    ("tokens per update", lambda model: f"{model['accumulate']} x {model['batch_tokens']:,}"),
    ("an average update", lambda model: _time(model["seconds_per_update"])),
    ("updates", lambda model: f"{model['updates'] * model['trainings']:,}"),
    ("here: device-hours", _cost("here", "device_hours")),
    ("here: kWh", _cost("here", "kwh")),
    ("here: kg CO2", _cost("here", "co2_kg")),
    ("here: price", _price("here")),
    ("one GPU: device-hours", _cost("gpu", "device_hours")),
    ("one GPU: kWh", _cost("gpu", "kwh")),
    ("one GPU: kg CO2", _cost("gpu", "co2_kg")),
    ("one GPU: price", _price("gpu")),
]
