"""``import hat-checkpoint``: from the original's files to translations, or to one clear line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fitformer.cli.keys import undocumented

Command = Callable[..., Any]
Refusal = Callable[..., str]


@pytest.fixture(scope="module")
def toy(shared_data: Path) -> Path:
    folder = shared_data / "hat" / "fixtures" / "toy_checkpoint"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: HAT's fixtures are not in FITFORMER_DATA")
    return folder


def words_of(toy: Path, output: Path, **changes: object) -> list[object]:
    options: dict[str, object] = {
        "--source-dict": toy / "dict.de.txt",
        "--target-dict": toy / "dict.en.txt",
        "--config": toy / "toy_sub2.yml",
        "-o": output,
    }
    checkpoint = changes.pop("checkpoint", toy / "checkpoint_last.pt")
    options |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    pairs = [part for name, value in options.items() if value is not None for part in (name, value)]
    return ["import", "hat-checkpoint", checkpoint, *pairs]


def original_lines(path: Path) -> list[str]:
    """Hypotheses of ``generate.py``'s output in the order of their numbers."""
    fields = [line.split("\t") for line in path.read_text().splitlines() if line.startswith("H-")]
    return [text for _, text in sorted((int(name[2:]), text) for name, _, text in fields)]


@pytest.mark.parametrize(
    ("file", "beam", "penalty"), [("gen_beam5_lenpen1.0.txt", 5, 1), ("gen_beam4_lenpen0.6.txt", 4, 0.6)]
)
def test_the_bundle_translates_as_the_original_generates(
    cli: Command, document: Command, toy: Path, tmp_path: Path, file: str, beam: int, penalty: float
) -> None:
    facts = document(*words_of(toy, tmp_path / "bundle", valid_source=toy / "valid.de"))
    assert undocumented("import hat-checkpoint", facts) == (set(), set())
    assert facts["architecture"].startswith("enc 32: 64/32/4 32/32/2") and facts["languages"] == ["de", "en"]
    assert facts["check"]["sentences"] == 100 and facts["check"]["beam"]["different"] == 0
    assert facts["params"]["hat"] == 51888 and facts["warnings"] == []
    options = ["--beam", beam, "--length-penalty", penalty]
    result = cli("translate", tmp_path / "bundle", "-i", toy / "test.de", *options)
    assert result.stdout.splitlines() == original_lines(toy / file)
    assert document("verify", tmp_path / "bundle")["golden"] == 8


def test_the_bundles_own_settings_are_fairseqs(cli: Command, document: Command, toy: Path, tmp_path: Path) -> None:
    document(*words_of(toy, tmp_path / "bundle"))
    lines = cli("translate", tmp_path / "bundle", "-i", toy / "test.de").stdout.splitlines()
    assert lines == original_lines(toy / "gen_beam5_lenpen1.0.txt")
    bleu = document("evaluate", tmp_path / "bundle", "--source", toy / "test.de", "--reference", toy / "test.en")
    assert bleu["bleu"]["score"] == pytest.approx(87.70, abs=0.05)


def test_what_was_imported_is_said_to_people(cli: Command, toy: Path, tmp_path: Path) -> None:
    result = cli(*words_of(toy, tmp_path / "bundle"))
    assert result.exit_code == 0
    assert "PyTorch and the bundle agree on 8 lines" in result.stdout
    assert f"fitformer translate {tmp_path / 'bundle'}" in result.stdout


def test_a_folder_that_exists_is_left_alone(refusal: Refusal, toy: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for changes in ({}, {"config": None, "valid_source": toy / "valid.de", "valid_target": toy / "valid.en"}):
        line = refusal(2, *words_of(toy, tmp_path / "mine", **changes))
        assert "exists, and nothing in it was changed" in line
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


class Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.marker}'",)


def test_a_hostile_checkpoint_is_refused_and_runs_nothing(refusal: Refusal, toy: Path, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "hostile.pt"
    torch.save({"args": argparse.Namespace(x=Touch(marker)), "model": {}}, path)
    line = refusal(2, *words_of(toy, tmp_path / "out", checkpoint=path))
    assert "refused" in line and "system" in line and "nothing was run" in line
    assert not marker.exists() and not (tmp_path / "out").exists()


def test_every_wrong_file_is_one_line_and_leaves_nothing(refusal: Refusal, toy: Path, tmp_path: Path) -> None:
    cut, short, wide = tmp_path / "cut.pt", tmp_path / "dict.de.txt", tmp_path / "wide.yml"
    cut.write_bytes((toy / "checkpoint_last.pt").read_bytes()[:50_000])
    short.write_text("".join((toy / "dict.de.txt").read_text().splitlines(keepends=True)[:50]))
    config = (toy / "toy_sub2.yml").read_text()
    wide.write_text(config.replace("encoder-embed-dim-subtransformer: 32", "encoder-embed-dim-subtransformer: 640"))
    codes = tmp_path / "codes"
    codes.write_text("no merges here\n")
    for changes, expected in (
        ({"checkpoint": cut}, "cut.pt: not a whole checkpoint of PyTorch"),
        ({"checkpoint": tmp_path / "none.pt"}, "none.pt: no such file"),
        ({"checkpoint": toy / "dict.de.txt"}, "dict.de.txt: not a whole checkpoint of PyTorch"),
        ({"source_dict": short}, "dict.de.txt: 50 lines give 54 ids, but the checkpoint has 96"),
        ({"source_dict": tmp_path / "none.txt"}, "none.txt"),
        ({"target_dict": toy / "test.en"}, "test.en:1: a dictionary has one 'token count' a line"),
        ({"config": wide}, "wide.yml: encoder-embed-dim-subtransformer: 640 is more than the 40"),
        ({"config": tmp_path / "none.yml"}, "none.yml: no such file"),
        ({"config": toy / "dict.de.txt"}, "dict.de.txt"),
        ({"bpe_codes": codes}, "codes:1: a merge is two pieces"),
        ({"valid_source": tmp_path / "none.de"}, "none.de: cannot be read"),
        ({"valid_source": Path(os.devnull)}, f"{os.devnull}: holds no text"),
        ({"train_source": toy / "valid.de"}, "--train-source: a bundle (--config) is not trained"),
        ({"bpe_codes": toy / "dict.de.txt"}, "dict.de.txt: holds words with their counts; that is a dictionary"),
        ({"valid_target": toy / "valid.en"}, "--valid-target: a bundle (--config) is checked with --valid-source"),
        ({"config": None}, "--valid-source: missing; a run needs text"),
        ({"config": None, "valid_source": toy / "valid.de"}, "--valid-target: missing"),
        ({"config": None, "train_target": toy / "valid.de"}, "--train-source: missing"),
    ):
        line = refusal(2, *words_of(toy, tmp_path / "out", **changes))
        assert expected in line, (changes, line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes", "cut.pt", "dict.de.txt", "wide.yml"]


def test_subwords_without_codes_are_a_warning(document: Command, toy: Path, tmp_path: Path) -> None:
    """The dictionary has pieces, so that lines must hold them already."""
    (tmp_path / "dict.de.txt").write_text((toy / "dict.de.txt").read_text().replace("w42 ", "w4@@ "))
    (warning,) = document(*words_of(toy, tmp_path / "out", source_dict=tmp_path / "dict.de.txt"))["warnings"]
    assert "there is no --bpe-codes" in warning


def test_text_that_the_dictionary_hardly_has_is_a_warning(document: Command, toy: Path, tmp_path: Path) -> None:
    """Such as dictionaries in each other's place, which have the same number of words."""
    swapped = {"source_dict": toy / "dict.en.txt", "target_dict": toy / "dict.de.txt", "valid_source": toy / "valid.de"}
    names, warning = document(*words_of(toy, tmp_path / "out", **swapped))["warnings"]
    assert "reads 'de' and writes 'en'" in names and "dict.en.txt and dict.de.txt; are they swapped?" in names
    assert "100 % of the tokens of" in warning and "valid.de are not in" in warning


def test_a_bundle_with_codes_reads_plain_words(cli: Command, document: Command, toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("subword_nmt")
    (tmp_path / "codes").write_text("#version: 0.2\nw 4\nw4 2</w>\nw 6\nw6 9</w>\n")
    document(*words_of(toy, tmp_path / "out", bpe_codes=tmp_path / "codes"))
    (tmp_path / "codes").unlink()  # the bundle has its own copy
    assert "v42" in cli("translate", tmp_path / "out", stdin="w42 w69\n").stdout.split()
