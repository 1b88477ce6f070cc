"""``profile`` counts spaces and architectures; ``devices`` shows machines."""

from __future__ import annotations

import csv
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
        counts = counting.hat(arch)
        macs = {"macs": counts.macs.total, "flops": counts.flops}
        assert hat == {"params": counts.parameters.total, **macs, "lengths": [{"length": 30, **macs}]}
    assert "conventions" not in facts


def test_operators_add_up_for_every_length(document: Command) -> None:
    facts = document("profile", "--preset", "small", "--length", "5,10,20", "--by-operator", "--beam", 4)
    for entry in facts["architectures"]:
        for convention in entry["conventions"].values():
            assert sum(convention["params_by_operator"].values()) == convention["params"]
            assert sum(convention["params_share_by_operator"].values()) == pytest.approx(100, abs=0.01)
            assert (convention["macs"], convention["flops"]) == (
                convention["lengths"][0]["macs"],
                convention["lengths"][0]["flops"],
            )
            assert [side["length"] for side in convention["lengths"]] == [5, 10, 20]
            for side in convention["lengths"]:
                assert sum(side["macs_by_operator"].values()) == side["macs"] == side["flops"] // 2
                for name, share in side["macs_share_by_operator"].items():
                    assert share == pytest.approx(100 * side["macs_by_operator"][name] / side["macs"], abs=0.001)


def test_every_published_row_of_hat_is_exact(document: Command, shared_data: Path) -> None:
    with (shared_data / "hat/published.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 34
    for row in rows:
        length = 23 if row["task"].startswith("IWSLT") else 30
        file = shared_data / "hat/subtransformers" / f"{row['model']}.yml"
        hat = document("profile", "--hat-config", file, "--length", length)["conventions"]["hat"]
        assert f"{hat['params'] / 1e6:.2f}" == row["params_m"], row["model"]
        assert f"{hat['flops'] / 1e9:.2f}" == row["flops_g"], row["model"]


def test_hats_figures_are_those_that_its_own_code_printed(document: Command, shared_data: Path) -> None:
    folder = shared_data / "hat/subtransformers"
    for name, length, params, flops in (
        ("HAT_iwslt14deen_titanxp@109.0ms_bleu@34.5", 23, 23_129_600, 1_125_385_380),
        ("HAT_wmt14enfr_titanxp@94.9ms_bleu@40.0", 30, 35_719_168, 2_225_049_780),
        ("HAT_wmt19ende_titanxp@93.2ms_bleu@44.4", 30, 42_277_376, 2_634_094_260),
    ):
        hat = document("profile", "--hat-config", folder / f"{name}.yml", "--length", length)["conventions"]["hat"]
        assert hat["params"] == params
        assert hat["flops"] == pytest.approx(flops, rel=1e-7)


@pytest.mark.parametrize(
    ("preset", "size"),
    [
        ("hat-wmt", 417_846_678_672_384),
        ("hat-iwslt", 417_846_678_672_384),
        ("hat-latency", 19_130_661_104_239_706_112),
    ],
)
def test_hats_spaces_have_the_sizes_that_its_formula_gives(
    cli: Command, document: Command, preset: str, size: int
) -> None:
    assert document("profile", "--preset", preset)["size"] == size
    assert f"{size:,} architectures" in cli("profile", "--preset", preset).stdout


def test_attention_takes_over_as_sentences_grow_and_the_vocabulary_as_models_shrink(
    cli: Command, document: Command
) -> None:
    words = ("profile", "--preset", "hat-wmt", "--length", "10,30,100,1000", "--by-operator", "--vocab-size", 32768)
    facts = document(*words)
    smallest, largest = (
        [e["macs_share_by_operator"] for e in entry["conventions"]["total"]["lengths"]]
        for entry in facts["architectures"]
    )
    for shares in (smallest, largest):
        products = [share["attention_products"] for share in shares]
        assert products == sorted(products) and products[-1] > 10 * products[0]
    for narrow, wide in zip(smallest, largest, strict=True):
        assert narrow["output_layer"] > wide["output_layer"]
        assert narrow["feed_forward"] < wide["feed_forward"]
    shown = cli(*words).stdout
    share = smallest[3]["attention_products"]
    assert "attention products (N^2 d)" in shown and f"{share:.1f} %" in shown and "N = 1000" in shown


def test_one_architecture_has_conventions_of_its_own_and_several_are_listed(
    document: Command, shared_data: Path
) -> None:
    files = sorted((shared_data / "hat/subtransformers").glob("HAT_iwslt*.yml"))
    facts = document("profile", *[word for file in files for word in ("--hat-config", file)])
    assert [entry["name"] for entry in facts["architectures"]] == [file.stem for file in files]
    assert facts["size"] == len(files) == 3 and "conventions" not in facts
    alone = document("profile", "--hat-config", files[0])
    assert alone["conventions"] == alone["architectures"][0]["conventions"] == facts["architectures"][0]["conventions"]


def test_separate_embeddings_count_in_total_and_not_in_hat(document: Command, shared_data: Path) -> None:
    file = next((shared_data / "hat/subtransformers").glob("HAT_iwslt*109.0ms*.yml"))
    words = ("profile", "--hat-config", file, "--vocab-size", 1000)
    shared, separate = (document(*words, "--share-embeddings", which)["conventions"] for which in ("all", "none"))
    assert shared["hat"] == separate["hat"]
    assert separate["total"]["params"] - shared["total"]["params"] == 2 * 1000 * 512


def test_people_see_dimensions_and_both_conventions(cli: Command) -> None:
    shown = cli("profile", "--preset", "hat-wmt", "--by-operator").stdout
    assert f"space hat-wmt: {SearchSpace.preset('hat-wmt').size():,} architectures" in shown
    for words in (
        "encoder_embed_dim",
        "convention hat",
        "convention total",
        "attention products",
        "output layer",
        " %",
    ):
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
    assert facts["conventions"] == facts["architectures"][0]["conventions"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "give either a recipe, --preset NAME (presets: "),
        (["--preset", "small", "--hat-config", "x.yml"], "give either"),
        (["--hat-config", "x.yml"], "x.yml: no such file"),
        (["--hat-config", "recipe.yaml"], "recipe.yaml: name: no such option"),
        (
            ["--preset", "small", "--share-embeddings", "al"],
            "'al' must be one of all, decoder, none (did you mean 'all'?)",
        ),
        (["--preset", "small", "--qkv-dim", "8"], "belong to --hat-config"),
        (["--preset", "small", "--set", "a=b"], "--set and --run belong to a recipe"),
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
