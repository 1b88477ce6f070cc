"""How far a latency predictor can be trusted: cross-validation, and the refusal of one that knows nothing.

A predictor fitted to noise still gives numbers, and a search on them still names a "best" architecture. It has
happened: 12 published data sets in which the sampled architecture never reached the timed graph, |correlation| with
depth <= 0.06.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitformer.errors import InputError, NotPossibleError
from fitformer.latency.cost_model import CostModel
from fitformer.latency.features import Floats
from fitformer.latency.predictor import LatencyPredictor, table_of
from fitformer.latency.records import LatencyRecord

LEAST_SAMPLES = 5
LEAVE_ONE_OUT_UP_TO = 100  # samples; above, ten folds
LEAST_GAIN = 0.1  # share by which the error must be below that of one number for all architectures
MOST_CHANCE = 0.01  # probability of the rank correlation under pure noise; shuffled real data never passed both

Predict = Callable[[Floats, Floats, Floats, Floats], Floats]


@dataclass(frozen=True)
class Quality:
    """Figures of held-out predictions.

    Attributes:
        num_samples: number of architectures, each predicted by a fit that did not see it.
        mape: mean of |predicted / measured - 1| in percent.
        rmse_ms: root of the mean squared error in milliseconds.
        r2: share of the variance of the measured latencies that is explained.
        r2_within_depth: the same among architectures of equal decoder depth (depth alone makes every predictor look
            excellent); None where no two samples share a depth.
        kendall_tau, spearman: rank correlations.
        chance: probability of a Kendall tau this high if latencies had nothing to do with the predictions.
        within_5, within_10: percent of the predictions that are off by at most 5 and 10 %.
        baseline_mape: error of the best single number for all architectures ("predicting the mean"), in percent.
        measured_ms, predicted_ms: the pairs behind all this, for a plot.
    """

    num_samples: int
    mape: float
    rmse_ms: float
    r2: float
    r2_within_depth: float | None
    kendall_tau: float
    spearman: float
    chance: float
    within_5: float
    within_10: float
    baseline_mape: float
    measured_ms: tuple[float, ...]
    predicted_ms: tuple[float, ...]

    def summary(self) -> str:
        """One line for people."""
        return (
            f"error {self.mape:.2g} % (one number for all: {self.baseline_mape:.2g} %), rank correlation "
            f"{self.kendall_tau:.2f}, {self.within_5:.0f} % within 5 %, over {self.num_samples} held-out architectures"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        return asdict(self) | {"measured_ms": list(self.measured_ms), "predicted_ms": list(self.predicted_ms)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Quality:
        """Read what ``to_dict`` gave.

        Raises:
            InputError: a figure is missing.
        """
        try:
            values = {field.name: data[field.name] for field in fields(cls)}
        except KeyError as error:
            raise InputError(f"predictor quality: {error} is missing") from None
        return cls(**values | {name: tuple(values[name]) for name in ("measured_ms", "predicted_ms")})


def cross_validate(records: Sequence[LatencyRecord], *, seed: int = 0) -> Quality:
    """Predict every record by a predictor fitted to the others: one left out at a time, ten folds above 100 records.

    Raises:
        NotPossibleError: fewer than five records.
    """
    return cross_validate_features(
        table_of([record.arch for record in records]),
        np.array([record.encoder_ms for record in records]),
        np.array([record.decoder_ms for record in records]),
        np.array([record.arch.decoder_num_layers for record in records]),
        seed=seed,
    )


def cross_validate_features(
    table: Floats,
    encoder_ms: Floats,
    decoder_ms: Floats,
    depths: NDArray[np.int64],
    *,
    predict: Predict | None = None,
    seed: int = 0,
) -> Quality:
    """As ``cross_validate``, on totals [samples, features]; ``predict`` may bring another model to compare.

    Args:
        depths: number of decoder layers of each sample.
        predict: (training table, encoder_ms, decoder_ms, table) -> latencies of ``table`` in milliseconds.
    """
    count = len(table)
    if count < LEAST_SAMPLES:
        raise NotPossibleError(
            f"{count} measured architectures are too few to judge a latency predictor; measure at least {LEAST_SAMPLES}"
        )
    predicted, baseline = np.empty(count), np.empty(count)
    for held_out in _folds(count, seed):
        train = np.setdiff1d(np.arange(count), held_out)
        predicted[held_out] = (predict or _default)(table[train], encoder_ms[train], decoder_ms[train], table[held_out])
        # The fairest single number: the one that the same robust relative loss would choose.
        total = encoder_ms[train] + decoder_ms[train]
        baseline[held_out] = CostModel.fit((), np.empty((len(train), 0)), total).constant
    return quality_of(encoder_ms + decoder_ms, predicted, depths, baseline)


def quality_of(measured: Floats, predicted: Floats, depths: NDArray[np.int64], baseline: Floats) -> Quality:
    """Compare predictions with measurements, all in milliseconds, shape [samples]."""
    from scipy.stats import kendalltau, spearmanr

    errors = np.abs(predicted / measured - 1)
    residual = float(np.sum((measured - predicted) ** 2))
    within = sum(float(np.sum((measured[depths == d] - measured[depths == d].mean()) ** 2)) for d in np.unique(depths))
    varied = np.ptp(measured) > 0 and np.ptp(predicted) > 0
    tau = kendalltau(measured, predicted, alternative="greater") if varied else None
    return Quality(
        num_samples=len(measured),
        mape=100 * float(errors.mean()),
        rmse_ms=float(np.sqrt(residual / len(measured))),
        r2=_explained(residual, float(np.sum((measured - measured.mean()) ** 2))) or 0.0,
        r2_within_depth=_explained(residual, within),
        kendall_tau=float(tau.statistic) if tau else 0.0,
        spearman=float(spearmanr(measured, predicted).statistic) if varied else 0.0,
        chance=float(tau.pvalue) if tau else 1.0,
        within_5=100 * float(np.mean(errors <= 0.05)),
        within_10=100 * float(np.mean(errors <= 0.10)),
        baseline_mape=100 * float(np.mean(np.abs(baseline / measured - 1))),
        measured_ms=tuple(measured.tolist()),
        predicted_ms=tuple(predicted.tolist()),
    )


def check_useful(quality: Quality) -> None:
    """Refuse a predictor that is no better than one number for all architectures.

    Raises:
        NotPossibleError: with the figures and what is most likely wrong.
    """
    if quality.mape <= (1 - LEAST_GAIN) * quality.baseline_mape and quality.chance <= MOST_CHANCE:
        return
    raise NotPossibleError(
        "the latency predictor is no better than predicting the mean, or looks better by luck: "
        f"error {quality.mape:.2g} % against {quality.baseline_mape:.2g} %, rank correlation "
        f"{quality.kendall_tau:.2f} over {quality.num_samples} held-out architectures (by chance alone: "
        f"{100 * quality.chance:.2g} %, allowed {100 * MOST_CHANCE:g} %). The measured times hardly depend on the "
        "architecture: the device is too noisy (close other programs, raise measure.repeats), too few were measured "
        "(raise measure.architectures), or the space holds nothing that costs time. Once that is changed, run again "
        "with --rerun measure"
    )


def _default(table: Floats, encoder_ms: Floats, decoder_ms: Floats, held_out: Floats) -> Floats:
    return LatencyPredictor.fit_features(table, encoder_ms, decoder_ms).predict_features(held_out)


def _folds(count: int, seed: int) -> list[NDArray[np.int64]]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return [np.sort(part) for part in np.array_split(order, count if count <= LEAVE_ONE_OUT_UP_TO else 10)]


def _explained(residual: float, variance: float) -> float | None:
    return 1 - residual / variance if variance > 0 else None
