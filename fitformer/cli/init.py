"""``fitformer init``: a recipe with every setting, its default and its meaning, read from the recipe's own sections."""

from __future__ import annotations

import re
import textwrap
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitformer.cli import options
from fitformer.cli.output import print_json
from fitformer.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

WIDTH = 100
HEADER = """\
# A recipe for fitformer: what to learn from, what to search in, for which device and limit.
# Every setting stands here with its default; what is not changed may be deleted.
# Relative paths start at this file's folder; ${NAME} stands for a variable of the environment.
#
# Try it with:  fitformer fit {path} --dry-run
"""
# What a recipe cannot do without, and so has no default.
EXAMPLES: dict[str, Any] = {
    "data.source_language": "en",
    "data.target_language": "de",
    "data.train": {"source": "train.en", "target": "train.de"},
    "space": "small",
    "targets": [{"device": "cpu", "latency": "50%"}],
}


def init(
    path: Annotated[Path, typer.Argument(metavar="RECIPE", help="File to write.")] = Path("recipe.yaml"),
    as_json: options.AsJson = False,
) -> None:
    """Write a recipe with every setting, its default and its meaning. Nothing is ever overwritten."""
    text = template(path)
    if path.exists():
        raise InputError(f"{path}: exists and was left as it is; give another name")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    _write_new(path, text)
    if as_json:
        print_json({"recipe": path})
        return
    print(f"wrote {path}; set data.train and the languages, then: fitformer fit {path}")


def template(path: Path) -> str:
    """The text of a recipe at ``path``, whose name is taken from the file's."""
    from fitformer.recipe import Recipe

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-") or "recipe"
    writer = _Writer({**EXAMPLES, "name": name})
    return "\n".join([*HEADER.replace("{path}", str(path)).splitlines(), *writer.section(Recipe)]) + "\n"


class _Writer:
    """Writes settings as YAML with their meaning above them; what was explained once is not explained again."""

    def __init__(self, examples: dict[str, Any]) -> None:
        self._examples, self._explained = examples, set[str]()

    def section(self, model: type[BaseModel], prefix: str = "") -> list[str]:
        """Lines for every setting of ``model``, indented below a ``prefix``."""
        lines: list[str] = []
        for name, field in model.model_fields.items():
            key, inner = prefix + name, _section_class(field.annotation)
            if not prefix:
                lines.append("")
            nested = field.annotation is inner
            if inner is not None and nested:
                lines += [*self._comment(_doc(inner)), f"{name}:", *self.section(inner, f"{key}.")]
                continue
            example = self._examples.get(key)
            lines += self._comment(_meaning(field, optional=example is None))
            if inner is not None:
                lines += self._comment(*_inner_meanings(inner))
            lines.append(_entry(name, field, example))
        return [f"  {line}" if line else line for line in lines] if prefix else lines

    def _comment(self, *paragraphs: str) -> list[str]:
        text = "\n".join(paragraphs)
        if not text or text in self._explained:
            return []
        self._explained.add(text)
        return [
            f"# {line}"
            for paragraph in text.replace("``", "").splitlines()
            for line in textwrap.wrap(paragraph, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
        ]


def _entry(name: str, field: FieldInfo, example: Any) -> str:
    if example is not None:
        return f"{name}: {_yaml(example)}"
    return f"# {name}:" if field.default is None else f"{name}: {_yaml(_plain(field.default))}"


def _meaning(field: FieldInfo, *, optional: bool) -> str:
    """What a setting does and which words it takes, in one paragraph."""
    parts = [field.description or ""]
    words = _choices(field.annotation)
    if len(words) > 1:
        parts.append(f"One of: {', '.join(words)}.")
    if optional and field.default is None:
        parts.append("Not set by default.")
    return " ".join(part for part in parts if part)


def _inner_meanings(section: type[BaseModel]) -> list[str]:
    """The settings of a section that stands inside a value, one paragraph each."""
    lines = [_doc(section)]
    for name, field in section.model_fields.items():
        default = "" if field.is_required() or field.default in (None, ()) else f"Default: {_yaml(field.default)}."
        meaning = " ".join(part for part in (_meaning(field, optional=False), default) if part)
        lines.append(f"- {name}: {meaning}" if meaning else f"- {name}")
    return lines


def _doc(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").split())


def _section_class(annotation: Any) -> type[BaseModel] | None:
    """The section inside ``Corpus | None``, ``dict[str, Device]`` and their like."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    found = [_section_class(argument) for argument in typing.get_args(annotation)]
    return next((section for section in found if section is not None), None)


def _choices(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return [str(word) for word in typing.get_args(annotation)]
    return [word for argument in typing.get_args(annotation) for word in _choices(argument)]


def _plain(value: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_python(value, mode="json")


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; a failure on the way leaves none."""
    with path.open("x", encoding="utf-8") as stream:  # 'x': another process that was faster keeps its file
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise
