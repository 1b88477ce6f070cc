"""Runs whose text is read as original HAT reads it, from Multi30k captions to a bundle."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fitformer.pipeline import Run, fit
from fitformer.recipe import load_recipe
from fitformer.rundir import read_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.moses import Moses
from fitformer.runtime.translator import Translator
from fitformer.runtime.verify import verify

pytest.importorskip("subword_nmt")
pytest.importorskip("sacremoses")

RECIPE: dict[str, Any] = {
    "name": "captions",
    "architecture": "enc 16: 32/16/2 | dec 16: 32/16/2/2@0",
    "train": {"updates": 8, "validate_every": 4, "warmup": 4, "threads": 1, "start": "scratch"},
    "measure": {"warmup": 1, "repeats": 3},
    "compress": {"int8": False},
    "export": {"beam": 2, "check_sentences": 10},
}
PAIRS = {"train": (0, 400), "test": (500, 540)}


@pytest.fixture
def captions(shared_data: Path) -> dict[str, list[str]]:
    found = {}
    for language in ("en", "de"):
        with gzip.open(shared_data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8") as stream:
            found[language] = [line.strip() for line in itertools.islice(stream, 600)]
    return found


def write(folder: Path, captions: dict[str, list[str]], *, tokenised: bool = False) -> dict[str, Any]:
    """Text files beside the recipe; returns its section ``data``."""
    data: dict[str, Any] = {"source_language": "en", "target_language": "de", "held_out_pairs": 20}
    for split, (start, stop) in PAIRS.items():
        data[split] = {"source": f"{split}.en", "target": f"{split}.de"}
        for language, lines in captions.items():
            moses = Moses(language)
            text = [moses.tokenise(line) if tokenised else line for line in lines[start:stop]]
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return data


def run(folder: Path, data: dict[str, Any], tokenizer: dict[str, Any], **sections: Any) -> tuple[Run, dict[str, Any]]:
    recipe = {**RECIPE, **sections, "data": data}
    recipe["prepare"] = {"tokenizer": {"kind": "subword-nmt", **tokenizer}, "max_tokens": 64}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    found = Run(load_recipe(folder / "recipe.yaml"), folder / "run")
    return found, fit(found)


@pytest.mark.slow
def test_learned_merges_become_a_bundle_that_reads_plain_text(
    captions: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test set comes by name from sacreBLEU's cache."""
    data = write(tmp_path, captions)
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    monkeypatch.setenv("FITFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sacrebleu" / "wmt13").mkdir(parents=True)
    for field, language in (("src", "en"), ("ref", "de")):
        (tmp_path / f"test.{language}").rename(tmp_path / "sacrebleu" / "wmt13" / f"wmt13.en-de.{field}")
    data["test"] = {"sacrebleu": "wmt13"}
    found, summary = run(tmp_path, data, {"vocab_size": 200, "moses": True, "lowercase": True})

    stats = read_json(found.prepared / "stats.json")
    assert stats["fetched"] == {"test": {"sacrebleu": ["wmt13"]}} and stats["test"]["pairs"] == 40
    assert stats["vocab_size"]["source"] % 8 == 0
    bundle = Bundle.load(Path(summary["targets"][0]["bundle"]))
    entry = bundle.facts["tokenizer"]
    assert (entry["kind"], entry["moses"], entry["lowercase"]) == ("subword-nmt", True, True)
    assert entry["codes"] in bundle.facts["files"]
    assert verify(bundle)["golden"] > 0
    score = bundle.facts["scores"]["test"]["legacy_bleu"]
    assert score["signature"].endswith("|text:moses.de.lowercase|compounds:split")
    translations = list(Translator(bundle).translate(["Two dogs, one cat.", "", "It's 5 o'clock & late."]))
    assert [bool(translation.text) for translation in translations] == [True, False, True]
    page = Path(summary["report"]).read_text(encoding="utf-8")
    assert "as HAT reports it," in page and "subword-nmt" in page
    recorded = json.loads((found.prepared / "done.json").read_text())["inputs"]["data"]
    assert recorded["test"]["sacrebleu"] == ["wmt13"] and "mtdata" not in recorded["train"]
    fit(found)  # all is done: nothing is refused, nothing fetched


@pytest.mark.slow
def test_given_files_of_tokenised_text_keep_their_ids_and_tokens(
    captions: dict[str, list[str]], tmp_path: Path
) -> None:
    """Without merges the text is cut already; files are found beside the recipe."""
    data = write(tmp_path, captions, tokenised=True)
    for name, language in (("source_dictionary", "en"), ("target_dictionary", "de")):
        words = sorted(
            {word for line in (tmp_path / f"train.{language}").read_text("utf-8").splitlines() for word in line.split()}
        )
        (tmp_path / name).write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    files = {"source_dictionary": "source_dictionary", "target_dictionary": "target_dictionary"}
    model = {"start": "eos", "position_offset": 2, "pre_norm": False, "share_embeddings": "none"}
    found, summary = run(tmp_path, data, {"joint": False, **files}, model=model)
    for side, name in (("source", "source_dictionary"), ("target", "target_dictionary")):
        stats = read_json(found.prepared / "stats.json")
        prepared = found.prepared / stats["tokenizer"]["models"][side]
        assert prepared.read_bytes() == (tmp_path / name).read_bytes()
        assert stats["vocab_size"][side] == len((tmp_path / name).read_text().splitlines()) + 4
    bundle = Bundle.load(Path(summary["targets"][0]["bundle"]))
    assert "codes" not in bundle.facts["tokenizer"]
    assert bundle.facts["scores"]["test"]["legacy_bleu"]["signature"].endswith("|text:as-given|compounds:split")
    source, target = bundle.tokenizers()
    assert source.decode(source.encode(["two dogs &apos;s ."])[0]).endswith(".")
    assert verify(bundle)["golden"] > 0 and target.vocab_size != source.vocab_size
