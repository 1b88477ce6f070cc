"""A linear cost model: milliseconds as a sum of amounts of work, each at a price that cannot be negative.

Chosen by experiment on HAT's released data with 50 samples, as the settings of a real run: non-negative prices beat
ridge regression on every file (no work takes negative time, so little data go a long way and extrapolation stays
sane), relative errors beat absolute ones and logarithms, and Huber weights keep the few samples that a busy device
spoiled from bending the fit. There is nothing to tune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitformer.errors import InputError
from fitformer.latency.features import Floats

HUBER_ROUNDS = 5
HUBER_WIDTH = 1.5  # residuals beyond this many robust standard deviations count less
LEAST_SPREAD = 0.002  # relative; differences of two in a thousand are never taken for outliers


@dataclass(frozen=True)
class CostModel:
    """``ms = constant + sum of price x feature``; prices in milliseconds per unit of the feature."""

    names: tuple[str, ...]
    prices: tuple[float, ...]
    constant: float

    @classmethod
    def fit(cls, names: Sequence[str], table: Floats, times_ms: Floats) -> CostModel:
        """Fit prices to ``table`` [samples, features] and ``times_ms`` [samples], all positive.

        Minimises the Huber loss of predicted / measured - 1 by reweighted non-negative least squares.
        """
        from sklearn.linear_model import LinearRegression  # seconds to import, and a saved model needs none of it

        scale = np.where(table.mean(axis=0) > 0, table.mean(axis=0), 1.0)
        # Every row is divided by its own time, so that each target is 1 and residuals are relative errors.
        rows = np.column_stack([table / scale, np.ones(len(table))]) / times_ms[:, None]
        rows *= (unit := float(np.median(times_ms)))
        target = np.ones(len(table))
        weights = np.ones(len(table))
        solver = LinearRegression(positive=True, fit_intercept=False)
        for _ in range(HUBER_ROUNDS + 1):
            solver.fit(rows, target, sample_weight=weights)
            errors = np.abs(rows @ solver.coef_ - target)
            spread = max(1.4826 * float(np.median(errors)), LEAST_SPREAD)
            weights = 1 / np.maximum(1.0, errors / (HUBER_WIDTH * spread))
        solution = solver.coef_ * unit
        prices = solution[:-1] / scale
        return cls(tuple(names), tuple(map(float, prices)), float(solution[-1]))

    def predict(self, table: Floats) -> Floats:
        """Milliseconds for each row of ``table``: [..., features] -> [...]."""
        result: Floats = table @ np.array(self.prices) + self.constant
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return constant and price per feature, ready for JSON."""
        return {"constant_ms": self.constant, "prices_ms": dict(zip(self.names, self.prices, strict=True))}

    @classmethod
    def from_dict(cls, data: dict[str, Any], names: Sequence[str]) -> CostModel:
        """Read what ``to_dict`` gave.

        Raises:
            InputError: the prices are of other features than ``names``, or not numbers.
        """
        try:
            prices = {str(name): float(price) for name, price in data["prices_ms"].items()}
            constant = float(data["constant_ms"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("a cost model needs constant_ms and prices_ms, a number each") from None
        if tuple(prices) != tuple(names):
            raise InputError(f"prices of other features than this version has ({', '.join(names)})")
        return cls(tuple(prices), tuple(prices.values()), constant)
