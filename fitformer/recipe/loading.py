"""Reads a recipe: YAML, ``${NAME}`` from the environment, ``--set section.key=value``, and one-line errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from fitformer.errors import RecipeError, nearest
from fitformer.recipe.sections import Recipe

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read the recipe at ``path`` with ``section.key=value`` overrides; relative data files stand beside the recipe.

    Raises:
        RecipeError: the file is missing or no YAML, a key is unknown, a value is not allowed, or an environment
            variable it names is not set; the message names the setting, the value and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such recipe") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read ({error})") from None
    return parse_recipe(parse_yaml(text, str(path)), overrides=overrides, where=str(path), folder=path.parent)


def parse_recipe(
    data: Any, *, overrides: Sequence[str] = (), where: str = "recipe", folder: Path | None = None
) -> Recipe:
    """Check the content of a recipe; see ``load_recipe``."""
    if not isinstance(data, dict):
        raise RecipeError(f"{where}: a recipe is a mapping of sections; this is {type(data).__name__}")
    for override in overrides:
        _apply(data, override)
    data = _expand(data, where)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{where}: {_first_error(error)}") from None
    return recipe if folder is None else _beside(recipe, folder)


class _Loader(yaml.SafeLoader):
    """YAML as it is, but a key given twice is an error: of two values one would be lost in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key, _ in node.value:
        if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
        if isinstance(key, yaml.ScalarNode):
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str, where: str) -> Any:
    """Read YAML as plain values.

    Raises:
        RecipeError: no YAML, or a key that is given twice; the message starts with ``where``.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise RecipeError(f"{where}{line}: not valid YAML ({getattr(error, 'problem', error)})") from None
    except ValueError as error:  # such as the 45th of a month: PyYAML reads dates itself
        raise RecipeError(f"{where}: not valid YAML ({error})") from None
    except RecursionError:
        raise RecipeError(f"{where}: not valid YAML (an anchor that holds itself, or far too deep)") from None


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"--set {override}: expected section.key=value")
    *sections, last = key.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise RecipeError(f"--set {override}: '{section}' is not a section")
    data[last] = parse_yaml(value, f"--set {override}")


def _expand(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, where) for item in value]
    if not isinstance(value, str):
        return value

    def lookup(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise RecipeError(f"{where}: the environment variable {match[1]} is not set; '{value}' needs it")
        return os.environ[match[1]]

    return _VARIABLE.sub(lookup, value)


def _beside(recipe: Recipe, folder: Path) -> Recipe:
    """Make relative paths of data, subword files, predictors, teacher and bundle start at the recipe's own folder."""
    corpora = {}
    for split in ("train", "valid", "test"):
        corpus = getattr(recipe.data, split)
        if corpus is not None:
            paths = {name: tuple(folder.absolute() / path for path in getattr(corpus, name)) for name in _PATHS}
            corpora[split] = corpus.model_copy(update=paths)
    devices = {
        name: device.model_copy(update={"predictor": folder.absolute() / device.predictor})
        if device.predictor is not None
        else device
        for name, device in recipe.devices.items()
    }
    changes: dict[str, Any] = {"data": recipe.data.model_copy(update=corpora), "devices": devices}
    tokenizer = recipe.prepare.tokenizer
    files = {name: folder.absolute() / path for name, path in tokenizer.files().items()}
    if files:
        changes["prepare"] = recipe.prepare.model_copy(update={"tokenizer": tokenizer.model_copy(update=files)})
    if recipe.train.teacher is not None:
        changes["train"] = recipe.train.model_copy(update={"teacher": folder.absolute() / recipe.train.teacher})
    if recipe.bundle is not None:
        changes["bundle"] = folder.absolute() / recipe.bundle
    return recipe.model_copy(update=changes)


_PATHS = ("source", "target", "files")


_NO_SETTING = ("str", "dict[str,any]", "[key]")  # what pydantic adds for the forms that a value may have


def _first_error(error: ValidationError) -> str:
    """One line for the first problem: setting, value, what is allowed."""
    # A misspelt key also leaves the right one missing: the misspelling is what the user wants to hear about.
    problem = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    setting = ".".join(str(part) for part in problem["loc"] if part not in _NO_SETTING)
    if problem["type"] == "extra_forbidden":
        allowed = _keys_at(problem["loc"][:-1])
        word = str(problem["loc"][-1])
        return f"{setting}: no such setting{nearest(word, allowed)}; allowed here: {', '.join(allowed)}"
    if problem["type"] == "missing":
        return f"{setting}: missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{setting}: {message}" if setting and not message.startswith(setting) else message
    allowed_words = re.findall(r"'([^']+)'", message) if problem["type"] == "literal_error" else []
    hint = nearest(str(problem["input"]), allowed_words)
    return f"{setting}: {problem['input']!r} is not allowed{hint}; {message[0].lower()}{message[1:]}"


def _keys_at(location: Sequence[int | str]) -> list[str]:
    """Names of the settings of the section at ``location``."""
    model: Any = Recipe
    for part in location:
        if isinstance(part, int):
            continue
        fields: Mapping[str, Any] = model.model_fields
        model = _section_in(fields[part].annotation) if part in fields else model
    return sorted(model.model_fields)


def _section_in(annotation: Any) -> Any:
    """The section class inside an annotation such as ``Corpus | None`` or ``tuple[Target, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [_section_in(argument) for argument in getattr(annotation, "__args__", ())]
    return next((model for model in found if model is not None), None)
