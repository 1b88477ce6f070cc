"""From a recipe to a bundle that translates, through the commands that a user types, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.cli.keys import undocumented

Command = Callable[..., Any]

RECIPE = """
name: fixed
data: {source_language: en, target_language: de, builtin: numbers, builtin_pairs: 600, held_out_pairs: 30}
prepare: {tokenizer: {vocab_size: 400}, max_tokens: 64}
architecture: "enc 16: 32/16/2 | dec 16: 32/16/2/2@0"
train: {updates: 20, validate_every: 10, warmup: 5, threads: 1, start: scratch}
measure: {warmup: 1, repeats: 3}
compress: {allowed_bleu_loss: 100}
"""


@pytest.mark.slow
def test_a_recipe_becomes_a_bundle_that_translates(
    shell: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)

    def document(*words: object) -> dict[str, Any]:
        done = shell(*words, "--json")
        assert done.returncode == 0, done.stderr.decode()
        (line,) = done.stdout.splitlines()
        content: dict[str, Any] = json.loads(line)
        return content

    plan = document("fit", "recipe.yaml", "--dry-run")
    assert undocumented("fit --dry-run", plan) == (set(), set())
    assert not Path("runs").exists()
    assert document("prepare", "recipe.yaml")["targets"] == []
    summary = document("fit", "recipe.yaml")
    assert undocumented("fit", summary) == (set(), set())
    (target,) = summary["targets"]
    assert Path(summary["report"]).exists()
    assert len(target["samples"]) == 10

    again = shell("fit", "recipe.yaml")
    assert again.returncode == 0
    assert "copy of the most similar training translation" in again.stdout.decode()
    assert {stage["state"] for stage in document("status", summary["run"])["stages"]} == {"done", "skipped"}
    document("verify", target["bundle"])
    translated = shell("translate", target["bundle"], input=b"There are two houses.\n\n")
    assert (translated.returncode, translated.stdout.count(b"\n")) == (0, 2)

    changed = shell("fit", "recipe.yaml", "--set", "train.updates=30")
    assert changed.returncode == 2
    assert b"train.updates: is 30" in changed.stderr and b"--rerun train" in changed.stderr
