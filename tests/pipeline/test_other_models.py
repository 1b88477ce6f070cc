"""Recipes that build on other models: a teacher whose translations are learned, a bundle that is trained on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from fitformer.cli.app import app
from fitformer.compress import BlockwiseInt8
from fitformer.data.arrays import TokenArrays
from fitformer.data.tokenizer_files import prepared_tokenizers
from fitformer.distillation import teacher as teachers
from fitformer.errors import BundleError, InputError
from fitformer.export import write_bundle
from fitformer.export.graphs import FLOAT32
from fitformer.models import Transformer, TransformerConfig
from fitformer.pipeline import Run, dry_run, fit
from fitformer.pipeline.learning import _untrained
from fitformer.pipeline.run import load_trained, training_task
from fitformer.pipeline.shipping import _tokenizer_files, _write_bundle
from fitformer.recipe import parse_recipe
from fitformer.rundir import read_json, sha256, write_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.tokenizer import WordTokenizer
from fitformer.space import Architecture
from fitformer.stages import forget

ARCHITECTURE = "enc 32: 48/32/4 48/32/4 | dec 32: 48/32/4/4@1,0"
LEARNING = {
    "updates": 150,
    "batch_tokens": 512,
    "warmup": 20,
    "validate_every": 1000,
    "threads": 1,
    "precision": "fp32",
}
MakeRun = Callable[..., Run]


def recipe(name: str, *, pairs: int = 600, train: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    data = {"source_language": "en", "target_language": "de", "builtin": "numbers", "builtin_pairs": pairs}
    origin = {} if {"bundle", "architecture"} & set(sections) else {"architecture": ARCHITECTURE}
    tokenizer = {} if "bundle" in sections else {"tokenizer": {"vocab_size": 400}}
    return {
        "name": name,
        "seed": sections.pop("seed", 1),
        "data": {**data, "held_out_pairs": 40, **sections.pop("data", {})},
        "prepare": {**tokenizer, "max_tokens": 90, **sections.pop("prepare", {})},
        "train": {**LEARNING, **(train or {})},
        **origin,
        **sections,
    }


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles ``fp32`` and ``int8`` of a small model that has learned a little, in the folder of its run."""
    folder = tmp_path_factory.mktemp("base")
    run = Run(parse_recipe(recipe("base", train={"learning_rate": 4e-3})), folder)
    fit(run, until="train")
    for form in (FLOAT32, BlockwiseInt8()):
        _write_bundle(run, "model", folder / form.precision, load_trained(run, "model"), form)
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(name: str = "run", **settings: Any) -> Run:
        return Run(parse_recipe(recipe(name, **settings)), tmp_path / name)

    return make


def facts(run: Run, stage: str = "train/model") -> dict[str, Any]:
    found: dict[str, Any] = read_json(run.path / stage / "done.json")["facts"]
    return found


def copy(bundle: Path, to: Path, **changes: Any) -> Path:
    """A copy of a bundle with other facts, its checksums right."""
    shutil.copytree(bundle, to)
    known = read_json(to / "fitformer.json")
    write_json(to / "fitformer.json", {**known, **changes})
    return to


# -- a teacher ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def student(make_run: MakeRun, base: Path) -> Callable[..., Run]:
    """A run that learns from a teacher, the base by default."""

    def make(teacher: Path = base / "fp32", name: str = "run", **settings: Any) -> Run:
        train = {"updates": 5, "teacher": str(teacher), "teacher_beam": 1, **settings.pop("train", {})}
        return make_run(name, train=train, pairs=300, seed=5, **settings)

    return make


def taught(run: Run) -> Path:
    (folder,) = (run.path / "distillation").iterdir()
    return folder


def test_a_student_learns_the_translations_of_a_bundle(student: Callable[..., Run]) -> None:
    run = student()
    fit(run, until="train")
    record = facts(run)
    assert (record["teacher"]["name"], record["teacher"]["kind"]) == ("base", "fitformer bundle")
    distillation = record["distillation"]
    assert distillation["lines"] == len(TokenArrays(run.prepared / "train.source")) == distillation["pairs"]
    assert distillation["translated"] + sum(distillation["kept_the_text"].values()) == distillation["lines"]
    assert distillation["translated"] > distillation["lines"] / 2
    task = training_task(run, run.recipe.train, training_pairs=taught(run))
    assert task.train_batches.target.prefix == taught(run) / "train.target"
    assert task.target_tokens(task.epoch(0)[0]) > 0
    assert record["seconds"] >= distillation["seconds"]
    own = TokenArrays(run.prepared / "train.target")
    learned = TokenArrays(taught(run) / "train.target")
    assert sum(own[i].tolist() != learned[i].tolist() for i in range(len(own))) > len(own) / 2


def test_beside_the_text_there_are_more_pairs(student: Callable[..., Run]) -> None:
    run = student(train={"teacher_targets": "beside"})
    fit(run, until="train")
    distillation = facts(run)["distillation"]
    assert distillation["pairs"] == (
        distillation["lines"] + distillation["translated"] - distillation["equal_to_the_text"]
    )


def test_translations_are_kept_for_the_next_training(
    student: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = student()
    fit(run, until="train")
    before = facts(run)["distillation"]

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("all is translated")

    monkeypatch.setattr(teachers.TeacherSource, "open", refuse)
    fit(run, until="train")
    forget(run.path, "train")
    again = student(train={"updates": 7})
    fit(again, until="train")
    assert facts(again)["distillation"] == before
    assert facts(again)["seconds"] < before["seconds"] + 60


def test_another_teacher_is_refused_and_the_same_one_elsewhere_is_not(
    student: Callable[..., Run], base: Path, tmp_path: Path
) -> None:
    moved = copy(base / "fp32", tmp_path / "moved", scores={"bleu": 1.0})
    fit(student(moved), until="train")
    fit(student(base / "fp32"), until="train")
    with pytest.raises(InputError, match=r"train\.teacher: is '\w+', but train model was finished with '\w+'.*--rerun"):
        fit(student(base / "int8"), until="train")
    with pytest.raises(InputError, match=r"train\.teacher_beam: is 2, but"):
        fit(student(train={"teacher_beam": 2}), until="train")
    with pytest.raises(InputError, match=r"train\.teacher: is None, but"):
        fit(student(train={"teacher": None}), until="train")


def test_a_teacher_of_other_languages_is_one_line_before_anything_is_done(
    student: Callable[..., Run], base: Path, tmp_path: Path
) -> None:
    french = copy(base / "fp32", tmp_path / "french", target_language="fr")
    run = student(french)
    with pytest.raises(InputError, match=r"train\.teacher: .* translates en to fr, and the recipe en to de") as caught:
        fit(run)
    assert "\n" not in str(caught.value)
    assert not run.path.exists()
    with pytest.raises(InputError, match=r"train\.teacher: .*nowhere: no such folder"):
        fit(student(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="teacher_languages: belongs to a multilingual"):
        fit(student(train={"teacher_languages": ["en", "de"]}))


def test_a_dry_run_names_a_teacher_that_is_not_there(student: Callable[..., Run], tmp_path: Path) -> None:
    run = student(tmp_path / "nowhere")
    assert dry_run(run)["missing_files"] == [str(tmp_path / "nowhere")]
    assert not run.path.exists()


@pytest.mark.slow
def test_a_hugging_face_model_teaches(student: Callable[..., Run], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    words = ["<pad>", "<unk>", "<s>", "</s>", "The", "train", "drei", "acht", "und", "in"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(tmp_path / "bart")
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=len(words), d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=128, pad_token_id=0,
        bos_token_id=2, eos_token_id=3, decoder_start_token_id=0, forced_bos_token_id=None, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config)
    with torch.no_grad():  # says "drei" and, as it may say nothing twice, stops
        model.final_logits_bias[0, 6], model.final_logits_bias[0, 3] = 9.0, 6.0
    model.generation_config.no_repeat_ngram_size = 1
    model.save_pretrained(tmp_path / "bart")
    run = student(tmp_path / "bart", train={"teacher_prefix": "The train: ", "updates": 2})
    fit(run, until="train")
    record = facts(run)
    assert record["teacher"]["kind"] == "Hugging Face model"
    assert record["teacher"]["name"] == "bart"
    assert record["distillation"]["translated"] == record["distillation"]["lines"]
    learned, tokenizer = TokenArrays(taught(run) / "train.target"), prepared_tokenizers(run.prepared)[1]
    assert {tokenizer.decode(learned[i].tolist()) for i in range(len(learned))} == {"drei"}


# -- a bundle trained on -----------------------------------------------------------------------------------------------


def tuned(make_run: MakeRun, bundle: Path, name: str = "run", **settings: Any) -> Run:
    train = {"updates": 40, "learning_rate": 5e-4, **settings.pop("train", {})}
    return make_run(name, bundle=str(bundle), train=train, seed=settings.pop("seed", 9), **settings)


def test_training_on_lowers_the_loss_that_the_bundle_begins_with(make_run: MakeRun, base: Path) -> None:
    run = tuned(make_run, base / "fp32")
    fit(run, until="train")
    task = training_task(run, run.recipe.train)
    begins = task.validation_loss(_untrained(run, None))["loss"]
    new = task.validation_loss(Transformer(load_trained(run, "model").config, run.fixed_architecture()))["loss"]
    ends = facts(run)["valid"]["loss"]
    assert ends < begins - 0.05
    assert begins < new - 1.0, "it knows more than a new model"
    began = facts(run)["began_with"]
    assert (began["name"], began["dequantised"], began["licence"]) == ("base", False, "generated, no rights reserved")


def test_the_model_begins_as_the_one_that_was_shipped(make_run: MakeRun, base: Path) -> None:
    run = tuned(make_run, base / "fp32")
    fit(run, until="prepare")
    shipped = load_trained(Run(parse_recipe(recipe("base")), base), "model")
    begins = _untrained(run, None)
    assert begins.arch == shipped.arch == run.fixed_architecture()
    for name, value in shipped.state_dict().items():
        torch.testing.assert_close(begins.state_dict()[name], value, rtol=2.4e-7, atol=0)
    for file in ("joint.model",):
        assert sha256(run.prepared / file) == sha256(base / "prepare" / file), "the same ids mean the same"
    assert run.recipe.search_space() is None
    scratch = _untrained(tuned(make_run, base / "fp32", train={"start": "scratch"}), None)
    assert not torch.equal(scratch.encoder.embed_tokens.weight, begins.encoder.embed_tokens.weight)


@pytest.mark.slow
def test_the_tuned_model_ships_like_any_other(make_run: MakeRun, base: Path) -> None:
    run = tuned(
        make_run, base / "int8", train={"updates": 3}, measure={"repeats": 3, "warmup": 0},
        compress={"int8": False}, export={"beam": 1, "check_sentences": 5},
    )  # fmt: skip
    summary = fit(run)
    bundle = Bundle.load(run.path / "export" / "model")
    began = bundle.facts["training"]["began_with"]
    assert (began["name"], began["precision"], began["dequantised"]) == ("base", "int8", True)
    assert "folder" not in began, "a bundle does not tell where things were on the machine that made it"
    assert bundle.facts["model"]["max_positions"] == Bundle.load(base / "fp32").facts["model"]["max_positions"]
    assert summary["targets"][0]["scores"]["bleu"]["score"] >= 0
    page = (run.path / "report" / "index.html").read_text(encoding="utf-8")
    assert "base (its 8-bit weights made float again)" in page
    assert not any((run.path / stage).exists() for stage in ("supernet", "measure", "search"))


def test_a_bundle_with_another_tokenizer_is_trained_on(make_run: MakeRun, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text(WordTokenizer.file_text(["The", "is", "on", "train", "Das", "ist", "am", "Zug"]), encoding="utf-8")
    config = TransformerConfig(12, 12, max_positions=64, pre_norm=False, norm_every_memory=False, start_id=3)
    model = Transformer(config, Architecture.from_text(ARCHITECTURE)).eval()
    tokenizer = _tokenizer_files(tmp_path, {"kind": "words", "models": {"source": "words.txt", "target": "words.txt"}})
    write_bundle(
        tmp_path / "bundle", model=model, tokenizer=tokenizer, source_language="en", target_language="de",
        decoding=DecodeSettings(), golden_sources=["The train"],
    )  # fmt: skip
    run = tuned(make_run, tmp_path / "bundle", train={"updates": 2}, prepare={"max_tokens": 40})
    fit(run, until="train")
    stats = read_json(run.prepared / "stats.json")
    assert (stats["tokenizer"]["kind"], stats["vocab_size"]) == ("words", {"source": 12, "target": 12})
    files = _tokenizer_files(run.prepared, stats["tokenizer"])
    assert (files.kind, files.source.read_text()) == ("words", words.read_text())
    trained = load_trained(run, "model")
    assert (trained.config.start_id, trained.config.pre_norm) == (3, False)
    assert run.start_id == 3


def test_a_bundle_that_reads_by_subword_nmt_is_trained_on(make_run: MakeRun) -> None:
    pytest.importorskip("subword_nmt")
    tokenizer = {"kind": "subword-nmt", "moses": True, "lowercase": True, "vocab_size": 100}
    first = make_run("first", pairs=200, train={"updates": 2}, prepare={"tokenizer": tokenizer})
    fit(first, until="train")
    bundle = first.path / "bundle"
    _write_bundle(first, "model", bundle, load_trained(first, "model"), FLOAT32)
    run = tuned(make_run, bundle, train={"updates": 2, "teacher": str(bundle), "teacher_beam": 1}, pairs=100)
    fit(run, until="train")
    before, after = (read_json(each.prepared / "stats.json") for each in (first, run))
    assert after["vocab_size"] == before["vocab_size"]
    for one, other in zip(prepared_tokenizers(first.prepared), prepared_tokenizers(run.prepared), strict=True):
        assert one.encode(["The TRAIN's late, isn't it?"]) == other.encode(["The TRAIN's late, isn't it?"])
    _write_bundle(run, "model", run.path / "bundle", load_trained(run, "model"), FLOAT32)
    assert Bundle.load(run.path / "bundle").facts["tokenizer"]["moses"] is True


def test_another_bundle_is_refused(make_run: MakeRun, base: Path, tmp_path: Path) -> None:
    fit(tuned(make_run, base / "fp32"), until="prepare")
    fit(tuned(make_run, copy(base / "fp32", tmp_path / "moved", latency=[])), until="prepare")
    with pytest.raises(InputError, match=r"bundle: is '\w+', but prepare was finished with '\w+'"):
        fit(tuned(make_run, base / "int8"), until="prepare")


def test_what_does_not_fit_the_bundle_is_one_line(make_run: MakeRun, base: Path, tmp_path: Path) -> None:
    fp32 = base / "fp32"
    positions = Bundle.load(fp32).facts["model"]["max_positions"]
    runs = {
        r"data\.target_language: is 'fr', but the target language of the bundle .* is 'de'": tuned(
            make_run, fp32, data={"target_language": "fr"}
        ),
        rf"prepare\.max_tokens: 256 is more than the {positions} tokens": tuned(
            make_run, fp32, prepare={"max_tokens": 256}
        ),
        "no such folder": tuned(make_run, tmp_path / "nowhere"),
        "task 'summarization' is unknown": tuned(make_run, copy(fp32, tmp_path / "task", task="summarization")),
        "bundle format 99": tuned(make_run, copy(fp32, tmp_path / "format", format_version=99)),
    }
    damaged = copy(fp32, tmp_path / "damaged")
    (damaged / "decoder.onnx").write_bytes(b"")
    runs["checksum differs"] = tuned(make_run, damaged)
    for message, run in runs.items():
        with pytest.raises(InputError, match=message) as caught:
            fit(run)
        assert "\n" not in str(caught.value)
        assert not run.path.exists(), "nothing was begun"
    with pytest.raises(BundleError, match="no such folder"):
        dry_run(tuned(make_run, tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"architecture": ARCHITECTURE}, "either 'space' .* or 'architecture' .* or 'bundle'"),
        ({"space": "multi30k"}, "either 'space' .* or 'architecture' .* or 'bundle'"),
        ({"model": {"pre_norm": False}}, "model: comes from the bundle; leave this section out"),
        ({"prepare": {"tokenizer": {"joint": False}}}, r"prepare\.tokenizer: comes from the bundle"),
        ({"targets": [{"latency": "50%"}]}, "this recipe has no space"),
    ],
)
def test_a_recipe_takes_from_the_bundle_what_is_the_bundles(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_recipe(recipe("tuned", bundle="somewhere", **sections))


def test_paths_of_other_models_stand_beside_the_recipe(tmp_path: Path) -> None:
    found = parse_recipe(recipe("tuned", bundle="base", train={"teacher": "../big"}), folder=tmp_path / "recipes")
    assert found.bundle == tmp_path / "recipes" / "base"
    assert found.train.teacher == tmp_path / "recipes" / ".." / "big"
    again = parse_recipe(json.loads(json.dumps(found.model_dump(mode="json"))))
    assert again == found, "other processes and a run folder get the same"


def test_a_dry_run_of_a_recipe_with_a_bundle_rehearses_its_model(make_run: MakeRun, base: Path) -> None:
    plan = dry_run(tuned(make_run, base / "fp32"))
    assert plan["rehearsal"]["vocab_size"] == {"source": 400, "target": 400, "from": "bundle"}
    assert [model["architecture"] for model in plan["rehearsal"]["models"]] == [ARCHITECTURE]
    assert [stage["stage"] for stage in plan["stages"]] == ["prepare", "train model", "compress model", "export model"]


def test_profile_counts_the_model_of_the_bundle(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml.safe_dump(recipe("tuned", bundle=str(base / "fp32"))), encoding="utf-8")
    result = CliRunner().invoke(app, ["profile", str(path), "--json"])
    document = json.loads(result.stdout.splitlines()[-1])
    assert document["vocab_size"] == {"source": 400, "target": 400}
    assert document["vocab_size_from"] == "bundle"
    assert [entry["architecture"] for entry in document["architectures"]] == [ARCHITECTURE]
