"""The recipes of the HAT paper's four tasks say what the original's configurations say.

The tables below are copied by hand from those: ``configs/*/supertransformer/space*.yml``,
``subtransformer/common.yml``, ``evo_search/*.yml``, ``test.sh``, ``preprocess.sh``, and defaults of the code where a
file is silent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fitformer.recipe import Recipe, load_recipe
from fitformer.runtime.decoding import DecodeSettings
from fitformer.space import SearchSpace

TASKS = ("wmt14-ende", "wmt14-enfr", "wmt19-ende", "iwslt14-deen")
WMT = {
    "updates": 40_000,
    "schedule": "cosine",
    "initial_learning_rate": 1e-7,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-7,
    "batch_tokens": 4096,
    "accumulate": 16 * 8,
    "betas": (0.9, 0.98),
    "epsilon": 1e-8,
    "weight_decay": 0.0,
    "clip_norm": 0.0,
    "dropout": 0.3,
    "attention_dropout": 0.1,
    "label_smoothing": 0.1,
    "patience": 0,
}
IWSLT = {
    "updates": 50_000,
    "schedule": "inverse_sqrt",
    "initial_learning_rate": 1e-7,
    "learning_rate": 5e-4,
    "batch_tokens": 4096,
    "accumulate": 1,
    "betas": (0.9, 0.98),
    "epsilon": 1e-8,
    "weight_decay": 1e-4,
    "clip_norm": 25.0,
    "dropout": 0.375,
    "attention_dropout": 0.0,
    "label_smoothing": 0.1,
    "patience": 0,
    "precision": "fp32",
}
WARMUP = {"supernet": 10_000, "train": 4_000}
SEARCH = {
    "population_size": 125,
    "num_parents": 25,
    "num_mutations": 50,
    "mutation_prob": 0.3,
    "num_crossovers": 50,
    "num_generations": 30,
    "patience": None,
    "valid_sentences": None,
}
# merges, joint dictionary, languages, every so-many-th training pair that is a validation pair, lower case
TEXT: dict[str, tuple[int, bool, str, str, int | None, bool]] = {
    "wmt14-ende": (32_000, True, "en", "de", None, False),
    "wmt14-enfr": (40_000, True, "en", "fr", 1333, False),
    "wmt19-ende": (40_000, True, "en", "de", None, False),
    "iwslt14-deen": (10_000, False, "de", "en", 23, True),
}
EVALUATION = {
    "wmt14-ende": (["newstest2013"], ["newstest2014"]),
    "wmt14-enfr": ([], ["newstest2014"]),
    "wmt19-ende": (["newstest2017"], ["newstest2018"]),
    "iwslt14-deen": ([], ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]),
}


@pytest.fixture
def recipe(request: pytest.FixtureRequest, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recipe:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    return load_recipe(repository / "recipes" / f"{request.param}.yaml")


def is_wmt(recipe: Recipe) -> bool:
    return recipe.name.startswith("wmt")


def stated(section: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in values}


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
@pytest.mark.parametrize("stage", ["supernet", "train"])
def test_hyper_parameters_are_the_originals(recipe: Recipe, stage: str) -> None:
    wanted = {**(WMT if is_wmt(recipe) else IWSLT), "warmup": WARMUP[stage]}
    assert stated(getattr(recipe, stage), wanted) == wanted


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_values_that_matter_are_written_in_the_recipe_not_left_to_defaults(recipe: Recipe, repository: Path) -> None:
    """A default that changes one day must not change what these recipes mean."""
    for stage in ("supernet", "train"):
        missing = set(WMT if is_wmt(recipe) else IWSLT) - getattr(recipe, stage).model_fields_set
        assert missing <= {"patience"}
    assert set(SEARCH) - recipe.search.model_fields_set <= {"patience", "valid_sentences"}
    assert {"sampling"} <= recipe.supernet.model_fields_set


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_the_supertransformer_is_sampled_uniformly_and_the_subtransformer_starts_from_nothing(recipe: Recipe) -> None:
    assert recipe.supernet.sampling == "uniform"
    assert not recipe.supernet.largest_first and not recipe.supernet.importance_sorting
    assert recipe.train.start == "scratch"


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_models_are_post_norm_with_hats_tables_and_positions(recipe: Recipe) -> None:
    model = recipe.model
    assert (model.pre_norm, model.start, model.position_offset) == (False, "eos", 2)
    assert model.share_embeddings == ("all" if is_wmt(recipe) else "none")
    space = recipe.search_space()
    assert space == SearchSpace.preset("hat-wmt" if is_wmt(recipe) else "hat-iwslt")
    assert space is not None and space.size() == 417_846_678_672_384


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_the_search_has_the_constants_of_all_eight_configurations(recipe: Recipe) -> None:
    assert stated(recipe.search, SEARCH) == SEARCH


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_latency_is_measured_at_the_originals_lengths_and_beam(recipe: Recipe) -> None:
    length = 30 if is_wmt(recipe) else 23
    measure = recipe.measure
    assert (measure.source_length, measure.target_length) == (length, length)
    assert (measure.batch_size, measure.beam, measure.warmup, measure.architectures) == (1, 5, 5, 2000)


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_translations_are_generated_as_in_the_originals_test_scripts(recipe: Recipe) -> None:
    export = recipe.export
    assert (export.beam, export.length_penalty) == ((4, 0.6) if is_wmt(recipe) else (5, 1.0))
    settings = DecodeSettings(**export.model_dump(exclude={"check_sentences"}))
    for length in (1, 50, 250):  # --max-len-a 0 --max-len-b 200, the end of the sentence not counted
        assert settings.length_cap(length, limit=10_000) == 200
    assert export.no_repeat_ngram == 0 and not recipe.compress.int8
    assert recipe.train.average_last == (1 if is_wmt(recipe) else 10)


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_text_is_cut_as_in_the_originals_scripts(recipe: Recipe) -> None:
    merges, joint, source, target, every, lowercase = TEXT[recipe.name]
    tokenizer = recipe.prepare.tokenizer
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.joint) == ("subword-nmt", merges, joint)
    assert (tokenizer.moses, tokenizer.lowercase) == (True, lowercase)
    assert (recipe.data.source_language, recipe.data.target_language) == (source, target)
    assert recipe.data.valid_every == every
    names = [
        [path.name for path in corpus.source] if corpus else [] for corpus in (recipe.data.valid, recipe.data.test)
    ]
    for found, wanted in zip(names, EVALUATION[recipe.name], strict=True):
        assert len(found) == len(wanted) and all(part in name for name, part in zip(found, wanted, strict=True))


@pytest.mark.parametrize("recipe", TASKS, indirect=True)
def test_cleaning_is_that_of_the_originals_scripts(recipe: Recipe) -> None:
    """clean-corpus-n 1 80 (its own ratio of 9), 1 250 of subwords, or 1 175; ratio 1.5; nothing else is dropped."""
    cleaning, most = recipe.prepare.cleaning, recipe.prepare.max_tokens
    words, ratio, tokens = {
        "wmt14-ende": (80, 9.0, 512),
        "wmt14-enfr": (250, 1.5, 251),
        "wmt19-ende": (250, 1.5, 251),
        "iwslt14-deen": (175, 1.5, 512),
    }[recipe.name]
    assert (cleaning.max_words, cleaning.max_ratio, most) == (words, ratio, tokens)
    assert not cleaning.drop_duplicates and not cleaning.drop_evaluation_sources


@pytest.mark.parametrize("name", TASKS[:3])
def test_the_names_of_public_corpora_in_the_comments_can_take_the_place_of_the_files(
    name: str, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    path = repository / "recipes" / f"{name}.yaml"
    _, _, after = path.read_text(encoding="utf-8").partition("Fetched by name instead")
    comment = [line[1:].strip() for line in after.partition("\ndata:")[0].splitlines()[1:]]
    named = yaml.safe_load("\n".join(comment))
    assert set(named) == ({"train", "test"} if name == "wmt14-enfr" else {"train", "valid", "test"})
    recipe = load_recipe(path, [f"data.{split}={json.dumps(corpus)}" for split, corpus in named.items()])
    assert recipe.data.train is not None and len(recipe.data.train.mtdata) >= 3
    assert recipe.data.test is not None and recipe.data.test.sacrebleu


@pytest.mark.parametrize("name", TASKS)
def test_every_recipe_names_where_it_differs(name: str, repository: Path) -> None:
    text = (repository / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    comments = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    for words in ("Residual dropout after encoder self-attention", "fairseq's update n + 1", "last weights", "Moses"):
        assert words in comments
