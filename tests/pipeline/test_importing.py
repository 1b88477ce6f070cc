"""An imported SuperTransformer is a run in which supernet is finished; measure, search and the rest go on from it."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fitformer.errors import InputError
from fitformer.hat.checkpoint import read_checkpoint
from fitformer.hat.weights import super_transformer
from fitformer.pipeline import Run
from fitformer.pipeline.hat_original import Original
from fitformer.pipeline.importing import import_bundle, import_run
from fitformer.pipeline.learning import supernet, train
from fitformer.pipeline.run import load_supernet, training_task
from fitformer.pipeline.searching import measure, search
from fitformer.pipeline.shipping import compress, export
from fitformer.pipeline.timing import ArchitectureTimer
from fitformer.recipe import load_recipe
from fitformer.rundir import read_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.timing import Timing
from fitformer.runtime.translator import Translator
from fitformer.space import Architecture, counting

SETTINGS = [
    "measure.architectures=8",
    "measure.repeats=3",
    "measure.warmup=0",
    "search.population_size=6",
    "search.num_parents=2",
    "search.num_mutations=2",
    "search.num_crossovers=2",
    "search.num_generations=2",
    "search.finalists=2",
    "train.updates=2",
    "train.warmup=1",
    "train.validate_every=2",
    "compress.int8=false",
    "export.check_sentences=10",
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Two threads that wait for each other on a busy machine take many times as long as one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitformer.pipeline.run.available_threads", lambda: 1)
        yield


@pytest.fixture(scope="module")
def toy(shared_data: Path) -> Path:
    folder = shared_data / "hat" / "fixtures" / "toy_checkpoint"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: HAT's fixtures are not in FITFORMER_DATA")
    return folder


def original(toy: Path, **changes: Any) -> Original:
    return replace(
        Original(
            toy / "checkpoint_last.pt",
            toy / "dict.de.txt",
            toy / "dict.en.txt",
            valid_source=toy / "valid.de",
            valid_target=toy / "valid.en",
        ),
        **changes,
    )


@pytest.fixture(scope="module")
def imported(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An imported run (do not write into it) and the facts told about it."""
    folder = tmp_path_factory.mktemp("imported") / "run"
    return folder, import_run(original(toy), folder)


def opened(folder: Path, *settings: str) -> Run:
    return Run(load_recipe(folder / "recipe.yaml", settings), folder)


def changed_checkpoint(toy: Path, path: Path, **args: Any) -> Path:
    content = read_checkpoint(toy / "checkpoint_last.pt")
    torch.save({"args": argparse.Namespace(**{**content.args, **args}), "model": dict(content.weights)}, path)
    return path


def test_the_supernet_stage_is_finished_with_the_inputs_of_the_written_recipe(
    imported: tuple[Path, dict[str, Any]],
) -> None:
    folder, facts = imported
    run = opened(folder)
    assert supernet(run) == read_json(folder / "supernet" / "done.json")["facts"]  # nothing was trained
    assert facts["space"]["size"] == run.space.size() == 3_692_544
    assert facts["recipe"] == folder / "recipe.yaml"
    with pytest.raises(InputError, match=r"supernet.dropout: is 0.3, but supernet was finished with 0.05"):
        supernet(opened(folder, "supernet.dropout=0.3"))


def test_the_weights_are_the_checkpoints(toy: Path, imported: tuple[Path, dict[str, Any]]) -> None:
    mine = load_supernet(opened(imported[0])).state_dict()
    whole = super_transformer(read_checkpoint(toy / "checkpoint_last.pt")).state_dict()
    assert mine.keys() == whole.keys()
    assert all(torch.equal(mine[name], whole[name]) for name in mine)


def test_validation_losses_of_the_run_are_those_of_the_original(
    toy: Path, imported: tuple[Path, dict[str, Any]]
) -> None:
    run = opened(imported[0])
    task = training_task(run, run.recipe.supernet.model_copy(update={"precision": "fp32"}))
    model, expected = load_supernet(run), json.loads((toy / "expected.json").read_text())["valid_loss_bits_per_token"]
    for name, arch in (("largest_arbitrary1", run.space.largest()), ("smallest_arbitrary1", run.space.smallest())):
        model.set_active(replace(arch, decoder_cross_layers=((2, 1),) * arch.decoder_num_layers))
        for kind, value in task.validation_loss(model).items():
            assert value / math.log(2) == pytest.approx(expected[name][kind], rel=1e-5)


def test_text_that_is_missing_is_told_with_the_stage_that_will_miss_it(
    toy: Path, imported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (warning,) = imported[1]["warnings"]
    assert "no training text" in warning and "--train-source" in warning
    only_training = {"train_source": toy / "valid.de", "train_target": toy / "valid.en"}
    facts = import_run(original(toy, valid_source=None, valid_target=None, **only_training), tmp_path / "run")
    assert "no validation text" in facts["warnings"][0]
    assert read_json(tmp_path / "run" / "prepare" / "stats.json")["valid"]["held_out"]
    with pytest.raises(InputError, match="'search' ranks architectures by their loss on the validation text"):
        import_run(original(toy, valid_source=None, valid_target=None), tmp_path / "other")


def test_training_pairs_beside_validation_pairs_are_kept_apart(toy: Path, tmp_path: Path) -> None:
    pairs = {"train_source": toy / "test.de", "train_target": toy / "test.en"}
    facts = import_run(original(toy, **pairs), tmp_path / "run")
    stats = read_json(tmp_path / "run" / "prepare" / "stats.json")
    assert facts["warnings"] == []
    assert (stats["train"]["read"], stats["valid"]["pairs"], stats["test"]["held_out"]) == (100, 100, True)


def test_choices_that_stop_short_of_the_weights_take_leading_slices(toy: Path, tmp_path: Path) -> None:
    path = changed_checkpoint(
        toy,
        tmp_path / "c.pt",
        encoder_embed_choice=[32],
        decoder_ffn_embed_dim_choice=[32],
        decoder_layer_num_choice=[2],
    )
    import_run(original(toy, checkpoint=path), tmp_path / "run")
    run = opened(tmp_path / "run")
    model, whole = load_supernet(run), super_transformer(read_checkpoint(path))
    assert model.config.encoder_reference_dim == 40 and model.encoder.embed_tokens.embedding_dim == 32
    arch = run.space.largest()
    source, previous = torch.tensor([[9, 4, 30, 3]]), torch.tensor([[3, 8, 11]])
    whole.set_active(arch)
    torch.testing.assert_close(model(source, previous), whole(source, previous))


def test_shallower_encoders_than_the_originals_are_a_warning(toy: Path, tmp_path: Path) -> None:
    path = changed_checkpoint(toy, tmp_path / "c.pt", encoder_layer_num_choice=[3, 2])
    facts = import_run(original(toy, checkpoint=path), tmp_path / "run")
    assert any("copies of the last layer" in warning for warning in facts["warnings"])


def test_a_sub_transformers_checkpoint_needs_its_configuration(toy: Path, tmp_path: Path) -> None:
    path = changed_checkpoint(toy, tmp_path / "c.pt", encoder_embed_dim_subtransformer=32)
    with pytest.raises(
        InputError, match=r"encoder-embed-dim-subtransformer is set.*give its configuration as --config"
    ):
        import_run(original(toy, checkpoint=path), tmp_path / "run")


def test_what_fails_leaves_no_folder(toy: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.en"
    short.write_text("v1\n")
    for changes in ({"valid_target": short}, {"target_dictionary": toy / "test.en"}, {"checkpoint": short}):
        with pytest.raises(InputError):
            import_run(original(toy, **changes), tmp_path / "run")
    with pytest.raises(InputError):
        import_bundle(original(toy, valid_source=tmp_path / "none"), toy / "toy_sub2.yml", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["short.en"]


def test_a_bundle_too_different_from_pytorch_is_not_left_behind(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise InputError("export check: differs")

    monkeypatch.setattr("fitformer.pipeline.importing.check_export", failing)
    with pytest.raises(InputError, match="differs"):
        import_bundle(original(toy), toy / "toy_sub2.yml", tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_languages_come_from_the_options_or_the_dictionaries(toy: Path, tmp_path: Path) -> None:
    path = changed_checkpoint(toy, tmp_path / "c.pt", source_lang=None, target_lang=None)
    facts = import_bundle(original(toy, checkpoint=path), toy / "toy_sub2.yml", tmp_path / "one")
    assert facts["languages"] == ["de", "en"]
    (tmp_path / "words").write_bytes((toy / "dict.en.txt").read_bytes())
    given = original(toy, checkpoint=path, target_dictionary=tmp_path / "words")
    assert import_bundle(given, toy / "toy_sub2.yml", tmp_path / "two")["languages"] == ["de", "und"]


@pytest.mark.slow
def test_measure_search_train_and_export_go_on_from_an_imported_run(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every architecture is exported and decoded for real; only its latency is computed, so that no noise matters."""
    decode = ArchitectureTimer.time

    def timed(timer: ArchitectureTimer, arch: Architecture) -> Timing:
        timing = decode(timer, arch)
        costs = counting.hat(arch, source_length=8, target_length=8).macs.total / 1e3
        parts = (replace(timing.encoder, mean=0.3 * costs), replace(timing.decoder, mean=0.7 * costs))
        return replace(timing, latency_ms=costs, encoder=parts[0], decoder=parts[1])

    monkeypatch.setattr(ArchitectureTimer, "time", timed)
    import_run(original(toy), tmp_path / "run")
    run = opened(tmp_path / "run", *SETTINGS)
    (target,) = run.recipe.targets
    assert measure(run, "cpu")["largest_ms"] > 0
    found = search(run, target)
    best = Architecture.from_dict(found["architecture"])
    assert run.space.contains(best) and found["measured_ms"] <= found["limit_ms"]
    train(run, target)
    compress(run, target)
    facts = export(run, target)
    assert facts["check"]["fp32"]["greedy"]["different"] == 0
    bundle = Bundle.load(run.stage("export", target.name).folder)
    assert (bundle.facts["model"]["start_id"], bundle.facts["tokenizer"]["kind"]) == (3, "subword-nmt")
    assert bundle.facts["decoding"]["max_length_offset"] == 200
    lines = list(Translator(bundle).translate((toy / "valid.de").read_text().splitlines()[:5]))
    assert all(line.text.startswith("v") for line in lines)
