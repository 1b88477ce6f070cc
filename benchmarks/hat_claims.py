"""What HAT's released data say about its claims: FLOPs and latency, devices and the shapes they favour.

    python benchmarks/hat_claims.py [DATA]

DATA is the folder with ``hat/latency/*.csv``, ``hat/published.csv`` and ``hat/subtransformers/*.yml`` (by default
``$FITFORMER_DATA``). Rows measured while the device was slow are found and left out first. Nothing is trained or timed,
so the figures do not depend on the machine.

1. FLOPs against latency: what share of the variance FLOPs explain (overall, and among models of one decoder depth),
   how well FLOPs, depth alone and the linear cost model rank, and how far apart models lie whose FLOPs are equal
   within 1 % (95th over 5th percentile).
2. Devices: how much slower the default predictor says a middle-sized model becomes when one dimension grows.
3. Published models: for each, whether one that was found for another device is at least as good and faster here.

The last line is one JSON document.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau, pearsonr

from fitformer.errors import InputError
from fitformer.hat.configuration import QKV_DIM, read_configuration, to_architecture
from fitformer.hat.latency_data import HatLatencyData, read_latency_data
from fitformer.hat.slow_blocks import find_slow_blocks, slow_rows
from fitformer.latency import LatencyPredictor
from fitformer.latency.features import FEATURE_NAMES, Floats
from fitformer.space import Architecture

DEVICES = {"raspberrypi": "Raspberry Pi", "xeon": "Intel Xeon", "titanxp": "Nvidia TITAN Xp"}
LEAST_NEIGHBOURS = 10


def main() -> None:
    """Print three tables."""
    if len(sys.argv) > 2 or not (len(sys.argv) == 2 or "FITFORMER_DATA" in os.environ):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1] if len(sys.argv) == 2 else os.environ["FITFORMER_DATA"]) / "hat"
    files = {path.stem.removesuffix("_all"): path for path in sorted((folder / "latency").glob("*.csv"))}
    if not files:
        raise InputError(f"{folder / 'latency'}: no *.csv")
    data = {name: _clean(read_latency_data(path)) for name, path in files.items()}
    predictors = {
        name: LatencyPredictor.fit_features(rows.totals, rows.encoder_ms, rows.decoder_ms)
        for name, rows in data.items()
    }
    flops = {
        name: _flops_and_latency(rows, predictors[name], 23 if "iwslt" in name else 30) for name, rows in data.items()
    }
    growth = {name: _growth(predictor) for name, predictor in predictors.items()}
    _print("FLOPs and latency", flops)
    _print("slower by, in percent", growth)
    dominated = _dominated(folder, predictors)
    _print("published models", dominated)
    print(json.dumps({"flops": flops, "growth_percent": growth, "published": dominated}))


def _clean(data: HatLatencyData) -> HatLatencyData:
    blocks = find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms)
    return data.rows(~slow_rows(blocks, len(data)))


def _flops_and_latency(data: HatLatencyData, predictor: LatencyPredictor, length: int) -> dict[str, float]:
    flops, latency, depths = _flops(data.totals, length), data.latency_ms, data.depths
    within = [pearsonr(flops[depths == d], latency[depths == d])[0] ** 2 for d in np.unique(depths)]
    spreads = []
    for one in flops:
        neighbours = latency[(flops >= one) & (flops <= 1.01 * one)]
        if len(neighbours) >= LEAST_NEIGHBOURS:
            spreads.append(float(np.quantile(neighbours, 0.95) / np.quantile(neighbours, 0.05)))
    return {
        "rows": len(data),
        "r2": float(pearsonr(flops, latency)[0] ** 2),
        "r2_within_depth": float(np.mean(within)),
        "tau_flops": float(kendalltau(flops, latency).statistic),
        "tau_depth": float(kendalltau(depths, latency).statistic),
        "tau_cost_model": float(kendalltau(predictor.predict_features(data.totals), latency).statistic),
        "spread_at_equal_flops": statistics.median(spreads),
    }


def _flops(totals: Floats, length: int) -> Floats:
    """FLOPs as HAT counts them, per row of totals: ``space.counting.hat`` without its one operation per element."""
    column = dict(zip(FEATURE_NAMES, totals.T, strict=True))
    encoder = 4 * column["encoder.projections"] + 2 * column["encoder.feed_forward"]
    encoder = encoder + 2 * length * column["encoder.attention"]
    decoder = 6 * column["decoder.projections"] + 2 * column["decoder.feed_forward"]
    decoder = decoder + 2 * length * column["decoder.attention"]
    cross = 2 * column["cross.projections"] + 2 * length * column["cross.attention"]
    flops: Floats = 2.0 * length * (encoder + decoder + cross)
    return flops


def _growth(predictor: LatencyPredictor) -> dict[str, float]:
    """Predicted slow-down of a model of width 512 with four decoder layers, FFN 1024, one attended encoder layer."""
    usual = _model(width=512, decoder_layers=4, ffn_dim=1024)
    grown = {
        "decoder layers 4 to 5": _model(width=512, decoder_layers=5, ffn_dim=1024),
        "decoder FFN 1024 to 3072": replace(usual, decoder_ffn_dim=(3072,) * 4),
        "encoder FFN 1024 to 3072": replace(usual, encoder_ffn_dim=(3072,) * 6),
        "decoder width 512 to 640": replace(usual, decoder_embed_dim=640),
        "attended layers 1 to 3": replace(usual, decoder_cross_layers=((5, 4, 3),) * 4),
        "all heads 4 to 8": replace(
            usual, encoder_num_heads=(8,) * 6, decoder_self_heads=(8,) * 4, decoder_cross_heads=(8,) * 4
        ),
    }
    before = predictor.predict_ms(usual)
    return {name: 100 * (predictor.predict_ms(arch) / before - 1) for name, arch in grown.items()}


def _model(*, width: int, decoder_layers: int, ffn_dim: int) -> Architecture:
    heads, decoder = (4,) * decoder_layers, (ffn_dim,) * decoder_layers
    return Architecture(
        width, width, (ffn_dim,) * 6, (QKV_DIM,) * 6, (4,) * 6,
        decoder, (QKV_DIM,) * decoder_layers, heads, heads, ((5,),) * decoder_layers,
    )  # fmt: skip


def _dominated(folder: Path, predictors: dict[str, LatencyPredictor]) -> dict[str, dict[str, Any]]:
    """Per task and device: the shapes of its models, and how many are beaten by one found for another device."""
    with (folder / "published.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    models = {}
    for row in rows:
        arch = to_architecture(read_configuration(folder / "subtransformers" / f"{row['model']}.yml"))
        models[row["model"]] = (*row["model"].split("_")[1:3], float(row["bleu"]), arch)
    found: dict[str, dict[str, Any]] = {}
    for name, predictor in predictors.items():
        task, device = name.split("_")[0], name.split("_")[2]
        of_task = [(d.split("@")[0], bleu, arch) for t, d, bleu, arch in models.values() if t == task]
        own = [(bleu, arch) for d, bleu, arch in of_task if d == device]
        others = [(bleu, arch) for d, bleu, arch in of_task if d != device]
        if not own:
            continue
        beaten = sum(
            any(b >= bleu and predictor.predict_ms(a) < predictor.predict_ms(arch) for b, a in others)
            for bleu, arch in own
        )
        found[f"{task} on {DEVICES[device]}"] = {
            "models": len(own),
            "decoder_layers": statistics.mean(arch.decoder_num_layers for _, arch in own),
            "decoder_width": statistics.mean(arch.decoder_embed_dim for _, arch in own),
            "decoder_ffn": statistics.mean(statistics.mean(arch.decoder_ffn_dim) for _, arch in own),
            "models_for_others": len(others),
            "beaten_by_one_for_others": beaten,
        }
    return found


def _print(title: str, table: dict[str, dict[str, Any]]) -> None:
    names = list(next(iter(table.values())))
    print(f"{title}\n{'':<28}" + "".join(f"{name:>26}" for name in names))
    for row, values in table.items():
        print(f"{row:<28}" + "".join(f"{values[name]:>26.4g}" for name in names))
    print()


if __name__ == "__main__":
    main()
