"""``import hat-config`` translates configurations both ways, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fitformer.space import Architecture, SearchSpace

Command = Callable[..., Any]
LINE = "enc 8: 16/512/2 16/512/4 | dec 8: 16/512/2/1@1 8/512/4/4@1,0"


def test_all_published_files_come_back_exactly_in_both_of_our_forms(
    document: Command, cli: Command, shared_data: Path, tmp_path: Path
) -> None:
    files = sorted((shared_data / "hat/subtransformers").glob("*.yml"))
    assert len(files) == 34
    for file in files:
        original = yaml.safe_load(file.read_text(encoding="utf-8"))
        for suffix in (".json", ".txt"):
            ours, back = tmp_path / f"ours{suffix}", tmp_path / "back.yml"
            facts = document("import", "hat-config", file, "-o", ours)
            assert (facts["from"], facts["kind"]) == ("hat", "architecture")
            assert document("import", "hat-config", ours, "-o", back)["from"] == "fitformer"
            assert yaml.safe_load(back.read_text(encoding="utf-8")) == original, file


def test_the_text_form_is_printed_and_read(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text(LINE + "\n")
    shown = cli("import", "hat-config", path).stdout
    assert "decoder-arbitrary-ende-attn-all-subtransformer: [-1, 1]" in shown
    (tmp_path / "hat.yml").write_text(shown)
    again = cli("import", "hat-config", tmp_path / "hat.yml")
    assert (again.stdout, again.stderr) == (LINE + "\n", "")


def test_a_found_architecture_of_a_run_becomes_hats_file(cli: Command, tmp_path: Path) -> None:
    arch = Architecture.from_text(LINE)
    (tmp_path / "best.json").write_text(json.dumps({"architecture": arch.to_dict(), "text": LINE, "valid_loss": 2.0}))
    assert "encoder-embed-dim-subtransformer: 8" in cli("import", "hat-config", tmp_path / "best.json").stdout


def test_a_two_level_dictionary_is_read(document: Command, tmp_path: Path) -> None:
    encoder = {"encoder_embed_dim": 8, "encoder_layer_num": 1, "encoder_ffn_embed_dim": [16, 16]}
    decoder = {"decoder_embed_dim": 8, "decoder_layer_num": 1, "decoder_ffn_embed_dim": [16]}
    decoder |= {"decoder_self_attention_heads": [2], "decoder_ende_attention_heads": [1]}
    config = {
        "encoder": encoder | {"encoder_self_attention_heads": [2]},
        "decoder": decoder | {"decoder_arbitrary_ende_attn": [-1]},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    facts = document("import", "hat-config", path, "--qkv-dim", 4)
    assert facts["text"] == "enc 8: 16/4/2 | dec 8: 16/4/2/1@0"


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_spaces_come_back_exactly(document: Command, tmp_path: Path, suffix: str) -> None:
    space = SearchSpace.preset("hat-iwslt")
    ours, theirs = tmp_path / f"ours{suffix}", tmp_path / "hat.yml"
    ours.write_text(json.dumps(space.to_dict()))
    assert document("import", "hat-config", ours, "-o", theirs)["size"] == space.size()
    facts = document("import", "hat-config", theirs, "-o", ours)
    assert (facts["kind"], facts["space"]) == ("space", space.to_dict())
    assert yaml.safe_load(ours.read_text()) == space.to_dict()


def test_an_assumed_depth_of_the_supertransformer_is_said(cli: Command, shared_data: Path) -> None:
    file = shared_data / "hat/fixtures/toy_checkpoint/toy_sub2.yml"
    assumed = cli("import", "hat-config", file)
    assert "SuperTransformer of 6 encoder layers is assumed (--encoder-layers)" in assumed.stderr
    assert assumed.stdout.strip().endswith("@2,2,2 32/512/2/4@2,2")
    given = cli("import", "hat-config", file, "--encoder-layers", 3, "--qkv-dim", 32)
    assert given.stderr == "" and given.stdout.strip().endswith("@2,1,0 32/32/2/4@2,1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("enc 8: nonsense", "f.yml: architecture: cannot read"),
        ("encoder_qkv_dim: [3]", "f.yml: architecture: missing fields"),
        ("encoder_qkv_dim: [3]\nencoder_num_layers: [1]", "f.yml: space."),
        ("encoder-embed-choice: [3]", "f.yml: decoder-embed-choice: missing"),
        ("enc 8: 16/4/2 16/4/2 | dec 8: 16/4/2/1@0", "HAT's decoder layers attend to the last one, two or three"),
        ("lr: 3", "f.yml: lr: no such option"),
        ("{}", "f.yml: encoder-embed-dim-subtransformer: missing"),
        ("encoder-embed-dim-subtransformer: [a", "f.yml:1: not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_the_file(
    refusal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yml").write_text(text)
    assert message in refusal(2, "import", "hat-config", "f.yml", "-o", "out.json")
    assert not Path("out.json").exists()


def test_a_place_that_cannot_be_written_is_refused_before_the_work(refusal: Command, tmp_path: Path) -> None:
    assert "does not exist" in refusal(2, "import", "hat-config", "x", "-o", tmp_path / "no" / "out.json")


def test_the_file_that_is_read_is_never_written(refusal: Command, tmp_path: Path, shared_data: Path) -> None:
    source = next((shared_data / "hat/subtransformers").glob("*.yml"))
    file, link = tmp_path / "mine.yml", tmp_path / "link.yml"
    file.write_bytes(source.read_bytes())
    link.symlink_to(file)
    for output in (file, link):
        assert "is read, too, and would be lost" in refusal(2, "import", "hat-config", file, "-o", output)
    assert file.read_bytes() == source.read_bytes()
