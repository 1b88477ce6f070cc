"""The recipes of the paper's tasks prepare text that lies as its publishers lay it out: small files of the same names
and forms, made from Multi30k.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitformer.data.arrays import TokenArrays
from fitformer.data.evaluation import read_evaluation_text
from fitformer.data.tokenizer_files import prepared_tokenizers
from fitformer.pipeline import fit
from fitformer.pipeline.run import Run
from fitformer.recipe import Corpus, Recipe, load_recipe
from fitformer.rundir import read_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.subword_nmt import read_dictionary
from fitformer.runtime.translator import Translator

pytest.importorskip("subword_nmt")
pytest.importorskip("sacremoses")

TASKS = ("wmt14-ende", "wmt14-enfr", "wmt19-ende", "iwslt14-deen")
LINES = 300  # of each training file
VOCAB = "prepare.tokenizer.vocab_size=300"

Lines = dict[str, Iterator[str]]


def write(path: Path, lines: list[str]) -> None:
    """A file of the form that its name stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith((".sgm", ".xml")):
        segments = "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(lines, start=1))
        text = f'<refset setid="x" srclang="any">\n<doc docid="1">\n<p>\n{segments}</p>\n</doc>\n</refset>\n'
    elif ".tags." in path.name:
        talks = [lines[i : i + 10] for i in range(0, len(lines), 10)]
        head = "<url>http://x</url>\n<keywords>k</keywords>\n<talkid>1</talkid>\n<title>{}</title>\n"
        text = "".join(head.format(talk[0]) + "".join(f"{line}\n" for line in talk[1:]) for talk in talks)
    else:
        text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(scope="module")
def lines(shared_data: Path) -> dict[str, list[str]]:
    folder = shared_data / "multi30k"
    found = {}
    for language in ("en", "de", "fr"):
        with gzip.open(folder / f"train.{language}.gz", "rt", encoding="utf-8") as stream:
            found[language] = [line.strip() for line in itertools.islice(stream, 2500)]
    return found


def fill(recipe: Recipe, lines: dict[str, list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """Write every file of the recipe; return what the splits hold."""
    languages, place, splits = (recipe.data.source_language, recipe.data.target_language), 0, {}
    for split, count in (("train", LINES), ("valid", 20), ("test", 20)):
        corpus: Corpus | None = getattr(recipe.data, split)
        sides: tuple[list[str], list[str]] = ([], [])
        for pair in zip(corpus.source, corpus.target, strict=True) if corpus else ():
            for side, path in enumerate(pair):
                part = lines[languages[side]][place : place + count]
                sides[side].extend(part)
                write(path, part)
            place += count
        splits[split] = sides
    return splits


def prepare(recipe: Recipe, folder: Path) -> tuple[Run, dict[str, Any]]:
    run = Run(recipe, folder / "run")
    fit(run, until="prepare")
    return run, read_json(run.prepared / "stats.json")


def load(name: str, repository: Path, *settings: str) -> Recipe:
    return load_recipe(repository / "recipes" / f"{name}.yaml", (VOCAB, *settings))


@pytest.mark.parametrize("name", TASKS)
def test_a_recipe_prepares_files_of_the_public_layout(
    name: str, repository: Path, lines: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path / "data"))
    recipe = load(name, repository)
    splits = fill(recipe, lines)
    run, stats = prepare(recipe, tmp_path)

    assert list(read_evaluation_text(run.prepared, "test")) == list(zip(*splits["test"], strict=True))
    train = stats["train"]
    assert train["read"] == len(splits["train"][0]) and train["dropped"]["repeated"] == 0
    every = recipe.data.valid_every
    if every is None:
        assert list(read_evaluation_text(run.prepared, "valid")) == list(zip(*splits["valid"], strict=True))
    else:
        assert stats["valid"]["pairs"] == train["held_out"] == (train["pairs"] + train["held_out"]) // every
    assert train["pairs"] > 0.6 * train["read"]  # a ratio of lengths of 1.5 leaves out some
    assert stats["tokenizer"]["codes"] and stats["tokenizer"]["options"]["moses"]


@pytest.mark.parametrize("name", ["wmt14-enfr", "iwslt14-deen"])
def test_dictionaries_merges_and_tokens_are_of_the_published_kind(
    name: str, repository: Path, lines: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path / "data"))
    recipe = load(name, repository)
    splits = fill(recipe, lines)
    run, stats = prepare(recipe, tmp_path)
    models = stats["tokenizer"]["models"]
    assert (models["source"] == models["target"]) == recipe.prepare.tokenizer.joint
    codes = (run.prepared / stats["tokenizer"]["codes"]).read_text(encoding="utf-8").splitlines()
    assert codes[0] == "#version: 0.2" and len(codes) == 1 + 300
    counts = [
        [int(line.rpartition(" ")[2]) for line in (run.prepared / model).read_text(encoding="utf-8").splitlines()]
        for model in models.values()
    ]
    assert all(found == sorted(found, reverse=True) for found in counts)
    words = {side: read_dictionary(run.prepared / model) for side, model in models.items()}
    assert stats["vocab_size"] == {side: len(words[side]) + 4 for side in words}
    lowercase = recipe.prepare.tokenizer.lowercase
    assert all(any(word != word.lower() for word in side) != lowercase for side in words.values())

    tokenizers = prepared_tokenizers(run.prepared)
    for side, tokenizer in enumerate(tokenizers):
        text = splits["test"][side][:5]
        wanted = [line.lower() if lowercase else line for line in text]
        found = [tokenizer.decode(ids) for ids in tokenizer.encode(text)]
        assert sum(a == b for a, b in zip(found, wanted, strict=True)) >= 4  # Moses cannot undo every space
    arrays = TokenArrays(run.prepared / "test.source")
    assert arrays[0].tolist() == tokenizers[0].encode([splits["test"][0][0]])[0]


def test_given_merges_and_dictionaries_are_used_as_they_are(
    repository: Path, lines: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path / "data"))
    fill(load("iwslt14-deen", repository), lines)
    first, _ = prepare(load("iwslt14-deen", repository), tmp_path / "first")
    files = {"codes": "codes", "source_dictionary": "source", "target_dictionary": "target"}
    settings = [f"prepare.tokenizer.{key}={first.prepared / name}.tokenizer.txt" for key, name in files.items()]
    again, stats = prepare(load("iwslt14-deen", repository, *settings, "seed=2"), tmp_path / "again")
    for name in files.values():
        path = f"{name}.tokenizer.txt"
        assert (again.prepared / path).read_bytes() == (first.prepared / path).read_bytes()
    assert stats["tokenizer"]["sample_pairs"] == 0  # nothing was counted
    plain, stats = prepare(load("iwslt14-deen", repository, *settings[:1]), tmp_path / "codes")
    assert stats["tokenizer"]["sample_pairs"] > 0
    assert (plain.prepared / "source.tokenizer.txt").read_bytes() == (
        first.prepared / "source.tokenizer.txt"
    ).read_bytes()


@pytest.mark.slow
def test_a_published_recipe_with_a_small_model_becomes_a_bundle_that_reads_plain_text(
    repository: Path, lines: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FITFORMER_DATA", str(tmp_path / "data"))
    small = ("space=null", "targets=[]", "architecture='enc 16: 32/16/2 | dec 16: 32/16/2/2@0'")
    few = [f"train.{name}" for name in ("updates=20", "batch_tokens=256", "validate_every=10", "warmup=5", "threads=1")]
    quick = ("measure.repeats=3", "measure.warmup=1", "train.average_last=2", "devices.cpu.threads=1")
    recipe = load("iwslt14-deen", repository, *small, *few, *quick)
    splits = fill(recipe, lines)
    (target,) = fit(Run(recipe, tmp_path / "run"))["targets"]
    translator = Translator(Bundle.load(Path(target["bundle"])))
    (translation,) = translator.translate(splits["test"][0][:1])
    assert translation.text == translation.text.lower()  # what the model learned from
    facts = read_json(Path(target["bundle"]) / "fitformer.json")
    assert facts["tokenizer"]["kind"] == "subword-nmt" and facts["tokenizer"]["lowercase"]
    model, decoding = facts["model"], facts["decoding"]
    assert (model["pre_norm"], model["share_embeddings"]) == (False, "none")
    assert (model["position_offset"], model["start_id"]) == (2, 3)
    assert (decoding["beam"], decoding["max_length_ratio"], decoding["max_length_offset"]) == (5, 0, 200)
