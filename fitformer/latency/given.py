"""Predictors that were made elsewhere: reads a file of any kind, and says what is to be known before it is trusted."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any, Protocol

from fitformer.errors import InputError, nearest
from fitformer.latency import mlp_predictor, predictor
from fitformer.latency.mlp_predictor import MlpPredictor
from fitformer.latency.predictor import LatencyPredictor
from fitformer.latency.records import Conditions
from fitformer.rundir import read_json
from fitformer.space import Architecture, SearchSpace

DRAWN = 200  # architectures on which a predictor is tried before a search trusts it


class AnyPredictor(Protocol):
    """What a search needs of a predictor, whatever is behind it."""

    @property
    def conditions(self) -> Conditions | None:
        """What its latencies hold for; ``None`` where its maker did not say."""

    @property
    def device(self) -> dict[str, Any]:
        """Facts of the device."""

    def predict_ms(self, arch: Architecture) -> float:
        """Latency of ``arch`` in milliseconds per batch."""

    def outside_range(self, arch: Architecture) -> list[str]:
        """Names of the features in which ``arch`` leaves what the predictor was fitted to."""

    def save(self, path: Path) -> None:
        """Write the predictor as JSON."""


def load_predictor(path: Path) -> AnyPredictor:
    """Read a predictor of any kind.

    Raises:
        InputError: the file is missing, damaged, no predictor, or of a kind that this version does not know.
    """
    try:
        content = read_json(path)
    except (OSError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind == mlp_predictor.KIND:
        return MlpPredictor.load(path)
    if kind == predictor.KIND:
        return LatencyPredictor.load(path)
    kinds = (predictor.KIND, mlp_predictor.KIND)
    raise InputError(
        f"{path}: not a latency predictor (kind {kind!r}){nearest(str(kind), kinds)}; kinds: {', '.join(kinds)}; a "
        "predictor is made by 'fitformer measure', 'fitformer import hat-latency' or 'fitformer import hat-predictor'"
    )


def try_predictor(given: AnyPredictor, space: SearchSpace, *, seed: int = 0) -> dict[str, Any]:
    """Try a predictor on both ends of a space and on drawn architectures.

    Returns:
        ``largest_ms``, ``smallest_ms``; ``outside``: how many of the drawn ones leave the range that it was fitted to,
        in percent; ``outside_features``: in what.
    Raises:
        InputError: its latencies are not above 0, or the same for all.
    """
    rng = random.Random(f"try/{seed}")
    drawn = [space.smallest(), space.largest(), *(space.sample(rng) for _ in range(DRAWN))]
    latencies = [given.predict_ms(arch) for arch in drawn]
    for arch, latency in zip(drawn, latencies, strict=True):
        if not math.isfinite(latency) or latency <= 0:
            raise InputError(
                f"it predicts {latency:.4g} ms for {arch.to_text()}; it was not made for architectures such as this "
                "space holds"
            )
    if min(latencies) == max(latencies):
        raise InputError(f"it predicts {latencies[0]:.4g} ms for every architecture of this space, so it cannot choose")
    outside = [names for arch in drawn if (names := given.outside_range(arch))]
    return {
        "smallest_ms": latencies[0],
        "largest_ms": latencies[1],
        "outside": 100 * len(outside) / len(drawn),
        "outside_features": sorted({name for names in outside for name in names}),
    }
