"""The shape of the package: imports point down only, the base install needs no torch, the public names are there."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fitformer

PACKAGE = Path(fitformer.__file__).parent
# From the bottom up. Rooms on one line do not import each other. The last four lines of the design's diagram are one
# there: within it everything may use `errors`, and a recipe holds a space.
LINES = [
    {"errors"},
    {"cost", "device", "progress", "rundir", "space"},
    {"recipe", "stages"},
    {"runtime"},
    {"data", "models"},
    {"export"},
    {"tasks"},
    {"training"},
    {"compress", "distillation", "latency", "report", "search", "serve"},
    {"hat"},
    {"pipeline"},
    {"cli"},
    {"__init__", "__main__"},  # the public names, loaded when they are used
]
HEIGHT = {room: height for height, line in enumerate(LINES) for room in line}
# Third-party modules of the extra `fit`, by the rooms that may use them.
CONFINED = {
    "torch": {"models", "tasks", "training", "export", "compress", "distillation", "hat", "pipeline"},
    "accelerate": {"training"},
    "transformers": {"distillation"},
    "subword_nmt": {"runtime", "data"},
    "safetensors": {"training"},
    "tensorboardX": {"training"},
    "onnx": {"export"},
    "onnxruntime": {"runtime"},
    "pydantic": {"recipe", "cli"},
    "yaml": {"recipe", "space", "report", "hat", "pipeline", "cli"},
    "plotly": {"report"},
}
FIT_ONLY = ["torch", "onnx", "pydantic", "yaml", "safetensors", "sklearn", "scipy", "plotly", "tensorboardX"]
FIT_ONLY += ["polib", "defusedxml", "sacremoses", "subword_nmt", "accelerate", "transformers"]
BASE = ["sentencepiece", "sacrebleu", "typer", "rich", "click"]

Import = tuple[str, str, int]  # importing file, imported module, line


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and under TYPE_CHECKING included."""
    where = str(path.relative_to(PACKAGE))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((where, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}:{node.lineno}: imports are absolute"
            assert node.module is not None
            yield where, node.module, node.lineno
            if node.module == "fitformer":
                yield from ((where, f"fitformer.{alias.name}", node.lineno) for alias in node.names)


ALL = [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports(path)]


def room_of(where: str) -> str:
    return Path(where).parts[0].removesuffix(".py")


def test_every_room_has_its_line() -> None:
    found = {room_of(str(path.relative_to(PACKAGE))) for path in PACKAGE.rglob("*.py")}
    assert found <= set(HEIGHT), "a new room needs a place in LINES"


def test_imports_point_down_only() -> None:
    wrong = []
    for where, module, line in ALL:
        parts = module.split(".")
        if parts[0] != "fitformer" or len(parts) < 2 or parts[1] not in HEIGHT:
            continue
        if parts[1] != room_of(where) and HEIGHT[parts[1]] >= HEIGHT[room_of(where)]:
            wrong.append(f"{where}:{line} imports {module}")
    assert not wrong


def test_heavy_libraries_stay_in_their_rooms() -> None:
    wrong = [
        f"{where}:{line} imports {module}"
        for where, module, line in ALL
        if (library := module.split(".")[0]) in CONFINED and room_of(where) not in CONFINED[library]
    ]
    assert not wrong


BLOCKED_IMPORT = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
for name in NAMES:
    importlib.import_module(name)
"""


def import_without(names: list[str], blocked: list[str], repository: Path) -> None:
    """Import modules in a fresh interpreter that has none of the blocked ones."""
    script = f"BLOCKED, NAMES = {blocked!r}, {names!r}\n{BLOCKED_IMPORT}"
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_blocking_a_library_really_blocks_it(repository: Path) -> None:
    for name, blocked in (
        ("fitformer.models", "torch"),
        ("fitformer.recipe", "pydantic"),
        ("fitformer.export", "onnx"),
    ):
        with pytest.raises(AssertionError, match=f"{blocked} is blocked"):
            import_without([name], [blocked], repository)


def modules(*rooms: str) -> list[str]:
    found = []
    for room in rooms:
        paths = (PACKAGE / room).rglob("*.py") if (PACKAGE / room).is_dir() else [PACKAGE / f"{room}.py"]
        for path in paths:
            name = ".".join(("fitformer", *path.relative_to(PACKAGE).with_suffix("").parts))
            found.append(name.removesuffix(".__init__"))
    return sorted(found)


def test_the_runtime_and_the_command_line_import_with_the_base_install_alone(repository: Path) -> None:
    names = ["fitformer", *modules("runtime", "space", "rundir", "stages", "device", "progress", "errors", "cli")]
    assert "fitformer.runtime.translator" in names
    import_without(names, FIT_ONLY, repository)


def test_timing_and_decoding_need_only_numpy_and_onnxruntime(repository: Path) -> None:
    names = [f"fitformer.runtime.{name}" for name in ("decoding", "session", "timing")]
    import_without(names, [*FIT_ONLY, *BASE], repository)


def test_spaces_and_architectures_need_nothing_at_all(repository: Path) -> None:
    names = modules("space", "rundir", "device", "errors")
    import_without(names, [*FIT_ONLY, *BASE, "numpy", "onnxruntime"], repository)


def test_importing_fitformer_loads_no_room(repository: Path) -> None:
    script = "import sys, fitformer; print(*[name for name in sys.modules if name.startswith('fitformer.')])"
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


# -- public names -----------------------------------------------------------------------------------------------------


def test_public_names_are_sorted_and_importable() -> None:
    assert list(fitformer.__all__) == sorted(set(fitformer.__all__))
    for name in fitformer.__all__:
        value = getattr(fitformer, name)
        assert value.__doc__, f"{name} has no docstring"
        assert name in dir(fitformer)


def test_public_names_are_these() -> None:
    """A name is added here and in the changelog; none is ever taken away without a major version."""
    assert fitformer.__all__ == [
        "Architecture",
        "Bundle",
        "DecodeSettings",
        "InputError",
        "LatencyPredictor",
        "NotPossibleError",
        "Recipe",
        "Run",
        "SearchSpace",
        "SuperTransformer",
        "Transformer",
        "TransformerConfig",
        "Translator",
        "fit",
        "load_recipe",
    ]


def test_the_type_checker_sees_the_same_names() -> None:
    """The imports under TYPE_CHECKING and the table of homes must not drift apart."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name: declared.get(name) for name in fitformer.__all__} == fitformer._HOME


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fitformer' has no attribute 'Transfomer'"):
        _ = fitformer.Transfomer
    with pytest.raises(ImportError):
        exec("from fitformer import Transfomer")


@pytest.mark.parametrize("room", sorted({room_of(where) for where, _, _ in ALL} - {"__init__", "__main__"}))
def test_names_that_a_room_exports_are_there(room: str) -> None:
    module = importlib.import_module(f"fitformer.{room}")
    exported = getattr(module, "__all__", [])
    assert list(exported) == sorted(exported)
    assert all(hasattr(module, name) for name in exported)
