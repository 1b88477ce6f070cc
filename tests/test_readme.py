"""Every command of the README is run for real, on a model that is small enough for a test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fitformer.cli.keys import markdown
from fitformer.recipe import load_recipe

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
# What makes the demo small: the generated corpus, a few updates, few architectures. Commands stay as they stand.
SMALL = {
    "builtin: homeassistant": "builtin: numbers\n  builtin_pairs: 1500\n  held_out_pairs: 50",
    "updates: 3000": "updates: 40\n  threads: 1",
    "updates: 6000": "updates: 20\n  threads: 1",
    # Long outputs and many repeats: even on a busy machine the architectures can be told apart.
    "architectures: 40\n  repeats: 40": "architectures: 20\n  drift_tolerance: 0.9\n  target_length: 60",
    "num_generations: 6": "num_generations: 2",
    "latency: 75%": "latency: 80%",
}
MAKES_ENVIRONMENT = ("make ", "python3 -m venv", ".venv/bin/pip install")


def readme_commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def small_recipe(text: str) -> str:
    for old, new in SMALL.items():
        assert old in text, f"the demo recipe no longer says '{old}'"
        text = text.replace(old, new)
    return text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_readme_command_runs_in_the_order_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    recipe = small_recipe((ROOT / "recipes/demo.yaml").read_text(encoding="utf-8"))
    (tmp_path / "recipes/demo.yaml").write_text(recipe, encoding="utf-8")
    ran = 0
    for command in readme_commands():
        if command.startswith(MAKES_ENVIRONMENT):
            continue  # run by CI itself, which makes its environment with them
        line = command.replace(".venv/bin/fitformer", f"{BIN / 'fitformer'}").replace("cpu@75%", "cpu@80%")
        if "fit my.yaml" in command:
            (tmp_path / "my.yaml").write_text(recipe.replace("name: demo", "name: my"), encoding="utf-8")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        ran += 1
    assert ran >= 6
    shutil.rmtree(tmp_path / "runs")


def test_readme_make_targets_exist() -> None:
    targets = [command.split()[1] for command in readme_commands() if command.startswith("make ")]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_the_page_of_json_keys_is_the_one_that_the_commands_are_tested_against() -> None:
    assert (ROOT / "docs/json.md").read_text(encoding="utf-8").strip() == markdown().strip()


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_loads(recipe: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    assert load_recipe(recipe).name == recipe.stem
