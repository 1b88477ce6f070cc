"""Latency on one device: measuring architectures with drift control, and predicting the rest from them."""

from fitformer.latency.given import AnyPredictor, load_predictor, try_predictor
from fitformer.latency.measuring import Measured, MeasureSettings, choose_architectures, measure
from fitformer.latency.mlp_predictor import MlpPredictor
from fitformer.latency.predictor import LatencyPredictor
from fitformer.latency.quality import Quality, check_useful, cross_validate
from fitformer.latency.records import Conditions, LatencyDataset, LatencyRecord

__all__ = [
    "AnyPredictor",
    "Conditions",
    "LatencyDataset",
    "LatencyPredictor",
    "LatencyRecord",
    "MeasureSettings",
    "Measured",
    "MlpPredictor",
    "Quality",
    "check_useful",
    "choose_architectures",
    "cross_validate",
    "load_predictor",
    "measure",
    "try_predictor",
]
