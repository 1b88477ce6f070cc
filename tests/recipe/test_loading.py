"""Recipes: what is shipped loads, what is misspelt is named with the nearest spelling, every mistake is one line."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fitformer.errors import RecipeError
from fitformer.recipe import Recipe, load_recipe, parse_recipe
from fitformer.space import Architecture, SearchSpace

SHIPPED = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
ARCHITECTURE = "enc 64: 128/64/4 | dec 64: 128/64/4/4@0"
SPACE_RECIPE: dict[str, Any] = {
    "name": "test",
    "data": {"source_language": "en", "target_language": "de", "builtin": "numbers"},
    "space": "small",
    "targets": [{"device": "cpu", "latency": "50%"}],
}
ONE_ARCHITECTURE = {name: 2 if name.endswith("dim") else 1 for name in SearchSpace.preset("small").to_dict()}
FILES_RECIPE: dict[str, Any] = {
    "name": "test",
    "data": {
        "source_language": "en",
        "target_language": "de",
        "train": {"source": "a.en", "target": "a.de"},
        "valid": {"source": ["b.en", "c.en"], "target": ["b.de", "c.de"]},
        "test": {"files": "d.tsv"},
    },
    "architecture": ARCHITECTURE,
}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at a dotted path; list indices are numbers."""
    data = copy.deepcopy(base)
    inner: Any = data
    *sections, last = path.split(".")
    for section in sections:
        inner = inner[int(section)] if isinstance(inner, list) else inner.setdefault(section, {})
    inner[last] = value
    return data


def refuse(data: Any, overrides: tuple[str, ...] = ()) -> str:
    """The one line that a wrong recipe is refused with."""
    with pytest.raises(RecipeError) as caught:
        parse_recipe(data, overrides=overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- what is shipped --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_recipe_loads(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    recipe = load_recipe(path)
    assert (recipe.search_space() is None) != (recipe.fixed_architecture() is None)
    assert path.read_text(encoding="utf-8").startswith("# ")  # says what it is for


def test_there_are_recipes_to_load() -> None:
    assert {"demo.yaml", "multi30k-ende.yaml"} <= {path.name for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_resolved_recipe_reads_back_as_itself(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run folder keeps the recipe with all defaults filled in; it must mean the same."""
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path))
    recipe = load_recipe(path)
    resolved = yaml.safe_load(yaml.safe_dump(recipe.model_dump(mode="json")))
    assert parse_recipe(resolved) == recipe


# -- misspelt keys ----------------------------------------------------------------------------------------------------


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every section of the recipe with the path of one of its kind."""
    yield path, model
    for name, field in model.model_fields.items():
        inner = f"{path}.{name}".lstrip(".")
        for argument in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(argument, type) and issubclass(argument, BaseModel):
                step = {"targets": ".0", "devices": ".cpu"}.get(name, "")
                yield from sections(argument, inner + step)


ALL_SECTIONS = dict(sections(Recipe))
ALL_SETTINGS = [f"{path}.{name}".lstrip(".") for path, model in ALL_SECTIONS.items() for name in model.model_fields]


def test_the_sections_are_the_documented_ones() -> None:
    stages = {"prepare", "supernet", "measure", "search", "train", "compress", "export"}
    deeper = {"data.train", "data.valid", "data.test", "prepare.tokenizer", "prepare.cleaning"}
    assert stages | deeper | {"", "data", "model", "targets.0", "devices.cpu"} <= set(ALL_SECTIONS)


@pytest.mark.parametrize("setting", ALL_SETTINGS)
def test_every_misspelt_key_is_named_with_the_right_one(setting: str) -> None:
    section, _, name = setting.rpartition(".")
    misspelt = f"{section}.{name[:-1]}{name[-1] * 2}x".lstrip(".")
    base = FILES_RECIPE if section.startswith("data.") else SPACE_RECIPE
    message = refuse(changed(base, misspelt, 1))
    assert message.startswith(f"recipe: {misspelt}: no such setting (did you mean '{name}'?); allowed here: ")
    assert name in message.partition("allowed here: ")[2].split(", ")


def test_a_key_like_no_other_gets_the_list_alone() -> None:
    assert "did you mean" not in refuse(changed(SPACE_RECIPE, "search.qqqqqq", 1))


def test_a_misspelt_key_hides_the_missing_right_one() -> None:
    data = copy.deepcopy(SPACE_RECIPE)
    data["data"]["source_langage"] = data["data"].pop("source_language")
    assert "data.source_langage: no such setting (did you mean 'source_language'?)" in refuse(data)


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", "../elsewhere", "name: '../elsewhere' is not allowed; string should match"),
        ("name", "two\nlines", r"name: 'two\nlines' is not allowed"),
        ("seed", -1, "seed: -1 is not allowed; input should be greater than or equal to 0"),
        ("supernet.updates", 0, "supernet.updates: 0 is not allowed; input should be greater than or equal to 1"),
        ("supernet.updates", "many", "supernet.updates: 'many' is not allowed; input should be a valid integer"),
        ("supernet.dropout", 1.0, "supernet.dropout: 1.0 is not allowed; input should be less than 1"),
        ("supernet.initial_learning_rate", 1, "initial_learning_rate: 1.0 must not exceed learning_rate (0.002)"),
        ("supernet.learning_rate", 0, "supernet.learning_rate: 0 is not allowed; input should be greater than 0"),
        ("supernet.betas", [0.9, 1.5], "supernet.betas.1: 1.5 is not allowed"),
        ("supernet.schedule", "cosin", "'cosin' is not allowed (did you mean 'cosine'?); input should be 'cosine', "),
        ("supernet.precision", "fp16", "supernet.precision: 'fp16' is not allowed"),
        ("supernet", None, "supernet: None is not allowed"),
        ("search", [1], "search: [1] is not allowed"),
        ("train.start", "inherit", "train.start: 'inherit' is not allowed (did you mean 'inherited'?)"),
        ("prepare.tokenizer.kind", "bpee", "prepare.tokenizer.kind: 'bpee' is not allowed (did you mean 'bpe'?)"),
        ("prepare.cleaning.max_ratio", 0.5, "prepare.cleaning.max_ratio: 0.5 is not allowed"),
        ("measure.architectures", 3, "measure.architectures: 3 is not allowed; input should be greater than or equal"),
        ("data.builtin", "number", "data.builtin: 'number' is not allowed (did you mean 'numbers'?)"),
        ("data.train", {"source": "a", "target": "b"}, "data: give either 'train' (your files) or 'builtin'"),
        ("data", {"source_language": "en", "target_language": "de"}, "data: give either 'train' (your files) or"),
        ("data", {"target_language": "de", "builtin": "numbers"}, "data.source_language: missing"),
        ("targets", [], "targets: give at least one, for example {device: cpu, latency: 50%}"),
        ("targets", "cpu@5ms", "targets: 'cpu@5ms' is not allowed"),
        ("targets", ["cpu@5ms"], "targets.0: 'cpu@5ms' is not allowed"),
        ("targets", [{"device": "cpu"}], "targets.0.latency: missing"),
        ("targets", [{"device": "pi", "latency": 5}], "targets: device 'pi' is not under devices (cpu)"),
        ("devices", {"../x": {}}, "'../x' is not allowed"),
        ("space", "smal", "space: no preset 'smal' (did you mean 'small'?); there are: hat-iwslt"),
        ("space", 5, "space: 5 is not allowed"),
        ("space", ["small"], "space: ['small'] is not allowed"),
        ("space", {"encoder_ffn_dims": [8]}, "space.encoder_ffn_dims: no such dimension (did you mean"),
        ("space", {"encoder_ffn_dim": [8]}, "space.encoder_embed_dim: missing"),
        ("space", ONE_ARCHITECTURE, "space: holds 1 architectures, and latencies are learned from at least 5"),
        ("targets", [{"latency": "5ms"}] * 2, "targets: cpu@5ms is given 2 times"),
        ("measure.target_length", 513, "measure.target_length: 513 is more than the model can hold, 512"),
        ("seed", 2**63, f"seed: {2**63} is not allowed; input should be less than or equal to"),
        ("supernet.updates", 10**12, "supernet.updates: 1000000000000 is not allowed"),
        ("prepare.tokenizer.vocab_size", 10**13, "prepare.tokenizer.vocab_size: 10000000000000 is not allowed"),
        ("supernet.threads", 100_000, "supernet.threads: 100000 is not allowed"),
        ("devices", {"cpu": {"threads": 100_000}}, "devices.cpu.threads: 100000 is not allowed"),
        (
            "supernet.learning_rate",
            float("inf"),
            "supernet.learning_rate: inf is not allowed; input should be a finite",
        ),
        ("export.length_penalty", float("nan"), "export.length_penalty: nan is not allowed"),
        ("export.beam", 10**6, "export.beam: 1000000 is not allowed"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(path: str, value: Any, message: str) -> None:
    assert refuse(changed(SPACE_RECIPE, path, value)).startswith("recipe: ")
    assert message in refuse(changed(SPACE_RECIPE, path, value))


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({"source": "a"}, "data.train: 1 source files and 0 target files must be as many"),
        ({"source": ["a", "b"], "target": ["c"]}, "data.train: 2 source files and 1 target files must be as many"),
        ({"source": "a", "target": "b", "files": "c"}, "data.train: give either source and target files, or files"),
        ({}, "data.train: give either source and target files, or files that hold both"),
        ({"source": 3, "target": "b"}, "data.train.source: 3 is not allowed"),
        ({"mtdata": "a-b-1-deu-eng", "files": "c"}, "data.train: give either source and target files, or files"),
        ({"mtdata": "europarl"}, "mtdata: 'europarl' is no name such as Statmt-europarl-9-deu-eng"),
        ({"mtdata": ["a-b-1-de-en", "a-b-1-de-en"]}, "mtdata: 'a-b-1-de-en' is given twice"),
        ({"mtdata": "a-b/../c-1-deu-eng"}, "mtdata: 'a-b/../c-1-deu-eng' is no name"),
        ({"sacrebleu": "wmt14"}, "train.sacrebleu: a test set is not to be trained on"),
        ({"sacrebleu": "/etc/passwd"}, "sacrebleu: '/etc/passwd' is no name such as wmt14/full"),
    ],
)
def test_a_corpus_has_one_form(corpus: dict[str, Any], message: str) -> None:
    assert message in refuse(changed(FILES_RECIPE, "data.train", corpus))


@pytest.mark.parametrize(
    ("file", "kind"),
    [("a.tsv", "tsv"), ("a.jsonl.gz", "jsonl"), ("x.y/a.PO", "po"), ("a.tmx", "tmx")],
)
def test_the_format_of_a_corpus_is_its_ending(file: str, kind: str) -> None:
    recipe = parse_recipe(changed(FILES_RECIPE, "data.train", {"files": file}))
    assert recipe.data.train is not None
    assert recipe.data.train.format == kind
    assert parse_recipe(FILES_RECIPE).data.train.format == "parallel"  # type: ignore[union-attr]


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_a_recipe_is_a_mapping(data: Any) -> None:
    assert "a recipe is a mapping of sections" in refuse(data)


def test_a_section_of_numbers_is_refused_like_any_other_mistake() -> None:
    assert "1 is not allowed" in refuse({**SPACE_RECIPE, 1: 2})


# -- space or architecture, targets -----------------------------------------------------------------------------------


def test_space_and_architecture_exclude_each_other() -> None:
    expected = "give either 'space' (to search in) or 'architecture' (to train as it is)"
    assert expected in refuse({**SPACE_RECIPE, "architecture": ARCHITECTURE})
    assert expected in refuse({key: value for key, value in SPACE_RECIPE.items() if key != "space"})


def test_a_space_is_a_preset_or_a_mapping() -> None:
    preset = SearchSpace.preset("small")
    assert parse_recipe(SPACE_RECIPE).search_space() == preset
    recipe = parse_recipe({**SPACE_RECIPE, "space": preset.to_dict()})
    assert recipe.search_space() == preset
    assert recipe.fixed_architecture() is None


def test_an_architecture_is_a_line_or_a_mapping_and_needs_no_target() -> None:
    expected = Architecture.from_text(ARCHITECTURE)
    for form in (ARCHITECTURE, expected.to_dict()):
        recipe = parse_recipe({**FILES_RECIPE, "architecture": form})
        assert recipe.fixed_architecture() == expected
        assert recipe.search_space() is None
        assert recipe.targets == ()


@pytest.mark.parametrize("form", ["enc 64", {"encoder_embed_dim": 64}, ARCHITECTURE.replace("64/4 ", "64/5 ")])
def test_a_wrong_architecture_is_one_line(form: Any) -> None:
    assert "architecture: " in refuse({**FILES_RECIPE, "architecture": form})


@pytest.mark.parametrize(
    ("latency", "name", "limit"),
    [
        ("12ms", "cpu@12ms", 12.0),
        ("2.5 ms", "cpu@2.5ms", 2.5),
        (40, "cpu@40ms", 40.0),
        (2.5, "cpu@2.5ms", 2.5),
        ("50%", "cpu@50%", 30.0),
        ("12.5 %", "cpu@12.5%", 7.5),
    ],
)
def test_a_limit_is_a_time_or_a_share_of_the_largest(latency: Any, name: str, limit: float) -> None:
    (target,) = parse_recipe(changed(SPACE_RECIPE, "targets", [{"latency": latency}])).targets
    assert target.name == name
    assert target.limit_ms(60.0) == pytest.approx(limit)


@pytest.mark.parametrize(
    "latency", ["fast", "12", "12s", "-5ms", "0ms", "0%", "1e3ms", "5ms/../x", "", True, float("nan")]
)
def test_a_limit_of_another_form_is_refused(latency: Any) -> None:
    message = refuse(changed(SPACE_RECIPE, "targets", [{"latency": latency}]))
    assert f"targets.0.latency: '{latency}' must be a time such as '12ms' or a share of the largest" in message


# -- files, environment, --set ----------------------------------------------------------------------------------------


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
    return path


def test_relative_files_stand_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(tmp_path / "recipe.yaml", changed(FILES_RECIPE, "data.test", {"files": "/data/d.tsv"}))
    for path in (tmp_path / "recipe.yaml", Path("../recipe.yaml")):
        data = load_recipe(path).data
        assert data.train is not None
        assert data.valid is not None
        assert data.test is not None
        assert [file.resolve() for file in data.train.source] == [tmp_path.resolve() / "a.en"]
        assert [file.name for file in data.valid.target] == ["b.de", "c.de"]
        assert all(file.is_absolute() for file in (*data.train.target, *data.valid.source))
        assert data.test.files == (Path("/data/d.tsv"),)


def test_variables_come_from_the_environment_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS", "/corpora")
    monkeypatch.setenv("LANGUAGE_A", "fr")
    data = changed(FILES_RECIPE, "data.valid.source", ["${CORPUS}/b.${LANGUAGE_A}", "${CORPUS}/c.en"])
    recipe = load_recipe(write(tmp_path / "recipe.yaml", data))
    assert recipe.data.valid is not None
    assert recipe.data.valid.source == (Path("/corpora/b.fr"), Path("/corpora/c.en"))


def test_an_unset_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FITFORMER_DATA", raising=False)
    path = write(tmp_path / "recipe.yaml", changed(FILES_RECIPE, "data.train.source", "${FITFORMER_DATA}/a.en"))
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value) == (
        f"{path}: the environment variable FITFORMER_DATA is not set; '${{FITFORMER_DATA}}/a.en' needs it"
    )


def test_set_overrides_a_value_at_any_depth() -> None:
    recipe = parse_recipe(
        copy.deepcopy(SPACE_RECIPE),
        overrides=[
            "supernet.updates=7",
            "prepare.tokenizer.kind=bpe",
            "train.learning_rate=1e-3",
            "targets=[{latency: 9ms}]",
            "seed=4",
            "supernet.updates=8",  # the last one counts
            "data.licence=a = b",
        ],
    )
    assert recipe.supernet.updates == 8
    assert recipe.prepare.tokenizer.kind == "bpe"
    assert recipe.train.learning_rate == 0.001
    assert [target.name for target in recipe.targets] == ["cpu@9ms"]
    assert recipe.seed == 4
    assert recipe.data.licence == "a = b"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("supernet.updates", "--set supernet.updates: expected section.key=value"),
        ("=5", "--set =5: expected section.key=value"),
        ("supernet.updatess=5", "supernet.updatess: no such setting (did you mean 'updates'?)"),
        ("supernt.updates=5", "supernt: no such setting (did you mean 'supernet'?)"),
        ("name.x=5", "--set name.x=5: 'name' is not a section"),
        ("targets.0.latency=5ms", "--set targets.0.latency=5ms: 'targets' is not a section"),
        ("supernet.updates=[1", "--set supernet.updates=[1:1: not valid YAML"),
        ("supernet.updates=", "supernet.updates: None is not allowed"),
    ],
)
def test_a_wrong_override_is_named(override: str, message: str) -> None:
    assert message in refuse(copy.deepcopy(SPACE_RECIPE), (override,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [1\ndata: {", ":2: not valid YAML"),
        (b"name: test\n\tdata: 1\n", ":2: not valid YAML"),
        (b"name: \xff\xfe", ": cannot be read"),
        (b"", ": a recipe is a mapping of sections"),
        (b"- a\n", ": a recipe is a mapping of sections"),
        (b"!!python/object/apply:os.getcwd []", ": not valid YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(str(path))
    assert message.lstrip(":") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_recipe_and_a_folder_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"none\.yaml: no such recipe"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path)


# -- the reference for users ------------------------------------------------------------------------------------------


def test_every_section_says_what_it_is_for() -> None:
    assert all((model.__doc__ or "").strip() for model in ALL_SECTIONS.values())


def test_a_recipe_does_not_change_after_reading() -> None:
    recipe = parse_recipe(SPACE_RECIPE)
    with pytest.raises(ValueError, match="frozen"):
        recipe.supernet.updates = 1


def test_the_defaults_are_those_of_hat_where_hat_has_them() -> None:
    """Population 125, 25 parents, 50 mutations with probability 0.3, 50 crossovers, 30 generations."""
    search = parse_recipe(SPACE_RECIPE).search
    assert (search.population_size, search.num_parents, search.num_generations) == (125, 25, 30)
    assert (search.num_mutations, search.mutation_prob, search.num_crossovers) == (50, 0.3, 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nname: a\nseed: 2\n", r"recipe\.yaml:3: not valid YAML \('seed' is given twice\)"),
        ("supernet:\n  updates: 1\n  updates: 2\n", r"recipe\.yaml:3: .*'updates' is given twice"),
        ("name: 2024-13-45\n", r"recipe\.yaml: not valid YAML \(month must be in 1\.\.12"),
        ("name: &x [*x]\n", r"recipe\.yaml.*: not valid YAML"),
        ("name: " + "[" * 5000, r"recipe\.yaml.*: not valid YAML"),
        ("name: !!python/object:os.system x\n", r"recipe\.yaml:1: not valid YAML"),
    ],
)
def test_text_that_yaml_itself_stumbles_over_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(tmp_path / "recipe.yaml")
    assert "\n" not in str(caught.value)


def test_a_merged_section_may_be_changed_in_part(tmp_path: Path) -> None:
    text = yaml.safe_dump(SPACE_RECIPE)
    text += "supernet: &training {updates: 7, warmup: 3}\ntrain:\n  <<: *training\n  warmup: 5\n"
    (tmp_path / "recipe.yaml").write_text(text)
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert (recipe.train.updates, recipe.train.warmup, recipe.supernet.warmup) == (7, 5, 3)


def test_a_share_of_the_largest_needs_a_space() -> None:
    data = {**FILES_RECIPE, "targets": [{"device": "cpu", "latency": "50%"}]}
    assert "'50%' is a share of the space's largest architecture" in refuse(data)
    assert parse_recipe({**data, "targets": [{"device": "cpu", "latency": "5ms"}]}).targets[0].latency == "5ms"


def test_defaults_are_those_of_a_recipe_that_sets_nothing() -> None:
    """What older runs are taken to have done with settings that came later must be what new runs do."""
    dumped, defaults = parse_recipe(copy.deepcopy(SPACE_RECIPE)).model_dump(mode="json"), Recipe.defaults()
    for given in SPACE_RECIPE:
        dumped.pop(given), defaults.pop(given, None)
    assert defaults == dumped


def test_an_output_of_no_tokens_is_refused_and_one_of_the_offset_alone_is_not() -> None:
    alone = changed(SPACE_RECIPE, "export", {"max_length_ratio": 0, "max_length_offset": 200})
    assert parse_recipe(alone).export.max_length_offset == 200
    nothing = changed(SPACE_RECIPE, "export", {"max_length_ratio": 0, "max_length_offset": 0})
    assert "max_length_offset: 0 with max_length_ratio 0 leaves no output" in refuse(nothing)


def test_validation_pairs_are_given_or_counted_not_both() -> None:
    data = changed(FILES_RECIPE, "data.valid_every", 23)
    assert "give either 'valid' (your files) or 'valid_every' (of the training pairs)" in refuse(data)
    del data["data"]["valid"]
    assert parse_recipe(data).data.valid_every == 23
    assert "data.valid_every: 1 is not allowed" in refuse(changed(data, "data.valid_every", 1))


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"moses": True}, "moses: belongs to kind subword-nmt, not unigram"),
        ({"kind": "bpe", "codes": "x"}, "codes: belongs to kind subword-nmt, not bpe"),
        ({"kind": "subword-nmt", "normalise": True}, "normalise: needs moses"),
        ({"kind": "subword-nmt", "source_dictionary": "x"}, "give both or none"),
        ({"kind": "subword-nmt", "source_dictionary": "x", "target_dictionary": "y"}, "joint must be false"),
        ({"kind": "subwordnmt"}, "prepare.tokenizer.kind: 'subwordnmt' is not allowed (did you mean 'subword-nmt'?)"),
    ],
)
def test_settings_of_the_tokenizer_fit_its_kind(tokenizer: dict[str, Any], message: str) -> None:
    assert message in refuse(changed(SPACE_RECIPE, "prepare.tokenizer", tokenizer))


def test_files_of_the_tokenizer_stand_beside_the_recipe(tmp_path: Path) -> None:
    tokenizer = {"kind": "subword-nmt", "codes": "codes", "moses": True}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(changed(SPACE_RECIPE, "prepare.tokenizer", tokenizer)))
    assert load_recipe(tmp_path / "recipe.yaml").prepare.tokenizer.files() == {"codes": tmp_path / "codes"}


def test_text_by_name_is_recorded_and_files_are_recorded_as_before() -> None:
    """A run folder from before there were names holds no such settings, and stays valid."""
    named = changed(FILES_RECIPE, "data.train", {"mtdata": "Statmt-europarl-9-deu-eng"})
    named = changed(named, "data.test", {"sacrebleu": ["wmt14/full"]})
    data = parse_recipe(named).model_dump(mode="json")["data"]
    assert data["train"]["mtdata"] == ["Statmt-europarl-9-deu-eng"] and data["test"]["sacrebleu"] == ["wmt14/full"]
    plain = parse_recipe(changed(FILES_RECIPE, "seed", 2)).model_dump(mode="json")["data"]["train"]
    assert set(plain) == {"source", "target", "files", "source_field", "target_field"}
