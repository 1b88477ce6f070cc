"""``import hat-latency`` and ``import hat-predictor``: original files in, fitformer's out, every mistake one line."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fitformer.cli.keys import undocumented
from fitformer.hat.latency_data import COLUMNS
from fitformer.latency import load_predictor
from fitformer.latency.features import features_from_hat, hat_features
from fitformer.space import SearchSpace

Command = Callable[..., Any]
SPACE = SearchSpace.preset("hat-latency")


@pytest.fixture
def latency_file(tmp_path: Path) -> Path:
    """A linear device, slow by 40 % in rows 30 to 59 of 200."""
    rng = random.Random(4)
    averages = np.array([hat_features(SPACE.sample(rng)) for _ in range(200)])
    totals = features_from_hat(averages)
    times = 20 + totals @ (10.0 / totals.mean(axis=0))
    times *= np.exp(np.random.default_rng(0).normal(0, 0.01, len(times)))
    times[30:60] *= 1.4
    path = tmp_path / "made_gpu_titanxp_all.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows([*row, 0.1 * ms, 0.9 * ms, 0.1, 0.2] for row, ms in zip(averages.tolist(), times, strict=True))
    return path


def test_a_data_set_never_takes_the_place_of_another(refusal: Command, latency_file: Path, tmp_path: Path) -> None:
    words = ["--device", "gpu", "-o", tmp_path / "set", "--splits", "1", "--no-mlp"]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "device.json").write_text('{"name": "x", "source_sha256": "of another file"}')
    line = refusal(2, "import", "hat-latency", latency_file, *words)
    assert "holds the data set of another file; give a folder of its own" in line
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["device.json"]
    assert "--no-mlp leaves it out" in refusal(2, "import", "hat-latency", latency_file, *words, "--ablation", "1")


def test_a_latency_file_becomes_a_data_set_with_a_usable_predictor(
    document: Command, latency_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "set"
    facts = document("import", "hat-latency", latency_file, "--device", "gpu", "-o", out, "--splits", "3", "--no-mlp")
    assert undocumented("import hat-latency", facts) == (set(), set())
    assert [(block["first"], block["last"]) for block in facts["slow_blocks"]] == [(30, 59)]
    assert facts["slow_rows"] == 30 and facts["study"]["splits"] == 3
    clean, everything = facts["study"]["rows"]["clean"], facts["study"]["rows"]["all"]
    assert clean["default"]["mape"] < 3 < everything["default"]["mape"]
    with (out / "records.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["row"]) for row in rows if row["slow"] == "1"] == list(range(30, 60)) and len(rows) == 200
    predictor = load_predictor(out / "predictor.json")
    assert predictor.device["name"] == "gpu" and predictor.conditions is None
    assert predictor.predict_ms(SPACE.largest()) > predictor.predict_ms(SPACE.smallest()) > 0
    assert json.loads((out / "study.json").read_text())["slow_rows"] == 30
    assert json.loads((out / "quality.json").read_text())["num_samples"] == 170


@pytest.mark.slow
def test_the_network_is_trained_once_and_the_tables_are_printed(
    cli: Command, latency_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fitformer.hat import study
    from fitformer.hat.mlp import MlpSettings

    settings = study.StudySettings
    tiny = MlpSettings(steps=20, width=8)
    monkeypatch.setattr(study, "StudySettings", lambda **given: settings(**{"mlp": tiny, **given}))
    words = ("import", "hat-latency", latency_file, "--device", "gpu", "-o", tmp_path / "set", "--splits", "2")
    result = cli(*words, "--ablation", "1")
    assert result.exit_code == 0, result.stderr
    for text in ("all rows: HAT's network", "clean rows: fitformer's", "3 layers, learning rate 1e-4", "R2 within a"):
        assert text in result.stdout
    assert "rows 30-59 are" in result.stderr and "train HAT's networks" in result.stderr
    assert len(json.loads((tmp_path / "set/trainings.json").read_text())) == 2 + 2 + 4  # one variant is among the clean
    again = cli(*words, "--json")
    assert "train HAT's networks" not in again.stderr
    document = json.loads(again.stdout)
    assert undocumented("import hat-latency", document) == (set(), set())
    assert document["study"]["mlp_settings"]["lat_norm_ms"] == 200


def test_mistakes_are_one_line(refusal: Command, latency_file: Path, tmp_path: Path) -> None:
    words = ("import", "hat-latency", latency_file, "--device", "gpu", "--no-mlp", "-o")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    assert "holds other files (thesis.tex)" in refusal(2, *words, other)
    assert "is a file" in refusal(2, *words, latency_file)
    assert "--ablation: 3 is more" in refusal(2, *words, tmp_path / "set", "--ablation", 3, "--splits", 2)
    assert "--lat-norm" in refusal(2, *words, tmp_path / "set", "--lat-norm", "-3")
    assert "--device" in refusal(2, "import", "hat-latency", latency_file, "--device", " ", "-o", tmp_path / "set")
    text = latency_file.read_text().replace("6.0", "six", 1)
    latency_file.write_text(text)
    assert f"{latency_file}:2: encoder_layer_num is 'six'" in refusal(2, *words, tmp_path / "set")
    latency_file.write_text("".join(text.splitlines(keepends=True)[:1]))
    assert "no measurements" in refusal(2, *words, tmp_path / "set")
    assert not (tmp_path / "set").exists()


# -- hat-predictor -----------------------------------------------------------------------------------------------------


@pytest.fixture
def released(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    shapes = {"first_layer": (16, 10), "layers.0": (16, 16), "predict": (1, 16)}
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = torch.rand(shape, generator=generator) / shape[1]
        state[f"{name}.bias"] = torch.rand(shape[0], generator=generator) / 10
    torch.save(state, tmp_path / "titan.pt", _use_new_zipfile_serialization=False)
    return tmp_path / "titan.pt"


def test_a_released_predictor_becomes_a_file_of_ours(document: Command, released: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictor.json"
    facts = document("import", "hat-predictor", released, "--lat-norm", 200, "--device", "titan xp", "-o", out)
    assert undocumented("import hat-predictor", facts) == (set(), set())
    assert facts["feature_norm"] == [640, 6, 2048, 6, 640, 6, 2048, 6, 6, 2] and facts["hidden_layers"] == 2
    predictor = load_predictor(out)
    assert predictor.predict_ms(SPACE.largest()) == facts["largest_ms"] > facts["smallest_ms"] > 0
    assert predictor.device == {"name": "titan xp", "source": "titan.pt"}
    twice = document(
        "import",
        "hat-predictor",
        released,
        "--lat-norm",
        400,
        "--feature-norm",
        "640,6,2048,6,640,6,2048,6,6,2",
        "-o",
        out,
    )
    assert twice["largest_ms"] == pytest.approx(2 * facts["largest_ms"])


def test_wrong_normalisers_and_files_are_one_line(refusal: Command, released: Path, tmp_path: Path) -> None:
    words = ("import", "hat-predictor", released, "-o", tmp_path / "p.json")
    assert "--lat-norm: 0" in refusal(2, *words, "--lat-norm", 0)
    for norm in ("1,2", "a", "640,6,2048,6,640,6,2048,6,6,0", "nan,6,2048,6,640,6,2048,6,6,2"):
        assert "--feature-norm" in refusal(2, *words, "--lat-norm", 200, "--feature-norm", norm)
    state = torch.load(released, weights_only=True)
    torch.save({**state, "predict.bias": torch.tensor([-50.0])}, released)
    assert "are --lat-norm and --feature-norm those of its training?" in refusal(2, *words, "--lat-norm", 200)
    released.write_bytes(released.read_bytes()[:200])
    assert "titan.pt" in refusal(2, *words, "--lat-norm", 200)
    missing = ("import", "hat-predictor", released, "--lat-norm", 200, "-o", tmp_path / "none" / "p.json")
    assert "does not exist" in refusal(2, *missing)
    assert not (tmp_path / "p.json").exists()
