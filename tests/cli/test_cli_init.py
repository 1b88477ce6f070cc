"""The recipe that ``init`` writes is the reference of all settings, and it loads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fitformer.cli.init import EXAMPLES, template
from fitformer.recipe import Recipe, load_recipe, parse_recipe

Command = Callable[..., Any]


def settings(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation)


def test_it_loads_and_holds_every_default(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert cli("init", path).exit_code == 0
    needed: dict[str, Any] = {"name": "mine", "data": {}}
    for key, value in EXAMPLES.items():
        section, _, name = key.rpartition(".")
        (needed[section] if section else needed)[name] = value
    assert load_recipe(path) == parse_recipe(needed, folder=tmp_path)


def test_every_setting_stands_in_it(tmp_path: Path) -> None:
    text = template(tmp_path / "recipe.yaml")
    for name in settings(Recipe):
        assert re.search(rf"^ *(# |- )?{name}:", text, re.MULTILINE), name


def test_every_meaning_stands_in_it(tmp_path: Path) -> None:
    text = " ".join(template(tmp_path / "recipe.yaml").replace("#", " ").split())

    def check(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            section = field.annotation
            is_section = isinstance(section, type) and issubclass(section, BaseModel)
            # A section says itself what it is about, above its settings.
            meaning = (section.__doc__ if is_section else field.description) or ""
            assert " ".join(meaning.replace("``", "").split()) in text, name
            if is_section:
                check(section)

    check(Recipe)


def test_lines_are_not_too_wide(tmp_path: Path) -> None:
    assert max(map(len, template(tmp_path.with_name("recipe.yaml")).splitlines())) <= 110


def test_nothing_is_overwritten(refusal: Command, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("precious")
    assert "exists and was left as it is" in refusal(2, "init", path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a b.yaml", "a-b"), ("\u00e4.yaml", "recipe"), (".hidden", "hidden"), ("x@40ms.yml", "x-40ms")],
)
def test_any_file_name_gives_a_valid_recipe_name(cli: Command, tmp_path: Path, name: str, expected: str) -> None:
    assert cli("init", tmp_path / name).exit_code == 0
    assert load_recipe(tmp_path / name).name == expected


def test_a_missing_folder_and_a_folder_are_refused(refusal: Command, tmp_path: Path) -> None:
    assert "does not exist" in refusal(2, "init", tmp_path / "nowhere" / "recipe.yaml")
    assert "exists" in refusal(2, "init", tmp_path)
