"""What the tests of the commands share: the command in this process, the command in its own, and toy bundles."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fitformer.cli.app import app

REPOSITORY = Path(__file__).parents[2]


def _runtime_fixtures() -> Any:
    """The copying bundle of the runtime's tests: its translation of a line is the line."""
    path = REPOSITORY / "tests" / "runtime" / "conftest.py"
    spec = importlib.util.spec_from_file_location("runtime_fixtures", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_runtime = _runtime_fixtures()
make_bundle = _runtime.make_bundle
tokenizer_files = _runtime.tokenizer_files


@pytest.fixture
def cli() -> Callable[..., Any]:
    """Run a command line in this process; the result has exit_code, stdout and stderr."""

    def run(*words: object, stdin: bytes | str | None = None) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words], input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def document(cli: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Run a command line with --json; stdout must be one line, and is returned as a document."""

    def run(*words: object, stdin: bytes | str | None = None) -> dict[str, Any]:
        result = cli(*words, "--json", stdin=stdin)
        assert result.exit_code == 0, result.stderr
        lines = result.stdout.splitlines()
        assert len(lines) == 1
        content: dict[str, Any] = json.loads(lines[0])
        return content

    return run


@pytest.fixture
def refusal(cli: Callable[..., Any]) -> Callable[..., str]:
    """Run a command line that must fail with one line on stderr and nothing on stdout; return that line."""

    def run(code: int, *words: object, stdin: bytes | str | None = None) -> str:
        result = cli(*words, stdin=stdin)
        assert (result.exit_code, result.stdout) == (code, ""), result.stderr
        lines = result.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
        return str(lines[0])

    return run


@pytest.fixture
def shell() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run a command line in a process of its own."""

    def run(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "fitformer", *(str(word) for word in words)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 120, **options}
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False, **options)

    return run
