"""The latency predictor: from an architecture to milliseconds on one device, without running anything.

Encoder and decode loop are predicted apart, each by a linear cost model. The file it is saved to holds all it needs
to be used alone: features, prices, unit, device, conditions, exporter version and the samples it was fitted to.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fitformer.errors import InputError
from fitformer.latency.cost_model import CostModel
from fitformer.latency.features import DECODER_FEATURES, ENCODER_FEATURES, FEATURE_NAMES, Floats, features
from fitformer.latency.records import Conditions, LatencyRecord
from fitformer.rundir import read_json, write_json
from fitformer.space import Architecture

FORMAT_VERSION = 1
KIND = "linear cost model"
_ENCODER_COLUMNS = [FEATURE_NAMES.index(name) for name in ENCODER_FEATURES]
_DECODER_COLUMNS = [FEATURE_NAMES.index(name) for name in DECODER_FEATURES]


@dataclass(frozen=True)
class Sample:
    """One measured architecture as the predictor remembers it; times in milliseconds."""

    architecture: Architecture
    encoder_ms: float
    decoder_ms: float


@dataclass(frozen=True)
class LatencyPredictor:
    """Two cost models and the facts they hold for.

    Attributes:
        encoder, decoder: milliseconds of the two parts.
        lowest, highest: range of every feature among the samples, in the order of ``FEATURE_NAMES``.
        calibration: factor on the sum, from the latest measurements given to ``update``.
        num_samples: number of measurements it was fitted to.
        samples: those measurements; empty if it was fitted to bare features.
        conditions: batch size, lengths, threads and exporter version of the measurements.
        device: the device card.
    """

    encoder: CostModel
    decoder: CostModel
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    calibration: float = 1.0
    num_samples: int = 0
    samples: tuple[Sample, ...] = ()
    conditions: Conditions | None = None
    device: dict[str, Any] = field(default_factory=dict)

    # -- fitting ------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, records: Sequence[LatencyRecord], *, device: dict[str, Any] | None = None) -> LatencyPredictor:
        """Fit to records of one device under the same conditions.

        Raises:
            InputError: no records, or records of different conditions.
        """
        if not records:
            raise InputError("latency predictor: there is no measurement to fit it to")
        if len({record.conditions for record in records}) > 1:
            raise InputError("latency predictor: the records were taken under different conditions")
        fitted = _fit_samples([_sample(record) for record in records])
        return replace(fitted, conditions=records[0].conditions, device=device or {})

    @classmethod
    def fit_features(cls, table: Floats, encoder_ms: Floats, decoder_ms: Floats) -> LatencyPredictor:
        """Fit to bare totals, ``table`` [samples, features] in the order of ``FEATURE_NAMES``."""
        return cls(
            CostModel.fit(ENCODER_FEATURES, table[:, _ENCODER_COLUMNS], encoder_ms),
            CostModel.fit(DECODER_FEATURES, table[:, _DECODER_COLUMNS], decoder_ms),
            tuple(table.min(axis=0).tolist()),
            tuple(table.max(axis=0).tolist()),
            num_samples=len(table),
        )

    def for_device(self, device: dict[str, Any]) -> LatencyPredictor:
        """Return the same predictor with the facts of its device."""
        return replace(self, device=device)

    def update(self, measured_ms: Mapping[Architecture, float]) -> LatencyPredictor:
        """Fit again with new measurements, and let the whole prediction move by what they are off.

        The few new ones lie where the search needs the predictor most, close to the limit. So beside joining the other
        samples they set ``calibration``: the median of their measured / predicted latency after the new fit.

        Args:
            measured_ms: latency per architecture, shared out to encoder and decode loop as predicted so far.
        Raises:
            InputError: this predictor was fitted to bare features and remembers no samples.
        """
        if not measured_ms:
            return self
        if not self.samples:
            raise InputError("latency predictor: fitted to bare features, so new measurements cannot join them")
        samples = {sample.architecture: sample for sample in self.samples}
        for arch, latency_ms in measured_ms.items():
            encoder, decoder = self.predict_parts(arch)
            share = encoder / (encoder + decoder)
            samples[arch] = Sample(arch, share * latency_ms, (1 - share) * latency_ms)
        fitted = _fit_samples(list(samples.values()))
        calibration = statistics.median(ms / fitted.predict_ms(arch) for arch, ms in measured_ms.items())
        return replace(fitted, calibration=calibration, conditions=self.conditions, device=self.device)

    # -- predicting ---------------------------------------------------------------------------------------------

    def predict_ms(self, arch: Architecture) -> float:
        """Latency of ``arch`` in milliseconds per batch."""
        return sum(self.predict_parts(arch))

    def predict_parts(self, arch: Architecture) -> tuple[float, float]:
        """Milliseconds of the encoder and of the whole decode loop."""
        totals = features(arch)
        encoder = float(self.encoder.predict(totals[_ENCODER_COLUMNS]))
        decoder = float(self.decoder.predict(totals[_DECODER_COLUMNS]))
        return self.calibration * encoder, self.calibration * decoder

    def predict_features(self, table: Floats) -> Floats:
        """Latency in milliseconds for rows of totals: [rows, features] -> [rows]."""
        parts = self.encoder.predict(table[:, _ENCODER_COLUMNS]) + self.decoder.predict(table[:, _DECODER_COLUMNS])
        return self.calibration * parts

    def outside_range(self, arch: Architecture) -> list[str]:
        """Names of the features in which ``arch`` leaves the measured range, so that its latency is extrapolated."""
        around = zip(FEATURE_NAMES, features(arch), self.lowest, self.highest, strict=True)
        return [name for name, value, low, high in around if not low <= value <= high]

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the predictor as JSON."""
        samples = [
            {"architecture": s.architecture.to_text(), "encoder_ms": s.encoder_ms, "decoder_ms": s.decoder_ms}
            for s in self.samples
        ]
        content = {
            "format_version": FORMAT_VERSION,
            "kind": KIND,
            "unit": "ms per batch",
            "encoder": self.encoder.to_dict(),
            "decoder": self.decoder.to_dict(),
            "calibration": self.calibration,
            "range": {n: [a, b] for n, a, b in zip(FEATURE_NAMES, self.lowest, self.highest, strict=True)},
            "num_samples": self.num_samples,
            "conditions": self.conditions.to_dict() if self.conditions else None,
            "device": self.device,
            "samples": samples,
        }
        write_json(path, content)

    @classmethod
    def load(cls, path: Path, *, conditions: Conditions | None = None) -> LatencyPredictor:
        """Read what ``save`` wrote.

        Args:
            conditions: what the predictor is to be used for.
        Raises:
            InputError: the file is missing, not a predictor, of another format, or fitted under other conditions.
        """
        content = read_json(path)
        try:
            predictor = cls._from_dict(content)
        except InputError as error:
            raise InputError(f"{path}: {error}; run measure again") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path}: not a whole latency predictor ({error!r}); run measure again") from None
        if conditions is not None and predictor.conditions != conditions:
            have = predictor.conditions.to_dict() if predictor.conditions else "unknown"
            raise InputError(f"{path}: fitted under other conditions ({have}) than asked for ({conditions.to_dict()})")
        return predictor

    @classmethod
    def _from_dict(cls, content: dict[str, Any]) -> LatencyPredictor:
        if content.get("kind", KIND) != KIND:
            raise InputError(f"a predictor of kind '{content['kind']}', not '{KIND}'")
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"predictor format {content['format_version']}, this version reads {FORMAT_VERSION}")
        if tuple(content["range"]) != FEATURE_NAMES:
            raise InputError("a predictor of other features than this version has")
        return cls(
            CostModel.from_dict(content["encoder"], ENCODER_FEATURES),
            CostModel.from_dict(content["decoder"], DECODER_FEATURES),
            tuple(float(low) for low, _ in content["range"].values()),
            tuple(float(high) for _, high in content["range"].values()),
            calibration=float(content["calibration"]),
            num_samples=int(content["num_samples"]),
            samples=tuple(
                Sample(Architecture.from_text(s["architecture"]), float(s["encoder_ms"]), float(s["decoder_ms"]))
                for s in content["samples"]
            ),
            conditions=Conditions(**content["conditions"]) if content["conditions"] else None,
            device=dict(content["device"]),
        )


def table_of(architectures: Sequence[Architecture]) -> Floats:
    """Totals of several architectures, [architectures, features]."""
    return np.array([features(arch) for arch in architectures]).reshape(-1, len(FEATURE_NAMES))


def _sample(record: LatencyRecord) -> Sample:
    return Sample(record.arch, record.encoder_ms, record.decoder_ms)


def _fit_samples(samples: Sequence[Sample]) -> LatencyPredictor:
    table = table_of([sample.architecture for sample in samples])
    encoder_ms = np.array([sample.encoder_ms for sample in samples])
    decoder_ms = np.array([sample.decoder_ms for sample in samples])
    return replace(LatencyPredictor.fit_features(table, encoder_ms, decoder_ms), samples=tuple(samples))
