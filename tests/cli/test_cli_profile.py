"""``profile`` counts spaces and architectures; ``devices`` shows machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.space import Architecture, SearchSpace, counting

Command = Callable[..., Any]

RECIPE = """
name: tiny
data: {source_language: en, target_language: de, builtin: numbers}
space: small
targets: [{device: cpu, latency: 50%}, {device: board, latency: 40ms}]
devices: {cpu: {threads: 2}, board: {threads: 4}}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize("preset", SearchSpace.preset_names())
def test_every_preset_is_counted_exactly(document: Command, preset: str) -> None:
    space = SearchSpace.preset(preset)
    facts = document("profile", "--preset", preset)
    assert facts["size"] == space.size()
    assert facts["dimensions"] == space.to_dict()
    assert [entry["name"] for entry in facts["architectures"]] == ["smallest", "largest"]
    for entry in facts["architectures"]:
        arch = Architecture.from_text(entry["architecture"])
        hat = entry["conventions"]["hat"]
        assert hat["parameters"] == counting.hat(arch).parameters.total
        assert hat["lengths"] == [
            {"length": 30, "macs": counting.hat(arch).macs.total, "flops": counting.hat(arch).flops}
        ]


def test_operators_add_up_for_every_length(document: Command) -> None:
    facts = document("profile", "--preset", "small", "--length", "5,10,20", "--by-operator", "--beam", 4)
    for entry in facts["architectures"]:
        for convention in entry["conventions"].values():
            assert sum(convention["parameters_by_operator"].values()) == convention["parameters"]
            assert [side["length"] for side in convention["lengths"]] == [5, 10, 20]
            for side in convention["lengths"]:
                assert sum(side["macs_by_operator"].values()) == side["macs"] == side["flops"] // 2


def test_people_see_dimensions_and_both_conventions(cli: Command) -> None:
    shown = cli("profile", "--preset", "hat-wmt", "--by-operator").stdout
    assert f"space hat-wmt: {SearchSpace.preset('hat-wmt').size():,} architectures" in shown
    for words in ("encoder_embed_dim", "convention hat", "convention total", "attention products", "output layer"):
        assert words in shown


def test_the_vocabulary_comes_from_option_recipe_run_or_is_said_to_be_assumed(document: Command, recipe: Path) -> None:
    assert document("profile", recipe)["vocab_size_from"] == "assumed"
    stats = Path("runs/tiny/prepare/stats.json")
    stats.parent.mkdir(parents=True)
    stats.write_text(json.dumps({"vocab_size": {"source": 777, "target": 555}}))
    from_run = document("profile", recipe)
    assert (from_run["vocab_size_from"], from_run["vocab_size"]) == ("run", {"source": 777, "target": 555})
    from_recipe = document("profile", recipe, "--set", "prepare.tokenizer.vocab_size=500")
    assert (from_recipe["vocab_size_from"], from_recipe["vocab_size"]["source"]) == ("recipe", 500)
    given = document("profile", recipe, "--vocab-size", 1000)
    assert (given["vocab_size_from"], given["vocab_size"]["target"]) == ("given", 1000)


def test_a_fixed_architecture_is_counted_as_it_is(document: Command, recipe: Path) -> None:
    text = "enc 8: 16/4/2 | dec 8: 16/4/2/1@0"
    recipe.write_text(RECIPE.replace("space: small", f'architecture: "{text}"').replace("latency: 50%", "latency: 1ms"))
    facts = document("profile", recipe)
    assert (facts["size"], facts["dimensions"]) == (1, None)
    assert [(entry["name"], entry["architecture"]) for entry in facts["architectures"]] == [("given", text)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "give either a recipe or --preset NAME (presets: "),
        (["recipe.yaml", "--preset", "small"], "give either"),
        (["--preset", "smal"], "no preset 'smal' (did you mean 'small'?)"),
        (["--preset", "small", "--length", "3,x"], "--length: '3,x' must be"),
        (["--preset", "small", "--length", "0"], "--length: '0' must be"),
        (["nowhere.yaml"], "nowhere.yaml: no such recipe"),
        (["recipe.yaml", "--set", "serch.patience=3"], "serch: no such setting (did you mean 'search'?)"),
    ],
)
def test_wrong_options_are_one_line(refusal: Command, recipe: Path, options: list[str], named: str) -> None:
    assert named in refusal(2, "profile", *options)


def test_devices_shows_this_machine_and_those_of_a_recipe(cli: Command, document: Command, recipe: Path) -> None:
    facts = document("devices", "--recipe", recipe)
    assert facts["device"]["cpu"]
    assert facts["recipe_devices"] == [
        {"name": "cpu", "threads": 2, "targets": ["cpu@50%"]},
        {"name": "board", "threads": 4, "targets": ["board@40ms"]},
    ]
    shown = cli("devices", "--recipe", recipe).stdout
    assert "board@40ms" in shown and facts["device"]["cpu"] in shown
