"""A device that is not at hand: a given predictor is trusted, nothing is measured for it, and every record says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitformer.errors import InputError, NotPossibleError
from fitformer.latency import Conditions, LatencyPredictor, MlpPredictor, load_predictor
from fitformer.latency.features import FEATURE_NAMES
from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM
from fitformer.pipeline import Run, fit
from fitformer.recipe import load_recipe
from fitformer.rundir import read_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.verify import verify
from fitformer.space import Architecture

TARGET = "board@70%"
RECIPE = """
name: elsewhere
seed: 3
data: {source_language: en, target_language: de, builtin: numbers, builtin_pairs: 900, held_out_pairs: 40}
prepare: {tokenizer: {vocab_size: 400}}
space:
  encoder_embed_dim: [32, 16]
  decoder_embed_dim: [32, 16]
  encoder_num_layers: [1]
  decoder_num_layers: [2, 1]
  encoder_ffn_dim: [32, 16]
  encoder_qkv_dim: [16]
  encoder_num_heads: [2]
  decoder_ffn_dim: [32, 16]
  decoder_qkv_dim: [16]
  decoder_self_heads: [2]
  decoder_cross_heads: [2]
  decoder_cross_span: [1]
devices: {board: {predictor: board.json}}
targets: [{device: board, latency: 70%}]
supernet: {updates: 6, batch_tokens: 128, warmup: 2, validate_every: 6, average_last: 1, threads: 1}
search: {population_size: 6, num_parents: 2, num_mutations: 2, num_crossovers: 2, num_generations: 2}
train: {updates: 4, batch_tokens: 128, warmup: 2, validate_every: 4, average_last: 1, threads: 1}
measure: {repeats: 3, warmup: 0, source_length: 6, target_length: 6}
compress: {int8: false}
export: {beam: 1, check_sentences: 4, max_length_ratio: 0.5, max_length_offset: 5}
"""
FIXED = "enc 16: 16/16/2 | dec 16: 16/16/2/2@0"
CONDITIONS = Conditions(threads=4, batch_size=1, beam=5, source_length=30, target_length=30, exporter_version=1)


def network(scale: float = 1.0) -> MlpPredictor:
    """A network with positive weights: wider layers and more of them take longer."""
    rng = np.random.default_rng(0)
    first = rng.uniform(0.1, 1, (8, 10)).astype(np.float32)
    first[:, [1, 3, 7, 8, 9]] = 0  # the same for the whole space
    first[:, [0, 4]] *= 10
    second = rng.uniform(0.1, 1, (1, 8)).astype(np.float32)
    layers = (first, np.full(8, 0.01, np.float32)), (second, np.full(1, 0.01, np.float32))
    return MlpPredictor(layers, HAT_FEATURE_NORM, 100 * scale, {"name": "board"})


def start(folder: Path, text: str = RECIPE) -> Run:
    (folder / "recipe.yaml").write_text(text)
    return Run(load_recipe(folder / "recipe.yaml"), folder / "run")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run with a network for the board. Do not write into it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    network().save(folder / "board.json")
    fit(start(folder))
    return folder


def test_the_whole_fit_trusts_the_prediction_and_says_so(finished: Path) -> None:
    run, predictor = finished / "run", network()
    best = read_json(run / f"search/{TARGET}/best.json")
    arch = Architecture.from_dict(best["architecture"])
    largest = read_json(run / "measure/board/done.json")["facts"]["largest_ms"]
    assert best["predicted_ms"] == predictor.predict_ms(arch) <= 0.7 * largest == best["limit_ms"]
    assert best["measured_ms"] is None
    assert best["not_measured"] == (
        "board is not at hand; its latency is predicted by board.json (devices.board.predictor)"
    )
    assert not (run / "measure/board/records.csv").exists()
    assert not (run / f"search/{TARGET}/candidates.json").exists()
    assert load_predictor(run / "measure/board/predictor.json").predict_ms(arch) == best["predicted_ms"]


def test_the_winner_is_the_best_of_all_that_were_evaluated_within_the_limit(finished: Path) -> None:
    folder = finished / f"run/search/{TARGET}"
    best = read_json(folder / "best.json")
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    allowed = best["limit_ms"] * 0.97
    assert best["valid_loss"] == min(line["valid_loss"] for line in lines if line["predicted_ms"] <= allowed)


def test_the_bundle_holds_the_prediction_and_this_machines_latency_without_a_limit(finished: Path) -> None:
    bundle = finished / f"run/export/{TARGET}"
    facts = read_json(bundle / "fitformer.json")
    best = read_json(finished / f"run/search/{TARGET}/best.json")
    assert facts["predicted_latency"]["predicted_ms"] == best["predicted_ms"]
    assert facts["predicted_latency"]["limit_ms"] == best["limit_ms"]
    (record,) = facts["latency"]
    assert record["limit_ms"] is None and record["latency_ms"] > 0 and "cpu" in record["device"]
    (checked,) = verify(Bundle.load(bundle))["latency"]
    assert checked["kept"] is None
    decision = read_json(finished / f"run/compress/{TARGET}/decision.json")
    assert "board is not at hand" in decision["reason"]


def test_summary_and_report_do_not_pretend_to_have_measured(finished: Path) -> None:
    from fitformer.pipeline import summary

    (target,) = summary(Run(load_recipe(finished / "recipe.yaml"), finished / "run"))["targets"]
    assert target["measured_ms"] is None and 0 < target["predicted_ms"] <= target["limit_ms"]
    page = (finished / "run/report/index.html").read_text()
    assert "is predicted to take on board" in page and "Not measured: board is not at hand" in page
    assert "does not say under which batch size" in page and "measured by the search" not in page


def test_another_predictor_is_another_input_and_a_lost_one_is_named(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    folder = tmp_path / "copy"
    run = start(folder)
    fit(run)  # all is done
    network(2.0).save(folder / "board.json")
    with pytest.raises(InputError, match=r"devices\.board\.predictor, SHA-256: .* use --rerun measure"):
        fit(run)
    (folder / "board.json").unlink()
    with pytest.raises(InputError, match=r"devices\.board\.predictor: .*board\.json"):
        fit(run)


def refused(folder: Path, text: str = RECIPE) -> str:
    """The line that a fit is refused with before it has begun."""
    with pytest.raises(InputError) as caught:
        fit(start(folder, text))
    assert not (folder / "run/prepare").exists() and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_predictor_that_will_not_do_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    assert "No such file" in refused(tmp_path)
    path.write_text('{"kind": "oracle"}')
    assert "not a latency predictor (kind 'oracle')" in refused(tmp_path)
    network().save(path)
    path.write_text(path.read_text()[:300])
    assert "not a whole JSON file" in refused(tmp_path)
    good = network()
    negative = MlpPredictor((good.layers[0], (-good.layers[1][0], good.layers[1][1])), HAT_FEATURE_NORM, 1.0)
    negative.save(path)
    assert "it predicts -" in refused(tmp_path)
    path.unlink()
    path.mkdir()
    assert "devices.board.predictor" in refused(tmp_path)


def linear(conditions: Conditions | None) -> LatencyPredictor:
    rng = np.random.default_rng(0)
    table = rng.uniform(1, 5, (40, len(FEATURE_NAMES)))
    fitted = LatencyPredictor.fit_features(table, table.sum(axis=1), 2 * table.sum(axis=1))
    content = {"conditions": conditions}
    from dataclasses import replace

    return replace(fitted, **content)


def test_other_conditions_than_the_recipes_are_said_and_not_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linear(CONDITIONS).save(tmp_path / "board.json")
    fit(start(tmp_path), until="measure")
    facts = read_json(tmp_path / "run/measure/board/done.json")["facts"]
    note = facts["conditions_note"]
    for words in ("threads 4 (here 1)", "beam 5 (here 1)", "source_length 30 (here 6)"):
        assert words in note
    assert "batch_size" not in note and facts["conditions"]["beam"] == 5
    assert note in (said := capsys.readouterr().err)
    assert "lie outside what the predictor was fitted to" in said and "more)" in said


def test_a_fixed_architecture_is_held_to_its_predicted_latency(tmp_path: Path) -> None:
    network().save(tmp_path / "board.json")
    predicted = network().predict_ms(Architecture.from_text(FIXED))
    begin, rest = RECIPE.split("space:")
    text = f"{begin}architecture: '{FIXED}'\ndevices:{rest.split('devices:')[1]}"
    with pytest.raises(NotPossibleError, match="is predicted to take"):
        fit(start(tmp_path, text.replace("70%", f"{0.9 * predicted:.2f}ms")))
    shutil.rmtree(tmp_path / "run")
    (target,) = fit(start(tmp_path, text.replace("70%", f"{1.1 * predicted:.2f}ms")))["targets"]
    assert target["predicted_ms"] == pytest.approx(predicted) and target["measured_ms"] is None
    facts: dict[str, Any] = read_json(Path(target["bundle"]) / "fitformer.json")
    assert facts["latency"][0]["limit_ms"] is None
