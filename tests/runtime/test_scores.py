"""Scores against direct calls of sacreBLEU, and the official Multi30k files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import sacrebleu

from fitformer.errors import InputError
from fitformer.runtime.scores import (
    lowercase_tokenise,
    lowercase_tokenised_bleu,
    paired_bootstrap,
    score_translations,
)

DATA = Path(os.environ.get("FITFORMER_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "multi30k"

REFERENCES = [f"The cat number {i} sat on the big mat, near the door." for i in range(40)]
GOOD = [line.replace("big mat", "mat") if i % 4 == 0 else line for i, line in enumerate(REFERENCES)]
POOR = [line.replace("sat on the big mat", "was at a rug") for line in REFERENCES]


def test_scores_are_those_of_sacrebleu_with_its_signatures() -> None:
    scores = score_translations(GOOD, REFERENCES, samples=100)
    assert scores["bleu"]["score"] == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    assert scores["chrf"]["score"] == pytest.approx(sacrebleu.corpus_chrf(GOOD, [REFERENCES]).score)
    for part in ("nrefs:1", "case:mixed", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"):
        assert part in scores["bleu"]["signature"]
    assert "nc:6" in scores["chrf"]["signature"] and "nw:0" in scores["chrf"]["signature"]


def test_interval_holds_the_score_and_is_repeatable() -> None:
    first, second = (score_translations(GOOD, REFERENCES, samples=200) for _ in range(2))
    assert first == second
    for metric in ("bleu", "chrf"):
        low, high = first[metric]["interval"]
        assert low < first[metric]["score"] < high
        assert high - low < 20


def test_tokenised_bleu_takes_the_tokens_as_they_are() -> None:
    hypotheses, references = ["a b c d , e"] * 2, ["a b c d , f"] * 2
    scores = lowercase_tokenised_bleu(hypotheses, references, samples=10)
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert scores["score"] == pytest.approx(expected)
    assert "tok:none" in scores["signature"]


def test_paired_bootstrap_tells_a_real_difference_from_none() -> None:
    different = paired_bootstrap(POOR, GOOD, REFERENCES, samples=200)
    assert different["difference"] == pytest.approx(different["bleu_b"] - different["bleu_a"])
    assert different["difference"] > 10
    assert different["p_value"] < 0.05
    same = paired_bootstrap(GOOD, GOOD, REFERENCES, samples=200)
    assert same["difference"] == 0
    assert same["p_value"] == 1.0
    assert different["bleu_b"] == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    assert "bs:200" in different["signature"]


def test_lines_that_do_not_pair_up_are_counted_in_the_message() -> None:
    with pytest.raises(InputError, match="2 translations but 1 references"):
        score_translations(["a", "b"], ["a"])
    with pytest.raises(InputError, match="no lines"):
        score_translations([], [])
    with pytest.raises(InputError, match="pair up"):
        paired_bootstrap(["a"], ["a", "b"], ["a"])


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the Multi30k texts in {DATA}")
@pytest.mark.parametrize(("language", "differing"), [("de", 0), ("en", 0), ("fr", 1)])
def test_lowercase_tokenise_gives_the_official_multi30k_files(language: str, differing: int) -> None:
    pytest.importorskip("sacremoses")
    raw = (
        gzip.decompress((DATA / f"test_2016_flickr.{language}.gz").read_bytes()).decode().removesuffix("\n").split("\n")
    )
    official = (DATA / f"test_2016_flickr.lc.norm.tok.{language}").read_bytes().decode().removesuffix("\n").split("\n")
    made = lowercase_tokenise(raw, language)
    assert len(made) == len(official)
    # sacremoses may leave a space at the end of a line, which no scorer sees.
    assert sum(ours.split() != theirs.split() for ours, theirs in zip(made, official, strict=True)) <= differing


def test_a_test_set_of_which_some_resamples_share_nothing_is_scored(recwarn: pytest.WarningsRecorder) -> None:
    """sacreBLEU's chrF mixes number types there and cannot take their mean."""
    scores = score_translations(["same words here", "", "x"], ["same words here", "other", "y"], samples=200)
    assert scores["chrf"]["interval"][0] < scores["chrf"]["score"] < scores["chrf"]["interval"][1]
    assert "nc:6" in scores["chrf"]["signature"]
