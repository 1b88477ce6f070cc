"""Which rule should a SuperTransformer be trained by? Inherited losses at equal training time, and whether they rank.

    python benchmarks/supernet_rules.py RECIPE RUN [--updates N] [--minutes M] [--only alone|rules]

RUN is a run of RECIPE with ``prepare`` done; nothing in it changes. A queue of trainings, one thread each:

1. alone: eight fixed architectures of the space are each trained from scratch for ``--updates``.
2. rules: a SuperTransformer is trained by each rule, all for the same time.

Everything goes to a folder beside RUN and is resumable: the same command continues. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path
from typing import Any

from fitformer.pipeline import Run, fit
from fitformer.progress import say
from fitformer.recipe import load_recipe
from fitformer.rundir import atomic_path
from fitformer.space import Architecture, SearchSpace

NUM_FIXED, NUM_ALONE = 30, 8


def main() -> None:
    """Train what is not trained yet, then print the table."""
    options = _options()
    run = Run(load_recipe(options.recipe), options.run)
    folder = options.run.with_name(f"{options.run.name}-rules")
    if options.only != "rules":
        print(json.dumps(_alone(run, folder, options)))


def fixed_architectures(space: SearchSpace) -> list[Architecture]:
    """The architectures that every rule is judged by; the first eight are also trained alone."""
    rng = random.Random("judged by")
    return [space.sample(rng) for _ in range(NUM_FIXED)]


def _alone(run: Run, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Validation loss (label-smoothed, nats per token) of the first fixed architectures, each trained by itself."""
    losses = {}
    for number, arch in enumerate(fixed_architectures(run.space)[:NUM_ALONE]):
        say(f"alone {number}: {arch.to_text()}")
        single = _single(run, folder / f"alone-{number}", arch, options)
        fit(single, until="train")
        losses[arch.to_text()] = float(single.stage("train", "model").facts["valid"]["loss"])
    return losses


def _single(run: Run, path: Path, arch: Architecture, options: argparse.Namespace) -> Run:
    """A run that trains one architecture from scratch, on the text that RUN has prepared."""
    if not (path / "prepare").exists():
        with atomic_path(path / "prepare", is_dir=True) as temporary:
            shutil.copytree(run.prepared, temporary, dirs_exist_ok=True)
    changes: dict[str, Any] = {
        **run.recipe.supernet.model_dump(),
        "updates": options.updates,
        "warmup": options.updates // 10,
        "average_last": 1,
        "threads": 1,
        "start": "scratch",
    }
    train = run.recipe.train.model_copy(update=changes)
    fixed = {"space": None, "architecture": arch.to_text(), "targets": (), "train": train}
    return Run(run.recipe.model_copy(update=fixed), path)


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
