"""``fitformer status``: what of a run is done, how long it took, what it takes on the disk and what may go."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import amount, cost_line, print_json, print_table, size
from fitformer.cost.account import Cost, Rates, basis_line, of_stage, rates_line, total
from fitformer.errors import InputError, nearest
from fitformer.progress import duration
from fitformer.rundir import read_json
from fitformer.stages import DONE, STAGES, STARTED, record_of

BUNDLE_FACTS, REPORT, TRAINING_LOG = "fitformer.json", "report/index.html", "log.jsonl"
RESUME_FILES = ("state.safetensors", "snapshot-*.safetensors")
LEFTOVERS = (".*.tmp", ".*.unchecked")
TO_DO, BEGUN, FINISHED, SKIPPED = "to do", "begun", "done", "skipped"
ONLY_TO_SEARCH = ("supernet", "measure", "search")
KEEP = ("export", "report")
TAUGHT = "distillation"  # the training text as a teacher translated it
OTHER_MODELS = {"teacher": "teacher", "began_with": "bundle trained on"}  # facts of train, and what they are


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, for example runs/demo.")],
    as_json: options.AsJson = False,
) -> None:
    """Show what of a run is done, the time and disk space of each stage, and what can be deleted."""
    _check(run)
    stages = [_facts(run, stage, part) for stage in STAGES for part in _parts(run / stage)]
    if any(stage["stage"] == "train" and stage["state"] != TO_DO for stage in stages):
        for stage in stages:  # a recipe with a fixed architecture
            if stage["stage"] in ONLY_TO_SEARCH and stage["state"] == TO_DO:
                stage["state"] = SKIPPED
    rates = _rates(run)
    costs: list[Cost] = [of_stage(record_of(run, stage["stage"], stage["part"]), rates) for stage in stages]
    for stage, cost in zip(stages, costs, strict=True):
        stage["cost"] = cost.to_dict()
    together = total(costs, rates)
    report = run / REPORT
    document = {
        "run": run,
        "stages": stages,
        "cost": {
            **together.to_dict(),
            "basis_line": basis_line(together, rates),
            "rates_line": rates_line(rates),
        },
        "seconds": round(sum(stage["seconds"] or 0 for stage in stages), 1),
        "bytes": _bytes(run),
        "other_models": _other_models(run, stages),
        "bundles": [str(path.parent) for path in sorted(run.glob(f"export/[!.]*/{BUNDLE_FACTS}"))],
        "report": report if report.exists() else None,
        "deletable": _deletable(run, stages),
    }
    if as_json:
        print_json(document)
    else:
        _print(document)


def _check(run: Path) -> None:
    if not run.exists():
        parent = run.parent
        names = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        raise InputError(f"{run}: no such run{nearest(run.name, names)}; it is the folder given to --run or runs/NAME")
    if not run.is_dir():
        raise InputError(f"{run}: is a file; give the folder of a run, for example runs/NAME")
    if not (run / "recipe.yaml").exists() and not any(_parts(run / stage) != [""] for stage in STAGES):
        begun = [stage for stage in STAGES if _record(run / stage)]
        if not begun:
            raise InputError(f"{run}: not the folder of a run: it holds neither a recipe.yaml nor a stage")


def _rates(run: Path) -> Rates:
    """The rates of the run's recipe; the defaults where it cannot be read, or where no YAML is installed."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import yaml

        try:
            recipe = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
        except yaml.YAMLError:
            return Rates()
        return Rates.from_settings(recipe.get("cost") if isinstance(recipe, dict) else None)
    return Rates()


def _parts(folder: Path) -> list[str]:
    """Names of a stage's parts (devices or targets); one empty name for a stage that has none, or none yet."""
    if not folder.is_dir() or _record(folder):
        return [""]
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and _record(entry)) or [""]


def _record(folder: Path) -> Path | None:
    return next((path for path in (folder / DONE, folder / STARTED) if path.exists()), None)


def _facts(run: Path, stage: str, part: str) -> dict[str, Any]:
    folder = run / stage / part
    record = _record(folder)
    done = read_json(record) if record is not None and record.name == DONE else {}
    return {
        "stage": stage,
        "part": part,
        "state": _state(run, stage, record),
        "update": _last_update(folder / TRAINING_LOG) if record is not None and not done else None,
        "seconds": done.get("seconds"),
        "finished": done.get("finished"),
        "bytes": _bytes(folder),
    }


def _state(run: Path, stage: str, record: Path | None) -> str:
    if stage == "report":  # written anew each time, so it keeps no record
        return FINISHED if (run / REPORT).exists() else TO_DO
    return TO_DO if record is None else FINISHED if record.name == DONE else BEGUN


def _last_update(log: Path) -> int | None:
    """How far a training that is not finished has come."""
    if not log.exists():
        return None
    last = None
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):  # a kill may leave half a line
            entry = json.loads(line)
            last = entry.get("update", last) if isinstance(entry, dict) else last
    return last


def _other_models(run: Path, stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The teacher and the bundle that the finished trainings had to do with."""
    found = []
    for stage in stages:
        if stage["stage"] == "train" and stage["state"] == FINISHED:
            facts = read_json(run / "train" / stage["part"] / DONE).get("facts", {})
            for key, role in OTHER_MODELS.items():
                if isinstance(model := facts.get(key), dict):
                    known = {name: model.get(name) for name in ("name", "folder", "identity")}
                    found.append({"part": stage["part"], "role": role, **known, "note": _note(key, facts)})
    return found


def _note(key: str, facts: dict[str, Any]) -> str:
    if key == "began_with":
        return "its 8-bit weights made float again" if facts[key].get("dequantised") else "its own weights"
    taught = facts.get("distillation", {})
    lines, used = taught.get("lines"), taught.get("translated")
    beside = ", beside those of the text" if taught.get("targets") == "beside" else ""
    return f"{used} of {lines} lines learned in its translation{beside}" if lines else ""


def _deletable(run: Path, stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What may go, and why; everything that is left out is still needed."""
    leftovers = sorted(path for pattern in LEFTOVERS for path in run.rglob(pattern))
    found = [(path, "left over from a killed process, unless one is at work now") for path in leftovers]
    for stage in stages:
        if stage["state"] == FINISHED:
            folder = run / stage["stage"] / stage["part"]
            found += [(path, "was there to continue a stage that is finished") for path in _resume_files(folder)]
    trained = {stage["state"] for stage in stages if stage["stage"] == "train"}
    if trained == {FINISHED} and (run / TAUGHT).is_dir():
        found.append((run / TAUGHT, "a teacher's translations, needed only to train again or to another limit"))
    # Only when nothing is left to do is all but the result there for further work alone.
    states = {stage["state"] for stage in stages if stage["stage"] in KEEP}
    if states == {FINISHED} and not any(stage["state"] == BEGUN for stage in stages):
        names = [name for name in STAGES if name not in KEEP and (run / name).is_dir()]
        found += [(run / name, "needed only to fit again, for example to another limit") for name in names]
    return [{"path": path, "bytes": _bytes(path), "why": why} for path, why in found]


def _resume_files(folder: Path) -> Iterator[Path]:
    for pattern in RESUME_FILES:
        yield from sorted(folder.glob(pattern))


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        try:
            total += file.lstat().st_size if not file.is_dir() else 0
        except FileNotFoundError:  # a run at work replaces files all the time
            continue
    return total


def _cost_cells(cost: dict[str, Any]) -> list[str]:
    names = ("device_hours", "kwh", "co2_kg", "price")
    return [amount(cost[name]) if cost["device_hours"] else "-" for name in names]


def _print(document: dict[str, Any]) -> None:
    rows = []
    for stage in document["stages"]:
        seconds = stage["seconds"]
        time = "-" if seconds is None else duration(seconds)
        title = f"{stage['stage']} {stage['part']}".strip()
        state = stage["state"] + (f", update {stage['update']:,}" if stage["update"] is not None else "")
        disk = size(stage["bytes"]) if stage["bytes"] else "-"
        rows.append([title, state, time, disk, *_cost_cells(stage["cost"])])
    cost = document["cost"]
    rows.append(["all", "", duration(document["seconds"]), size(document["bytes"]), *_cost_cells(cost)])
    header = ["stage", "state", "time", "size", "device-hours", "kWh", "kg CO2", cost["currency"]]
    print_table(rows, header=header)
    print(f"cost    {cost_line(cost)}")
    print(f"        {cost['basis_line']}")
    print(f"        {cost['rates_line']}")
    for model in document["other_models"]:
        print(f"model   train {model['part']}: {model['role']} {model['name']} ({model['folder']}), {model['note']}")
    for bundle in document["bundles"]:
        print(f"bundle  {bundle}")
    if document["report"]:
        print(f"report  {document['report']}")
    if document["deletable"]:
        print("\ncan be deleted:")
        print_table(
            [[entry["path"], size(entry["bytes"]), entry["why"]] for entry in document["deletable"]], figures=False
        )
