"""How well do HAT's network and fitformer's cost model predict the latencies released with HAT, and which rows are bad?

    python benchmarks/predictor_study.py FOLDER [--out runs/predictor-study] [--splits 10] [--ablation-splits 3]

FOLDER holds HAT's ``*_all.csv``. For each file: the blocks of rows that were measured while the device was slow, and
held-out figures of both predictors on all rows and on the clean ones, as means over seeded shuffled 80/10/10 splits
(``fitformer.hat.study``). Then, on fewer splits of the clean rows, networks of one, three and five hidden layers, also
at higher learning rates than the published one. A training takes about 20 processor seconds, all of them an hour. The
figures of each are kept in ``--out``, so the same command continues, wherever it was killed. Tables in Markdown go to
stderr, the last line on stdout is one JSON document. Nothing is timed, so a busy machine changes no figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fitformer.device import device_card
from fitformer.hat.latency_data import HatLatencyData, read_latency_data
from fitformer.hat.mlp import published_lat_norm
from fitformer.hat.slow_blocks import SlowBlock, find_slow_blocks, slow_rows
from fitformer.hat.study import FIGURES, StudySettings, study
from fitformer.progress import say
from fitformer.rundir import write_json

HEADS = ("MAPE %", "RMSE ms", "R2", "R2 within a depth", "Kendall tau", "within 5 %", "within 10 %")
DIGITS = (2, 2, 4, 3, 3, 1, 1)


def main() -> None:
    """Study every file, the main comparison first, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="HAT's latency_dataset folder")
    parser.add_argument("--out", type=Path, default=Path("runs/predictor-study"), help="keeps what is finished")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--ablation-splits", type=int, default=3)
    options = parser.parse_args()
    files = {path.name.removesuffix("_all.csv"): read_latency_data(path) for path in options.folder.glob("*_all.csv")}
    if not files:
        parser.error(f"{options.folder}: holds no *_all.csv")
    results: dict[str, Any] = {}
    for ablation_splits in dict.fromkeys((0, options.ablation_splits)):
        for name, data in sorted(files.items()):
            results[name] = study_one(name, data, options.out / name, options.splits, ablation_splits)
    for line in tables(results):
        print(line, file=sys.stderr)
    print(json.dumps({"benchmark": "predictor_study", "results": results, "device": device_card(1)}))


def study_one(name: str, data: HatLatencyData, folder: Path, splits: int, ablation_splits: int) -> dict[str, Any]:
    """Find the slow blocks of one file and compare the predictors; the result is also in ``folder/study.json``."""
    blocks = find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms)
    norm = published_lat_norm(name)
    assert norm is not None, f"no published lat_norm for the device in {name}"
    say(f"{name}: {describe(blocks)}")
    settings = StudySettings(splits=splits, ablation_splits=ablation_splits, lat_norm_ms=norm)
    folder.mkdir(parents=True, exist_ok=True)
    result = study(data, slow_rows(blocks, len(data)), settings, folder=folder)
    result = {"slow_blocks": [block.to_dict() for block in blocks], **result}
    write_json(folder / "study.json", result)
    return result


def describe(blocks: list[SlowBlock]) -> str:
    """The blocks in words."""
    return ", ".join(f"rows {b.first}-{b.last} +{100 * b.excess:.0f} %" for b in blocks) or "no slow block"


def tables(results: dict[str, Any]) -> list[str]:
    """Main table, few samples, ablation; in Markdown."""
    lines = ["", "| data set | rows | predictor | " + " | ".join(HEADS) + " |", "|---|---|---" + "|---" * 7 + "|"]
    for name, result in results.items():
        subsets = {"clean": "all"} if not result["slow_blocks"] else {"all": "all", "clean": "slow blocks left out"}
        for subset, words in subsets.items():
            entry = result["rows"][subset]
            for key, title in (("mlp", "HAT's MLP"), ("default", "default")):
                lines.append(f"| {name} | {words}, {entry['rows']} | {title} | {cells(entry[key])} |")
    lines += ["", "| data set | slow blocks | MAPE %, 50 samples | without the slow blocks |", "|---|---|---|---|"]
    for name, result in results.items():
        blocks = ", ".join(f"{b['first']}-{b['last']} (+{b['excess_percent']:.0f} %)" for b in result["slow_blocks"])
        few = [f"{result['rows'][subset]['default_50']['mape']:.2f}" for subset in ("all", "clean")]
        lines.append(f"| {name} | {blocks or 'none'} | {' | '.join(few)} |")
    variants = list(next(iter(results.values())).get("ablation", {}))
    if variants:
        lines += ["", f"| MAPE % / RMSE ms | {' | '.join(variants)} |", "|---" * (1 + len(variants)) + "|"]
        for name, result in results.items():
            shown = [f"{e['mape']:.2f} / {e['rmse_ms']:.2f}" for e in result["ablation"].values()]
            lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines


def cells(figures: dict[str, float | None]) -> str:
    """One row's figures."""
    values = [(figures[name], digits) for name, digits in zip(FIGURES, DIGITS, strict=True)]
    return " | ".join("-" if value is None else f"{value:.{digits}f}" for value, digits in values)


if __name__ == "__main__":
    main()
