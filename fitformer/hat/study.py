"""Compares latency predictors on one of HAT's data sets: HAT's own network, and fitformer's linear cost model.

Rows are split as HAT's code does, with a seed where HAT has none: shuffled with Python's ``random``, the first 80 % to
train, 10 % to validate (which neither predictor uses), the rest to test. Every figure is a mean over the splits.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fitformer.errors import InputError, NotPossibleError
from fitformer.hat.latency_data import HatLatencyData
from fitformer.hat.mlp import MlpSettings, train_mlp
from fitformer.hat.slow_blocks import Flags
from fitformer.latency.cost_model import CostModel
from fitformer.latency.features import Floats
from fitformer.latency.predictor import LatencyPredictor
from fitformer.latency.quality import Quality, quality_of
from fitformer.progress import Progress
from fitformer.rundir import read_json, write_json

FIGURES = ("mape", "rmse_ms", "r2", "r2_within_depth", "kendall_tau", "within_5", "within_10")
LEAST_ROWS = 50
# The paper argues for three layers. The higher learning rates ask whether the published optimisation comes to its end.
FEW = 50  # rows of a real run's measuring: what the default predictor has to do with
ABLATION: dict[str, dict[str, Any]] = {
    "1 layer": {"hidden_layers": 1},
    "3 layers": {"hidden_layers": 3},
    "5 layers": {"hidden_layers": 5},
    "1 layer, learning rate 1e-3": {"hidden_layers": 1, "learning_rate": 1e-3},
    "3 layers, learning rate 1e-4": {"hidden_layers": 3, "learning_rate": 1e-4},
}
TRAININGS = "trainings.json"

Figures = dict[str, float | None]


@dataclass(frozen=True)
class StudySettings:
    """What is compared.

    Attributes:
        splits: seeded splits, seeds 0 and up.
        mlp: settings of HAT's network; ``None`` leaves it out.
        ablation_splits: splits on which the variants of ``ABLATION`` are compared, on the clean rows.
        lat_norm_ms: divisor of the network's target.
        threads: processor threads of its training.
    """

    splits: int = 10
    mlp: MlpSettings | None = field(default_factory=MlpSettings)
    ablation_splits: int = 0
    lat_norm_ms: float = 200.0
    threads: int = 1


@dataclass(frozen=True)
class Split:
    """Numbers of the rows to train, validate and test on."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]


def split_rows(count: int, seed: int) -> Split:
    """Split ``count`` rows as HAT's code does: floor of 80 %, floor of 10 %, and the rest."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    train, valid = int(0.8 * count), int(0.1 * count)
    parts = order[:train], order[train : train + valid], order[train + valid :]
    return Split(*(np.array(part, dtype=np.int64) for part in parts))


def study(
    data: HatLatencyData,
    slow: Flags,
    settings: StudySettings,
    *,
    folder: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Compare the predictors on all rows and without the slow ones.

    Args:
        slow: flags the rows that are left out as ``clean``.
        folder: keeps the figures of every finished training, so that a killed study goes on where it was.
    Returns:
        ``splits``; ``rows.all`` and ``rows.clean``, each with ``rows``, ``default``, ``default_50`` (fitted to 50 of
        the rows that ``default`` has) and ``mlp`` (absent without one); ``ablation`` by variant, ``default`` among
        them, if asked for.
    Raises:
        NotPossibleError: too few rows to split.
    """
    subsets = {"all": data, "clean": data.rows(~slow)}
    for name, rows in subsets.items():
        if len(rows) < LEAST_ROWS:
            raise NotPossibleError(f"{len(rows)} rows ({name}) are too few to compare predictors; give {LEAST_ROWS}")
    networks = _Networks(settings, folder)
    wanted = networks.wanted(subsets)
    with Progress("train HAT's networks", len(wanted) * networks.steps, unit="step", quiet=quiet or not wanted) as bar:
        networks.train(wanted, bar)
    result: dict[str, Any] = {"splits": settings.splits, "mlp_settings": None, "rows": {}}
    for name, rows in subsets.items():
        entry: dict[str, Any] = {"rows": len(rows)}
        for title, most in (("default", None), (f"default_{FEW}", FEW)):
            entry[title] = mean([default_figures(rows, seed, most=most) for seed in range(settings.splits)])
        if settings.mlp is not None:
            result["mlp_settings"] = settings.mlp.to_dict() | {"lat_norm_ms": settings.lat_norm_ms}
            entry["mlp"] = networks.mean(rows, settings.mlp, settings.splits)
        result["rows"][name] = entry
    if settings.mlp is not None and settings.ablation_splits:
        result["ablation_splits"] = settings.ablation_splits
        result["ablation"] = {
            name: networks.mean(subsets["clean"], replace(settings.mlp, **changes), settings.ablation_splits)
            for name, changes in ABLATION.items()
        }
        defaults = [default_figures(subsets["clean"], seed) for seed in range(settings.ablation_splits)]
        result["ablation"]["default"] = mean(defaults)
    return result


def default_figures(data: HatLatencyData, seed: int, *, most: int | None = None) -> Figures:
    """Figures of fitformer's predictor on the test part of one split, fitted to at most ``most`` rows."""
    train, test = _parts(data, seed)
    train = train.rows(np.arange(len(train))[:most])
    predictor = LatencyPredictor.fit_features(train.totals, train.encoder_ms, train.decoder_ms)
    return _figures(train, test, predictor.predict_features(test.totals))


def mlp_figures(
    data: HatLatencyData,
    seed: int,
    settings: MlpSettings,
    *,
    lat_norm_ms: float,
    on_steps: Callable[[int], None] = lambda steps: None,
) -> Figures:
    """Figures of HAT's network on the test part of one split."""
    train, test = _parts(data, seed)
    network = train_mlp(
        train.averages, train.latency_ms, lat_norm_ms=lat_norm_ms, settings=settings, seed=seed, on_steps=on_steps
    )
    return _figures(train, test, network.predict_averages(test.averages))


def mean(figures: Sequence[Figures]) -> Figures:
    """Mean of each figure over the splits that have it."""
    values = {name: [f[name] for f in figures if f[name] is not None] for name in FIGURES}
    return {name: float(np.mean(np.array(found))) if found else None for name, found in values.items()}


def _parts(data: HatLatencyData, seed: int) -> tuple[HatLatencyData, HatLatencyData]:
    split = split_rows(len(data), seed)
    return data.rows(split.train), data.rows(split.test)


def _figures(train: HatLatencyData, test: HatLatencyData, predicted: Floats) -> Figures:
    constant = CostModel.fit((), np.empty((len(train), 0)), train.latency_ms).constant
    quality: Quality = quality_of(test.latency_ms, predicted, test.depths, np.full(len(test), constant))
    return {name: getattr(quality, name) for name in FIGURES}


Training = tuple[str, HatLatencyData, MlpSettings, int]  # key, rows, settings, seed


class _Networks:
    """The trainings of a study; each is made once, even if two parts of the study or two sessions ask for it."""

    def __init__(self, settings: StudySettings, folder: Path | None) -> None:
        self.settings, self.path = settings, folder / TRAININGS if folder else None
        self._known: dict[str, Figures] = {}
        if self.path is not None and self.path.exists():
            self._known = _read_trainings(self.path)

    @property
    def steps(self) -> int:
        return self.settings.mlp.steps if self.settings.mlp else 0

    def wanted(self, subsets: dict[str, HatLatencyData]) -> list[Training]:
        """Trainings that the study asks for and nobody has made yet."""
        mlp, found = self.settings.mlp, {}
        if mlp is None:
            return []
        asked = [(rows, mlp, seed) for rows in subsets.values() for seed in range(self.settings.splits)]
        for changes in ABLATION.values():
            variant = replace(mlp, **changes)
            asked += [(subsets["clean"], variant, seed) for seed in range(self.settings.ablation_splits)]
        for rows, settings, seed in asked:
            key = self._key(rows, settings, seed)
            if key not in self._known:
                found[key] = (key, rows, settings, seed)
        return list(found.values())

    def train(self, wanted: Sequence[Training], bar: Progress) -> None:
        torch.set_num_threads(self.settings.threads)
        for number, (key, rows, settings, seed) in enumerate(wanted):
            before = number * self.steps
            self._known[key] = mlp_figures(
                rows,
                seed,
                settings,
                lat_norm_ms=self.settings.lat_norm_ms,
                on_steps=lambda steps, before=before: bar.update(before + steps),  # type: ignore[misc]
            )
            if self.path is not None:
                write_json(self.path, self._known)

    def mean(self, rows: HatLatencyData, settings: MlpSettings, splits: int) -> Figures:
        return mean([self._known[self._key(rows, settings, seed)] for seed in range(splits)])

    def _key(self, rows: HatLatencyData, settings: MlpSettings, seed: int) -> str:
        digest = hashlib.sha256(json.dumps([settings.to_dict(), self.settings.lat_norm_ms, seed]).encode())
        digest.update(rows.averages.tobytes())
        digest.update(rows.latency_ms.tobytes())
        return digest.hexdigest()[:16]


def _read_trainings(path: Path) -> dict[str, Figures]:
    content = read_json(path)
    good = isinstance(content, dict) and all(
        isinstance(figures, dict) and set(figures) == set(FIGURES) for figures in content.values()
    )
    if not good:
        raise InputError(f"{path}: not the figures of finished trainings; move the file away to train again")
    return {str(key): dict(figures) for key, figures in content.items()}
