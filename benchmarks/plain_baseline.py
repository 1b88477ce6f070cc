"""Is the search worth it? The best plain Transformer of equal measured latency, trained on as many tokens.

    python benchmarks/plain_baseline.py RECIPE RUN [--target cpu@50%] [--short-updates N] [--threads N]

RUN is a run of RECIPE whose search is done; the comparison at the end needs its bundle, too. A plain Transformer has
one width everywhere, equally many encoder and decoder layers, four heads, queries as wide as the model, and
feed-forward layers 2 or 4 times as wide.

1. For each depth and feed-forward ratio, the width whose measured fp32 latency is nearest to the found model's; kept
   if it is within 2 %. The found model is timed in turn with each, so that drift touches both.
2. Each is trained for ``--short-updates`` with half the SuperTransformer's dropout; the best validation loss decides
   the shape, and the best of three dropouts on that shape decides the dropout.
3. That model is trained from scratch on as many target tokens as SuperTransformer and found model saw together, with
   the recipe's SuperTransformer schedule, exported, and compared on the test set with paired bootstrap.

Everything goes to folders beside RUN and is resumable: the same command continues. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from fitformer.export.graphs import graph_bytes
from fitformer.models import Transformer, TransformerConfig
from fitformer.pipeline import Run, fit
from fitformer.pipeline.run import evaluation_texts
from fitformer.pipeline.timing import conditions_of, time_session
from fitformer.progress import say
from fitformer.recipe import load_recipe
from fitformer.rundir import read_json, write_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.scores import paired_bootstrap, score_translations
from fitformer.runtime.session import OnnxStepModel
from fitformer.runtime.translator import Translator
from fitformer.space import Architecture

TOLERANCE = 0.02
WIDTHS = range(64, 385, 8)
ROUNDS = 5


def main() -> None:
    """Find the shape, tune, train, compare."""
    options = _options()
    run = Run(load_recipe(options.recipe), options.run)
    target = options.target or run.recipe.targets[0].name
    folder = options.run.with_name(f"{options.run.name}-plain")
    candidates = _equal_latency(run, target, folder)
    shape, dropout, tried = _tune(run, candidates, folder, options)
    final = _final(run, target, shape, dropout, folder, options)
    ours = Bundle.load(run.stage("compress", target).folder / "fp32")
    plain = Bundle.load(final.stage("compress", "model").folder / "fp32")
    result = {
        "found": ours.facts["architecture_text"],
        "plain": plain.facts["architecture_text"],
        "latency_ms": candidates[shape],
        "dropout": dropout,
        "tried": tried,
        "target_tokens": final.stage("train", "model").facts["target_tokens"],
        "comparison": _compare(run, ours, plain),
    }
    write_json(folder / "comparison.json", result)
    print(json.dumps(result))


def _equal_latency(run: Run, target: str, folder: Path) -> dict[str, dict[str, float]]:
    """Plain shapes within the tolerance of the found model's latency: {text: {plain, found} in ms}."""
    path = folder / "shapes.json"
    if path.exists():
        known: dict[str, dict[str, float]] = read_json(path)
        return known
    best = read_json(run.stage("search", target).folder / "best.json")
    found = _untrained(run, Architecture.from_dict(best["architecture"]))  # weights change no latency
    shapes = {}
    for layers in (1, 2, 3, 4, 6):
        for ratio in (2, 4):
            shape, timed = _nearest_width(run, found, layers, ratio)
            say(f"{shape}: {timed['plain']:.3f} ms, found model {timed['found']:.3f} ms")
            if abs(timed["plain"] / timed["found"] - 1) <= TOLERANCE:
                shapes[shape] = timed
    write_json(path, shapes)
    return shapes


def _nearest_width(run: Run, found: OnnxStepModel, layers: int, ratio: int) -> tuple[str, dict[str, float]]:
    low, high = 0, len(WIDTHS) - 1
    best: tuple[float, str, dict[str, float]] | None = None
    while low <= high:  # latency grows with the width
        middle = (low + high) // 2
        arch = _plain(WIDTHS[middle], layers, ratio)
        timed = _paired(run, found, arch)
        gap = timed["plain"] / timed["found"] - 1
        if best is None or abs(gap) < best[0]:
            best = abs(gap), arch.to_text(), timed
        low, high = (middle + 1, high) if gap < 0 else (low, middle - 1)
    assert best is not None
    return best[1], best[2]


def _plain(width: int, layers: int, ratio: int) -> Architecture:
    wide, heads = (ratio * width,) * layers, (4,) * layers
    qkv = (width,) * layers
    return Architecture(width, width, wide, qkv, heads, wide, qkv, heads, heads, ((layers - 1,),) * layers)


def _paired(run: Run, found: OnnxStepModel, arch: Architecture) -> dict[str, float]:
    """Median latencies of the found model and a plain one, timed in turns."""
    conditions = conditions_of(run, run.recipe.targets[0].device)
    sessions = {"plain": _untrained(run, arch), "found": found}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            times[name].append(time_session(run, session, conditions, repeats_factor=1).latency_ms)
    return {name: statistics.median(values) for name, values in times.items()}


def _untrained(run: Run, arch: Architecture) -> OnnxStepModel:
    vocab = read_json(run.prepared / "stats.json")["vocab_size"]
    graphs = graph_bytes(Transformer(TransformerConfig(vocab["source"], vocab["target"]), arch).eval())
    return OnnxStepModel(graphs["encoder"], graphs["decoder"], threads=1)


def _tune(
    run: Run, shapes: dict[str, dict[str, float]], folder: Path, options: argparse.Namespace
) -> tuple[str, float, dict[str, float]]:
    """The best shape at the recipe's dropout, then the best of three dropouts for it, by validation loss."""
    usual, tried = run.recipe.supernet.dropout, {}

    def loss(shape: str, dropout: float) -> float:
        name = f"tune-{list(shapes).index(shape)}-{dropout:g}"
        tuned = _recipe_run(options, folder / name, shape, dropout, options.short_updates)
        fit(tuned, until="train")
        tried[f"{shape} dropout {dropout:g}"] = found = float(tuned.stage("train", "model").facts["valid"]["nll"])
        return found

    shape = min(shapes, key=lambda text: loss(text, usual / 2))
    dropout = min((usual / 3, usual / 2, usual), key=lambda p: loss(shape, p))
    return shape, dropout, tried


def _final(run: Run, target: str, shape: str, dropout: float, folder: Path, options: argparse.Namespace) -> Run:
    supernet, trained = run.stage("supernet").facts, run.stage("train", target).facts
    per_update = supernet["target_tokens"] / supernet["updates"]
    updates = round((supernet["target_tokens"] + trained["target_tokens"]) / per_update)
    final = _recipe_run(options, folder / "final", shape, dropout, updates)
    fit(final)
    return final


def _recipe_run(options: argparse.Namespace, path: Path, shape: str, dropout: float, updates: int) -> Run:
    recipe = load_recipe(options.recipe)
    schedule = recipe.supernet.model_dump()
    changes = {**schedule, "updates": updates, "dropout": dropout, "threads": options.threads, "start": "scratch"}
    train = recipe.train.model_copy(update=changes)
    fixed = {"space": None, "architecture": shape, "targets": (), "train": train}
    return Run(recipe.model_copy(update=fixed), path)


def _compare(run: Run, ours: Bundle, plain: Bundle) -> dict[str, Any]:
    sources, references = evaluation_texts(run, "test")
    outputs = {
        name: [line.text for line in Translator(bundle).translate(sources)]
        for name, bundle in (("found", ours), ("plain", plain))
    }
    scores = {name: score_translations(lines, references) for name, lines in outputs.items()}
    return {**scores, "paired_bootstrap": paired_bootstrap(outputs["found"], outputs["plain"], references)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--short-updates", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
