"""The documented keys of every command's JSON are the keys of its real output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fitformer.cli.app import app
from fitformer.cli.fit import STAGE_HELP
from fitformer.cli.keys import ERROR_KEYS, JSON_KEYS, markdown, undocumented
from fitformer.hat.configuration import from_architecture
from fitformer.hat.options import format_options
from fitformer.space import Architecture, SearchSpace

MakeBundle = Callable[..., Path]
Command = Callable[..., Any]

GOLDEN = {"source": "ich bin da", "source_ids": [34, 35, 37], "target_ids": [34, 35, 37], "text": "ich bin da"}
LATENCY = {"source_length": 5, "target_length": 6, "latency_ms": 4.0, "warmup": 0, "repeats": 1}


def commands_of(group: Any, prefix: str = "") -> list[str]:
    """Names of all commands, nested ones as ``import hat-config``."""
    found = []
    for name, command in group.commands.items():
        nested = getattr(command, "commands", None)
        found += [prefix + name] if nested is None else commands_of(command, f"{prefix}{name} ")
    return found


def test_every_command_is_documented() -> None:
    documented = {key.partition(" --")[0] for key in JSON_KEYS}
    assert documented == set(commands_of(get_command(app))) - set(STAGE_HELP)


def test_documents_have_the_documented_keys(
    document: Command, make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = make_bundle(golden=[GOLDEN], latency=[LATENCY])
    Path("lines.txt").write_text("ich bin da\nhier w1. w2. w3.\n")
    Path("architecture.txt").write_text("enc 8: 16/4/2 | dec 8: 16/4/2/1@0\n")
    arch = Architecture.from_text("enc 8: 16/4/2 | dec 8: 16/4/2/1@0")
    Path("hat-sub.yml").write_text(format_options(from_architecture(arch)))
    Path("space.json").write_text(json.dumps(SearchSpace.preset("hat-wmt").to_dict()))
    Path("run/supernet").mkdir(parents=True)
    Path("run/supernet/done.json").write_text('{"inputs": {}, "facts": {}, "seconds": 1.5, "finished": "now"}')
    Path("run/supernet/state.safetensors").touch()
    Path("run/train/cpu@9ms").mkdir(parents=True)
    taught = {"inputs": {}, "facts": {"teacher": {}}, "seconds": 1.5, "finished": "now"}
    Path("run/train/cpu@9ms/done.json").write_text(json.dumps(taught))
    pair = ["--source", "lines.txt", "--reference", "lines.txt"]
    legacy = ["--legacy-bleu", "--lowercase-bleu", "--tokenised-reference", "lines.txt"]
    for words in (
        ["init", "recipe.yaml"],
        ["translate", bundle, "-i", "lines.txt"],
        ["translate", bundle, "-i", "lines.txt", "-o", "out.txt", "--scores"],
        ["evaluate", bundle, *pair],
        ["evaluate", bundle, *pair, *legacy],
        ["compare", bundle, bundle, *pair],
        ["compare", bundle, bundle, *pair, "--legacy-bleu"],
        ["verify", bundle],
        ["status", "run"],
        ["profile", "--preset", "small"],
        ["profile", "--preset", "small", "--by-operator"],
        ["profile", "--hat-config", "hat-sub.yml", "--by-operator"],
        ["devices"],
        ["devices", "--recipe", "recipe.yaml"],
        ["import", "hat-config", "architecture.txt"],
        ["import", "hat-config", "architecture.txt", "-o", "hat.yml"],
        ["import", "hat-config", "space.json"],
    ):
        command = " ".join(str(word) for word in words[: 2 if words[0] == "import" else 1])
        assert undocumented(command, document(*words)) == (set(), set()), words


def test_an_unknown_or_missing_key_would_be_noticed() -> None:
    assert undocumented("init", {"recipe": "x", "more": {"a": 1}}) == ({"more.a"}, set())
    assert undocumented("init", {}) == ({""}, {"recipe"})
    devices = {"device": {"cpu": "x"}, "energy": {"measured": [], "note": ""}, "recipe_devices": []}
    assert undocumented("devices", devices) == ({"recipe_devices"}, set())


def test_the_page_holds_every_key_with_its_meaning() -> None:
    page = markdown()
    for keys in (*JSON_KEYS.values(), ERROR_KEYS):
        for key, meaning in keys.items():
            assert f"| `{key.removesuffix('?')}` | {meaning} |" in page
