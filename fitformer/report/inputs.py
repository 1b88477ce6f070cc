"""A run folder as the report sees it: which stages, devices and targets there are, and the content of their files.

Names of devices and targets are those of the folders. ``schema`` describes the content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitformer.errors import InputError
from fitformer.report.reading import JsonMap, Reader, architecture, items, mapping, objects, real, text
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import energy_file

STAGES = ("prepare", "supernet", "measure", "search", "train", "compress", "export")
TARGET_STAGES = ("search", "train", "compress", "export")
SEARCH_ONLY = ("supernet", "measure", "search")
# A folder without any of these is not a device's or target's (TensorBoard keeps its own beside the log).
_SIGNS = (
    "done.json",
    "started.json",
    "records.csv",
    "history.jsonl",
    "best.json",
    "log.jsonl",
    "decision.json",
    "fitformer.json",
)


@dataclass(frozen=True)
class StageState:
    """One stage, or its part for a device or target: ``state`` is "done", "begun", "not begun" or "not needed"."""

    name: str
    part: str
    state: str
    inputs: JsonMap
    facts: JsonMap
    seconds: float | None = None
    sessions: int = 0
    finished: str | None = None
    record: JsonMap = field(default_factory=dict)  # of time and energy, see ``cost.account.of_stage``

    @property
    def title(self) -> str:
        """``search cpu@50%``."""
        return f"{self.name} {self.part}".strip()


@dataclass(frozen=True)
class DeviceFiles:
    """``measure/<device>/``: the latest record of each architecture, in the order of measurement."""

    name: str
    stage: StageState
    card: JsonMap
    records: tuple[JsonMap, ...]
    predictor: JsonMap
    quality: JsonMap


@dataclass(frozen=True)
class TargetFiles:
    """What search, train, compress and export left for one target."""

    name: str
    stages: dict[str, StageState]
    best: JsonMap
    history: tuple[JsonMap, ...]
    front: tuple[JsonMap, ...]
    finalists: tuple[JsonMap, ...]
    log: tuple[JsonMap, ...]
    model: JsonMap
    decision: JsonMap
    bundle: JsonMap
    bundle_bytes: float | None
    bundle_path: str

    @property
    def device(self) -> str:
        """``cpu`` of ``cpu@50%``."""
        return self.name.partition("@")[0]

    @property
    def architecture(self) -> Architecture | None:
        """The found (or given) architecture, from the latest stage that states it."""
        for files in (self.bundle, self.model, self.best):
            found = architecture(files.get("architecture"))
            if found is not None:
                return found
        return None

    @property
    def not_measured(self) -> str | None:
        """Why the latency on the device is a predicted one, where it is."""
        return text(self.best, "not_measured") or text(self.bundle, "predicted_latency", "not_measured")

    @property
    def limit_ms(self) -> float | None:
        """The limit in milliseconds, where there is one."""
        places: tuple[tuple[Any, ...], ...] = (("latency", 0, "limit_ms"), ("predicted_latency", "limit_ms"))
        found = (real(self.bundle, *place) for place in places)
        return real(self.best, "limit_ms") or next((limit for limit in found if limit is not None), None)

    @property
    def search_limit_ms(self) -> float | None:
        """What the search allowed: the limit less the recipe's margin."""
        margin = real(self.stages["search"].inputs, "search", "margin") or 0.0
        return None if self.limit_ms is None else self.limit_ms * (1 - margin)

    @property
    def facts(self) -> JsonMap:
        """What export recorded beside the bundle."""
        return self.stages["export"].facts

    @property
    def scores(self) -> JsonMap:
        """Scores of the bundle with their ``split``."""
        by_split = mapping(self.bundle, "scores")
        split = next(iter(by_split), None)
        return (
            {"split": split, **mapping(self.facts, "scores"), **mapping(by_split, split)} if split is not None else {}
        )

    @property
    def precision(self) -> str | None:
        """``fp32`` or ``int8``: what the bundle holds or is going to."""
        return text(self.bundle, "precision") or text(self.decision, "kept")

    def latency_ms(self, precision: str) -> float | None:
        """Measured latency of the final model: the bundle's own, else the one compress measured."""
        for record in objects(self.bundle, "latency"):
            if (text(record, "precision") or text(self.bundle, "precision")) == precision:
                return real(record, "latency_ms")
        return real(self.decision, f"{precision}_ms")

    @property
    def shipped_ms(self) -> float | None:
        """Latency of what the bundle holds; before that, of the architecture when search measured it.

        For a device that is not at hand, what was predicted.
        """
        if self.not_measured:
            return real(self.bundle, "predicted_latency", "predicted_ms") or real(self.best, "predicted_ms")
        latency = self.latency_ms(self.precision) if self.precision else None
        return latency if latency is not None else real(self.best, "measured_ms")


@dataclass(frozen=True)
class RunFiles:
    """All of a run folder that the report shows."""

    path: Path
    recipe: JsonMap
    recipe_text: str
    stats: JsonMap
    supernet_log: tuple[JsonMap, ...]
    supernet_model: JsonMap
    devices: tuple[DeviceFiles, ...]
    targets: tuple[TargetFiles, ...]
    stages: tuple[StageState, ...]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """The recipe's name, or the folder's."""
        return text(self.recipe, "name") or self.path.name

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target language as the recipe calls them."""
        source, target = text(self.stats, "source_language"), text(self.stats, "target_language")
        return (source, target) if source and target else None

    @property
    def space(self) -> SearchSpace | None:
        """The search space, where there is one."""
        try:
            return SearchSpace.from_dict(dict(mapping(self.supernet_model, "space")))
        except (InputError, TypeError):
            return None

    def device(self, name: str) -> DeviceFiles | None:
        """The measurements of a device."""
        return next((device for device in self.devices if device.name == name), None)

    def largest_ms(self, device: str) -> float | None:
        """Measured latency of the space's largest architecture on a device."""
        found = self.device(device)
        return real(found.stage.facts, "largest_ms") if found is not None else None


def read_run(run: Path) -> RunFiles:
    """Read whatever there is.

    Raises:
        InputError: the folder does not exist or holds no stage of a run.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such run folder")
    run = run.resolve()  # so that it has a name even as "."
    reader = Reader(run)
    if not any((run / stage).is_dir() for stage in STAGES):
        raise InputError(f"{run}: not a run folder (it holds none of {', '.join(STAGES)})")
    recipe_text = "\n".join(reader.lines("recipe.yaml"))
    recipe = _recipe(reader, recipe_text)
    targets = tuple(_target(reader, name) for name in _names(reader, TARGET_STAGES))
    devices = tuple(_device(reader, name) for name in _names(reader, ["measure"]))
    return RunFiles(
        path=run,
        recipe=recipe,
        recipe_text=recipe_text,
        stats=reader.json_map("prepare", "stats.json"),
        supernet_log=reader.json_lines("supernet", "log.jsonl"),
        supernet_model=reader.json_map("supernet", "model.json"),
        devices=devices,
        targets=targets,
        stages=tuple(_stages(reader, devices, targets, fixed=bool(recipe.get("architecture") or recipe.get("bundle")))),
        problems=tuple(reader.problems),
    )


def _names(reader: Reader, stages: Iterable[str]) -> list[str]:
    """Devices or targets that have a folder in one of the stages."""
    return sorted(
        {part for stage in stages for part in reader.folders(stage) if _has_signs(reader.root / stage / part)}
    )


def _has_signs(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SIGNS)


def _recipe(reader: Reader, content: str) -> JsonMap:
    import yaml  # only the recipes' side of fitformer installs it

    try:
        recipe = yaml.safe_load(content)
    except yaml.YAMLError:
        reader.problems.append("recipe.yaml: not a YAML file")
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _stage(reader: Reader, name: str, part: str = "") -> StageState:
    done, started = reader.json_map(name, part, "done.json"), reader.json_map(name, part, "started.json")
    record, state = (done, "done") if done else (started, "begun" if started else "not begun")
    return StageState(
        name,
        part,
        state,
        inputs=mapping(record, "inputs"),
        facts=mapping(record, "facts"),
        seconds=real(record, "seconds"),
        sessions=len(items(record, "sessions")),
        finished=text(record, "finished"),
        record=done or {"energy": reader.json_map(energy_file(Path(), name, part).name)},
    )


def _stages(
    reader: Reader, devices: tuple[DeviceFiles, ...], targets: tuple[TargetFiles, ...], *, fixed: bool
) -> Iterable[StageState]:
    for name in STAGES:
        states = [_stage(reader, name)]
        if name == "measure":
            states = [device.stage for device in devices] or states
        elif name in TARGET_STAGES:
            states = [target.stages[name] for target in targets] or states
        for state in states:
            skipped = fixed and name in SEARCH_ONLY and state.state == "not begun"
            yield StageState(name, state.part, "not needed", {}, {}) if skipped else state


def _device(reader: Reader, name: str) -> DeviceFiles:
    folder = ("measure", name)
    latest = {text(row, "architecture"): row for row in reader.csv_rows(*folder, "records.csv")}
    records = sorted(latest.values(), key=lambda row: real(row, "index") or 0.0)
    predictor = reader.json_map(*folder, "predictor.json")
    return DeviceFiles(
        name,
        _stage(reader, *folder),
        reader.json_map(*folder, "device.json") or mapping(predictor, "device"),
        tuple(records),
        predictor,
        reader.json_map(*folder, "quality.json"),
    )


def _target(reader: Reader, name: str) -> TargetFiles:
    bundle = reader.json_map("export", name, "fitformer.json")
    return TargetFiles(
        name,
        {stage: _stage(reader, stage, name) for stage in TARGET_STAGES},
        best=reader.json_map("search", name, "best.json"),
        history=reader.json_lines("search", name, "history.jsonl"),
        front=tuple(objects(reader.json("search", name, "front.json"))),
        finalists=tuple(objects(reader.json("search", name, "candidates.json"))),
        log=reader.json_lines("train", name, "log.jsonl"),
        model=reader.json_map("train", name, "model.json"),
        decision=reader.json_map("compress", name, "decision.json"),
        bundle=bundle,
        bundle_bytes=_bundle_bytes(reader.root / "export" / name, bundle),
        bundle_path=f"{reader.root.name}/export/{name}" if bundle else "",
    )


def _bundle_bytes(folder: Path, bundle: JsonMap) -> float | None:
    """Size on disk of the files that the bundle lists (nothing else of the folder needs to be copied)."""
    names: list[Any] = [*mapping(bundle, "files"), "fitformer.json"]
    paths = [folder / name for name in names if Path(str(name)).name == name]
    found = [path.stat().st_size for path in paths if path.is_file()]
    return float(sum(found)) if bundle and len(found) == len(names) else None
