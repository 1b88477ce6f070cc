"""The plain baselines: the lookup agrees with scikit-learn's own TF-IDF, in any chunking, and can be scored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from fitformer.data.arrays import TokenArrays
from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.errors import DataError, InputError
from fitformer.runtime.tokenizer import load_tokenizer
from fitformer.tasks import baselines
from fitformer.tasks.baselines import DecodedText, baseline_scores, copy_source, nearest_translation

WORDS = ("the", "a", "dog", "cat", "man", "woman", "red", "runs", "sits", "under", "ladder", "house", "grass", "two")


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(count)]


def test_copy_source_returns_the_sources() -> None:
    assert copy_source(("a", "b")) == ["a", "b"]


def test_nearest_translation_equals_a_dense_reference() -> None:
    train, queries = sentences(300, 1), sentences(60, 2)
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=baselines.NGRAMS).fit(train)
    similar = np.round((vectors.transform(queries) @ vectors.transform(train).T).toarray(), 4)
    found = nearest_translation(train, [str(i) for i in range(len(train))], queries)
    # Any sentence that is as similar as the most similar one is right: the reference rounds otherwise.
    for row, index in zip(similar, map(int, found), strict=True):
        assert row[index] == pytest.approx(row.max(), abs=2e-4)


def test_a_training_sentence_finds_its_own_translation_and_the_first_of_equals_wins() -> None:
    train = [*dict.fromkeys(sentences(50, 3))]
    targets = [f"t{i}" for i in range(len(train))]
    assert nearest_translation(train, targets, train) == targets
    doubled = nearest_translation(train + train, targets + [f"again {t}" for t in targets], train)
    assert doubled == targets


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    train, queries = sentences(120, 4) * 2, sentences(30, 5)
    targets = [str(i) for i in range(len(train))]
    expected = nearest_translation(train, targets, queries)
    monkeypatch.setattr(baselines, "CHUNK_SENTENCES", size)
    assert nearest_translation(train, targets, queries) == expected


def test_source_that_shares_nothing_gets_the_first_translation() -> None:
    assert nearest_translation(["dog", "cat"], ["Hund", "Katze"], ["\u65e5\u672c", ""]) == ["Hund", "Hund"]
    assert nearest_translation(["dog"], ["Hund"], []) == []


def test_training_text_must_pair_up() -> None:
    for train, targets in (([], []), (["a"], ["b", "c"])):
        with pytest.raises(InputError, match="must be as many"):
            nearest_translation(train, targets, ["a"])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(
        PrepareSettings(
            train=BuiltinCorpus("numbers", size=600, seed=1),
            source_language="en",
            target_language="de",
            tokenizer=TokenizerSettings(vocab_size=500),
            quiet=True,
        ),
        folder,
    )
    yield folder


def test_training_text_is_read_back_from_the_arrays(prepared: Path) -> None:
    tokenizer = load_tokenizer("sentencepiece", prepared / "joint.model")
    arrays, text = TokenArrays(prepared / "train.source"), DecodedText(prepared / "train.source", tokenizer)
    assert len(text) == len(arrays)
    assert tokenizer.encode(text[:20]) == [arrays[i].tolist() for i in range(20)]
    some = DecodedText(prepared / "train.source", tokenizer, most=10)
    assert len(some) == 10 and some[0] == text[0] and some[9] == text[len(text) - 1]


def test_scores_come_with_intervals_and_signatures(prepared: Path) -> None:
    scores = baseline_scores(prepared, "valid", quiet=True)
    assert scores["split"] == "valid" and scores["sentences"] > 0 and scores["train_pairs"] > 100
    for name in ("copy_source", "nearest_translation"):
        for metric in ("bleu", "chrf"):
            assert {"score", "interval", "signature"} <= set(scores[name][metric])
    assert scores["nearest_translation"]["bleu"]["score"] > scores["copy_source"]["bleu"]["score"]
    assert baseline_scores(prepared, "valid", quiet=True) == scores
    assert baseline_scores(prepared, "valid", max_pairs=50, quiet=True)["train_pairs"] == 50


def test_missing_split_is_named(prepared: Path, tmp_path: Path) -> None:
    for path in prepared.iterdir():
        if not path.name.startswith("test.") and path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"test\.source\.txt: no such file"):
        baseline_scores(tmp_path, "test", quiet=True)
