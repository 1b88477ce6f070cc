"""``fit`` and the stage commands hand the recipe to the pipeline, and what it says to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fitformer
from fitformer import stages
from fitformer.cli.fit import STAGE_HELP
from fitformer.errors import InputError, NotPossibleError

Command = Callable[..., Any]

RECIPE = """
name: tiny
data: {source_language: en, target_language: de, builtin: numbers}
space: small
targets: [{device: cpu, latency: 50%}]
"""
SCORES = {
    "bleu": {"score": 20.71, "interval": [19.0, 22.4], "signature": "s"},
    "chrf": {"score": 49.7, "interval": [48.0, 51.0], "signature": "t"},
}
SUMMARY = {
    "run": "runs/tiny",
    "targets": [
        {
            "target": "cpu@50%",
            "bundle": "runs/tiny/export/cpu@50%",
            "limit_ms": 12.5,
            "measured_ms": 11.25,
            "predicted_ms": None,
            "timed": {"beam": 1, "batch_size": 1, "source_length": 10, "target_length": 12},
            "scored": {"beam": 4, "median_ms": 31.5},
            "precision": "int8",
            "scores": SCORES,
            "baselines": {
                "split": "test",
                "sentences": 1000,
                "train_pairs": 5,
                "copy_source": SCORES,
                "nearest_translation": SCORES,
            },
            "samples": [{"source": "a [b] c", "reference": "d", "translation": "e"}],
        }
    ],
    "cost": {
        "device_hours": 1.5,
        "kwh": 0.178,
        "co2_kg": 0.077,
        "price": 0.15,
        "currency": "USD",
        "basis": "estimated",
        "basis_line": "energy estimated: 65 W for the processors, 10 W for the memory",
        "stages": [],
    },
    "report": "runs/tiny/report/index.html",
}


class Pipeline:
    """Stands in for the pipeline: remembers its calls and returns what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        self.summary: dict[str, Any] = SUMMARY
        self.failure: BaseException | None = None

    def Run(self, recipe: Any, path: Path) -> Any:
        return SimpleNamespace(recipe=recipe, path=path)

    def fit(self, run: Any, *, until: str | None = None) -> dict[str, Any]:
        self.calls.append(("fit", run, until))
        if self.failure is not None:
            raise self.failure
        return self.summary

    def dry_run(self, run: Any, *, until: str | None = None) -> dict[str, Any]:
        self.calls.append(("dry_run", run, until))
        return {
            "run": str(run.path),
            "stages": [{"stage": "prepare", "state": "done"}],
            "missing_files": ["a.en", "b.en", "c.en", "d.en"],
            "rehearsal": {"models": []},
        }


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pipeline:
    """The stand-in, a recipe, and an empty working folder."""
    fake = Pipeline()
    monkeypatch.setitem(sys.modules, "fitformer.pipeline", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(fitformer, "pipeline", fake, raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)
    return fake


def test_the_user_sees_limit_latency_scores_samples_and_what_to_try_next(cli: Command, pipeline: Pipeline) -> None:
    shown = cli("fit", "recipe.yaml").stdout
    for words in (
        "limit     12.5 ms",
        "measured  11.2 ms",
        "20.7 [19.0, 22.4]",
        "49.7 [48.0, 51.0]",
        "1,000 unseen lines",
        "copy of the source",
        "copy of the most similar training translation",
        "source       a [b] c\n  reference    d\n  translation  e",
        "bundle  runs/tiny/export/cpu@50%",
        "report  runs/tiny/report/index.html",
        "| fitformer translate runs/tiny/export/cpu@50%",
    ):
        assert words in shown, words


def test_limit_and_scores_say_under_which_conditions_they_are(cli: Command, pipeline: Pipeline) -> None:
    shown = cli("fit", "recipe.yaml").stdout
    assert (
        "timed with beam 1, 10 tokens in and 12 out; scored with beam 4, where a line of the test set takes 31.5"
        in shown
    )


def test_the_next_command_is_one_that_the_shell_finds(
    cli: Command, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    for environment, shown in (
        (tmp_path / ".venv", ".venv"),
        (tmp_path.parent / "venv", str(tmp_path.parent / "venv")),
    ):
        (environment / "bin").mkdir(parents=True)
        (environment / "bin" / "fitformer").touch()
        monkeypatch.setattr("sys.executable", str(environment / "bin" / "python"))
        assert f"| {shown}/bin/fitformer translate runs/tiny" in cli("fit", "recipe.yaml").stdout


def test_a_stopped_run_names_the_command_that_goes_on(cli: Command, pipeline: Pipeline) -> None:
    pipeline.summary = {"run": "elsewhere", "targets": [], "report": None}
    shown = cli("search", "recipe.yaml", "--run", "else where").stdout
    assert "fitformer fit recipe.yaml --run 'else where'" in shown


def test_fit_runs_everything_in_the_folder_of_the_recipes_name(cli: Command, pipeline: Pipeline) -> None:
    assert cli("fit", "recipe.yaml").exit_code == 0
    ((_, run, until),) = pipeline.calls
    assert (run.path, until, run.recipe.name) == (Path("runs/tiny"), None, "tiny")


@pytest.mark.parametrize("stage", STAGE_HELP)
def test_a_stage_command_is_fit_until_that_stage(cli: Command, pipeline: Pipeline, stage: str) -> None:
    assert cli(stage, "recipe.yaml", "--run", "here").exit_code == 0
    assert cli("fit", "recipe.yaml", "--run", "here", "--until", stage).exit_code == 0
    assert [(run.path, until) for _, run, until in pipeline.calls] == [(Path("here"), stage)] * 2


def test_set_changes_the_recipe(cli: Command, pipeline: Pipeline) -> None:
    assert cli("fit", "recipe.yaml", "--set", "seed=7", "--set", "supernet.updates=12").exit_code == 0
    recipe = pipeline.calls[0][1].recipe
    assert (recipe.seed, recipe.supernet.updates) == (7, 12)


def test_dry_run_asks_for_a_plan_and_creates_nothing(cli: Command, document: Command, pipeline: Pipeline) -> None:
    shown = cli("fit", "recipe.yaml", "--dry-run", "--rerun", "prepare").stdout
    assert "prepare" in shown and "missing  a.en, b.en, c.en and 1 more files; fit needs them" in shown
    assert "nothing to train up to that stage" in shown
    assert document("fit", "recipe.yaml", "--dry-run")["run"] == "runs/tiny"
    assert [name for name, _, _ in pipeline.calls] == ["dry_run", "dry_run"]
    assert not Path("runs").exists()


def test_rerun_forgets_the_stage_and_the_later_ones(cli: Command, pipeline: Pipeline) -> None:
    for stage in ("prepare", "supernet", "measure/cpu", "search/cpu@50%"):
        folder = Path("runs/tiny") / stage
        folder.mkdir(parents=True)
        (folder / "done.json").write_text("{}")
    assert cli("fit", "recipe.yaml", "--rerun", "measure").exit_code == 0
    assert sorted(path.name for path in Path("runs/tiny").iterdir()) == [".lock", "prepare", "supernet"]


def test_rerun_deletes_nothing_when_the_recipe_does_not_fit_the_stages_before(
    refusal: Command, pipeline: Pipeline
) -> None:
    folder = Path("runs/tiny/measure/cpu")
    folder.mkdir(parents=True)
    (folder / "done.json").write_text("{}")
    pipeline.failure = InputError("supernet.updates: is 3, but supernet was finished with 5")
    assert "supernet.updates" in refusal(2, "fit", "recipe.yaml", "--rerun", "measure")
    assert folder.exists()
    assert [until for _, _, until in pipeline.calls] == ["supernet"]


def test_rerun_never_deletes_what_is_not_of_a_run(refusal: Command, pipeline: Pipeline) -> None:
    Path("train").mkdir()
    Path("train/precious.txt").touch()
    assert "was not made by fitformer" in refusal(2, "fit", "recipe.yaml", "--run", ".", "--rerun", "search")
    assert Path("train/precious.txt").exists() and not pipeline.calls


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such recipe"),
        (["."], "cannot be read"),
        (["recipe.yaml", "--until", "serch"], "--until: no stage 'serch' (did you mean 'search'?)"),
        (["recipe.yaml", "--rerun", "tran"], "--rerun: no stage 'tran' (did you mean 'train'?)"),
        (["recipe.yaml", "--until", "train", "--rerun", "export"], "--rerun: export comes after train"),
        (["recipe.yaml", "--run", "recipe.yaml"], "--run: recipe.yaml is a file"),
        (["recipe.yaml", "--set", "seed"], "expected section.key=value"),
        (["recipe.yaml", "--set", "supernet.update=3"], "supernet.update: no such setting (did you mean 'updates'?)"),
        (["misspelt.yaml"], "supernet.lerning_rate: no such setting (did you mean 'learning_rate'?)"),
        (["broken.yaml"], "broken.yaml:2: not valid YAML"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    refusal: Command, pipeline: Pipeline, words: list[str], named: str
) -> None:
    Path("misspelt.yaml").write_text(RECIPE + "supernet: {lerning_rate: 0.1}\n")
    Path("broken.yaml").write_text("name: [\n")
    assert named in refusal(2, "fit", *words)
    assert not pipeline.calls and not Path("runs").exists()


def test_a_limit_that_cannot_be_reached_is_exit_code_1(refusal: Command, pipeline: Pipeline) -> None:
    pipeline.failure = NotPossibleError("search cpu@1ms: the smallest architecture takes 3 ms")
    assert "the smallest architecture takes 3 ms" in refusal(1, "fit", "recipe.yaml")


def test_an_interrupt_says_how_to_go_on(cli: Command, pipeline: Pipeline) -> None:
    pipeline.failure = KeyboardInterrupt()
    for command in ("fit", "supernet"):
        result = cli(command, "recipe.yaml")
        assert result.exit_code == 130
        assert result.stderr == "stopped; run the same command again to continue\n"


def test_two_runs_in_one_folder_are_refused(refusal: Command, pipeline: Pipeline) -> None:
    with stages.locked(Path("runs/tiny")):
        assert "another fitformer process works in this folder" in refusal(1, "fit", "recipe.yaml")
