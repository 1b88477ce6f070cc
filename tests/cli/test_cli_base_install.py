"""Where only the runtime is installed its commands work, and the others say in one line what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MakeBundle = Callable[..., Path]

# pydantic is not in the list: recent versions of typer need it themselves.
ABSENT = ("torch", "yaml", "onnx", "safetensors", "sklearn", "scipy", "plotly", "tensorboardX", "polib", "sacremoses")
PROGRAM = f"import sys\nfor name in {ABSENT}: sys.modules[name] = None\nfrom fitformer.cli import main\nmain()"


def bare(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, input="ich bin da\n", timeout=120)


def test_the_runtime_commands_work(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle()
    lines = tmp_path / "lines.txt"
    lines.write_text("ich bin da\nhier w1. w2. w3.\n")
    (tmp_path / "run/prepare").mkdir(parents=True)
    (tmp_path / "run/prepare/started.json").write_text('{"inputs": {}, "sessions": []}')
    pair = ["--source", lines, "--reference", lines]
    for words in (
        ["translate", bundle],
        ["evaluate", bundle, *pair],
        ["compare", bundle, bundle, *pair],
        ["verify", bundle],
        ["status", tmp_path / "run"],
        ["devices"],
        ["--version"],
    ):
        done = bare(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "recipe.yaml"],
        ["supernet", "recipe.yaml"],
        ["init", "new.yaml"],
        ["profile", "--preset", "small"],
        ["devices", "--recipe", "recipe.yaml"],
    ],
)
def test_the_others_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    Path("recipe.yaml").touch()
    done = bare(*words, "--json")
    assert done.returncode == 2
    assert "pip install 'fitformer[fit]'" in done.stderr and len(done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["exit_code"] == 2
    assert not Path("new.yaml").exists()


def test_the_tokenised_score_says_what_it_needs(make_bundle: MakeBundle, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("ich bin da\n")
    bundle = make_bundle()
    for option in ("--legacy-bleu", "--lowercase-bleu"):
        done = bare("evaluate", bundle, "--source", lines, "--reference", lines, option)
        assert done.returncode == 2
        assert "pip install 'fitformer[subword-nmt]'" in done.stderr
