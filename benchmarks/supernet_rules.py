"""Which rule should a SuperTransformer be trained by? Inherited losses at equal training time, and whether they rank.

    python benchmarks/supernet_rules.py RECIPE RUN [--updates N] [--minutes M] [--only alone|rules]

RUN is a run of RECIPE with ``prepare`` done; nothing in it changes. A queue of trainings, one thread each:

1. alone: eight fixed architectures of the space are each trained from scratch for ``--updates``.
2. rules: a SuperTransformer is trained by each rule (``RULES``), all for ``--minutes``. Equal time is a matter of
   updates, so that other work on the machine changes nothing: the processor seconds of an update are measured for all
   rules in turns, on the same batches, and each rule gets as many updates as fit. Its schedule ends with them.
3. Each SuperTransformer's weights are inherited by thirty fixed architectures (the eight among them), whose validation
   losses are computed without any further training.

The table: mean and median loss over the thirty, those of the smallest and the largest architecture, and Kendall's tau
over the eight between the inherited loss and that after training alone. Everything goes to a folder beside RUN and is
resumable: the same command continues, wherever it was killed. ``--only`` lets two processes work at once. Losses are
label-smoothed, in nats per token, on the whole validation set. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from scipy.stats import kendalltau

from fitformer.device import device_card
from fitformer.models import SuperTransformer
from fitformer.pipeline import Run, fit
from fitformer.pipeline.run import load_supernet, model_config, training_task
from fitformer.progress import say
from fitformer.recipe import Supernet, Training, load_recipe
from fitformer.rundir import atomic_path, read_json, write_json
from fitformer.space import Architecture, SearchSpace
from fitformer.stages import locked
from fitformer.training.sandwich import Sampling

NUM_FIXED, NUM_ALONE = 30, 8
SANDWICH = {"sampling": "sandwich", "random_architectures": 1, "distillation": 0.5}
RULES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "sandwich": SANDWICH,
    "sorted-uniform": {"importance_sorting": True},
    "sorted-sandwich": {**SANDWICH, "importance_sorting": True},
}
LARGEST_SHARE = 0.2  # of the time, in which rules that sort by importance train the largest architecture alone
TIMED_UPDATES, UNTIMED_UPDATES = 200, 8


def main() -> None:
    """Train what is not trained yet, then print the table."""
    options = _options()
    run = Run(load_recipe(options.recipe), options.run)
    folder = options.run.with_name(f"{options.run.name}-rules")
    if options.only != "rules":
        _train_alone(run, folder, options)
    if options.only != "alone":
        _train_rules(run, folder, options)
    print(json.dumps(_summary(run, folder, options)))


def fixed_architectures(space: SearchSpace) -> list[Architecture]:
    """The architectures that every rule is judged by; the first eight are also trained alone."""
    rng = random.Random("judged by")
    return [space.sample(rng) for _ in range(NUM_FIXED)]


# -- trained alone ------------------------------------------------------------------------------------------------


def _alone(run: Run, folder: Path, options: argparse.Namespace) -> Iterator[tuple[Architecture, Run]]:
    """The runs in which the first fixed architectures are trained by themselves."""
    for number, arch in enumerate(fixed_architectures(run.space)[:NUM_ALONE]):
        shared = {name: getattr(run.recipe.supernet, name) for name in Training.model_fields}
        schedule = {"updates": options.updates, "warmup": options.updates // 10, "average_last": 1, "threads": 1}
        train = run.recipe.train.model_copy(update={**shared, **schedule, "start": "scratch"})
        fixed = {"space": None, "architecture": arch.to_text(), "targets": (), "train": train}
        yield arch, Run(run.recipe.model_copy(update=fixed), folder / f"alone-{number}")


def _train_alone(run: Run, folder: Path, options: argparse.Namespace) -> None:
    for number, (arch, single) in enumerate(_alone(run, folder, options)):
        say(f"alone {number}: {arch.to_text()}")
        _perform(single, run.prepared, "train")


def _perform(run: Run, prepared: Path, stage: str) -> None:
    """Do a run up to a stage, on a copy of the prepared text."""
    with locked(run.path):
        if not run.prepared.exists():
            with atomic_path(run.prepared, is_dir=True) as temporary:
                shutil.copytree(prepared, temporary, dirs_exist_ok=True)
        fit(run, until=stage)


# -- trained by a rule --------------------------------------------------------------------------------------------


def _rules(run: Run, folder: Path, options: argparse.Namespace, rates: dict[str, float]) -> Iterator[tuple[str, Run]]:
    """The runs in which a SuperTransformer is trained by each rule, with the updates that fit into the time."""
    for name, rule in RULES.items():
        seconds = 60 * options.minutes
        first = int(LARGEST_SHARE * seconds / rates["largest"]) if rule.get("importance_sorting") else 0
        updates = first + int((seconds - first * rates["largest"]) / rates[rule.get("sampling", "uniform")])
        schedule = {
            "updates": updates,
            "warmup": updates // 10,
            "largest_first": first,
            "validate_every": max(updates // 32, 1),
            "average_last": 5,
            "threads": 1,
        }
        settings = Supernet(**{**run.recipe.supernet.model_dump(), **rule, **schedule})
        yield name, Run(run.recipe.model_copy(update={"supernet": settings}), folder / f"rule-{name}")


def _train_rules(run: Run, folder: Path, options: argparse.Namespace) -> None:
    if not (folder / "rates.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "rates.json", _seconds_per_update(run))
    for name, trained in _rules(run, folder, options, read_json(folder / "rates.json")):
        settings = trained.recipe.supernet
        say(f"rule {name}: {settings.updates} updates, {settings.largest_first} of them of the largest alone")
        _perform(trained, run.prepared, "supernet")
        if not (trained.path / "inherited.json").exists():
            write_json(trained.path / "inherited.json", _inherited(trained))


def _inherited(run: Run) -> dict[str, dict[str, float]]:
    """Validation losses of the fixed architectures, the smallest and the largest, with inherited weights."""
    model, task, space = load_supernet(run), training_task(run, run.recipe.supernet), run.space
    losses = {}
    for arch in (*fixed_architectures(space), space.smallest(), space.largest()):
        model.set_active(arch)
        losses[arch.to_text()] = task.validation_loss(model)
    return losses


def _seconds_per_update(run: Run) -> dict[str, float]:
    """Processor seconds of an update of the largest, uniform, sandwich: measured in turns on the same batches."""
    torch.manual_seed(run.recipe.seed)
    settings = {**run.recipe.supernet.model_dump(), "threads": 1}
    kinds = {
        "largest": Supernet(**{**settings, "largest_first": settings["updates"] - 1}),
        "uniform": Supernet(**{**settings, **RULES["uniform"]}),
        "sandwich": Supernet(**{**settings, **RULES["sandwich"]}),
    }
    task = training_task(run, kinds["uniform"])
    timed = {}
    for name, kind in kinds.items():
        model = SuperTransformer(model_config(run, kind), run.space).train()
        timed[name] = (Sampling(model, task, kind, run.recipe.seed), torch.optim.AdamW(model.parameters(), fused=True))
    order = [indices for epoch in range(2) for indices in task.epoch(epoch)]
    totals = dict.fromkeys(kinds, 0.0)
    for update in range(1, UNTIMED_UPDATES + TIMED_UPDATES + 1):
        batch = task.batch(order[(update - 1) % len(order)])
        for name, (sampling, optimizer) in timed.items():
            began = time.process_time()
            sampling.select(update)
            sampling.model.mask_pool.start_update(run.recipe.seed, update)
            sampling.step([batch], batch.num_tokens)
            torch.nn.utils.clip_grad_norm_(sampling.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if update > UNTIMED_UPDATES:
                totals[name] += time.process_time() - began
    rates = {name: total / TIMED_UPDATES for name, total in totals.items()}
    say("seconds per update: " + ", ".join(f"{name} {seconds:.4f}" for name, seconds in rates.items()))
    return rates


# -- the table ----------------------------------------------------------------------------------------------------


def _summary(run: Run, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Print the table of what is finished; return everything in it."""
    alone = {}
    for arch, single in _alone(run, folder, options):
        if single.stage("train", "model").is_done:
            alone[arch.to_text()] = single.stage("train", "model").facts["valid"]["loss"]
    rules = {}
    rates = read_json(folder / "rates.json") if (folder / "rates.json").exists() else None
    for name, trained in _rules(run, folder, options, rates) if rates else ():
        if (trained.path / "inherited.json").exists():
            rules[name] = {
                "updates": trained.recipe.supernet.updates,
                "largest_first": trained.recipe.supernet.largest_first,
                **_row(run.space, read_json(trained.path / "inherited.json"), alone),
            }
    print(f"{'rule':<16} updates   mean  median  smallest  largest  above alone  tau")
    for name, row in rules.items():
        tau = "-" if row["kendall_tau"] is None else f"{row['kendall_tau']:.2f}"
        gap = "-" if row["above_alone"] is None else f"{row['above_alone']:.3f}"
        losses = f"{row['mean']:>6.3f}  {row['median']:>6.3f}  {row['smallest']:>8.3f}  {row['largest']:>7.3f}"
        print(f"{name:<16} {row['updates']:>7} {losses}  {gap:>11}  {tau:>3}")
    return {
        "rules": rules,
        "alone": alone,
        "seconds_per_update": rates,
        "minutes": options.minutes,
        "updates_alone": options.updates,
        "device": device_card(1),
    }


def _row(space: SearchSpace, inherited: dict[str, dict[str, float]], alone: dict[str, float]) -> dict[str, Any]:
    losses = {text: loss["loss"] for text, loss in inherited.items()}
    fixed = [losses[arch.to_text()] for arch in fixed_architectures(space)]
    both = [(losses[text], loss) for text, loss in alone.items()]
    is_whole = len(both) == NUM_ALONE
    return {
        "mean": statistics.mean(fixed),
        "median": statistics.median(fixed),
        "smallest": losses[space.smallest().to_text()],
        "largest": losses[space.largest().to_text()],
        "above_alone": statistics.mean(a - b for a, b in both) if is_whole else None,
        "kendall_tau": float(kendalltau(*zip(*both, strict=True)).statistic) if is_whole else None,
        "inherited": losses,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--updates", type=int, default=2500, help="of each architecture trained alone")
    parser.add_argument("--minutes", type=float, default=15.0, help="of one thread for each SuperTransformer")
    parser.add_argument("--only", choices=("alone", "rules"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
