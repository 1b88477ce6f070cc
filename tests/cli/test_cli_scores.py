"""``evaluate``, ``compare`` and ``verify``: figures for people, documents for programs, one line for mistakes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitformer.cli.files import WatchedLines
from fitformer.device import device_card
from fitformer.progress import Progress
from fitformer.runtime.scores import lowercase_tokenise, lowercase_tokenised_bleu

MakeBundle = Callable[..., Path]
Command = Callable[..., Any]

LINES = ["ich bin da", "hier w1. w2. w3. w4.", "da bin ich w5, hier w6."]
GOLDEN = {"source": "ich bin da", "source_ids": [34, 35, 37], "target_ids": [34, 35, 37], "text": "ich bin da"}
LATENCY = {
    "device": {"cpu": device_card(1)["cpu"]},
    "threads": 1,
    "source_length": 5,
    "target_length": 6,
    "latency_ms": 4.0,
    "limit_ms": 60_000.0,
    "warmup": 1,
    "repeats": 2,
}


@pytest.fixture
def pair(tmp_path: Path) -> list[object]:
    """A source that the copying bundle translates perfectly, and its references."""
    source, reference = tmp_path / "source.txt", tmp_path / "reference.txt.gz"
    source.write_text("\n".join(LINES) + "\n")
    with gzip.open(reference, "wt") as stream:
        stream.write("\n".join(LINES) + "\n")
    return ["--source", source, "--reference", reference]


def test_a_perfect_bundle_scores_100(cli: Command, document: Command, make_bundle: MakeBundle, pair: list[Any]) -> None:
    bundle = make_bundle()
    facts = document("evaluate", bundle, *pair)
    assert facts["bleu"]["score"] == pytest.approx(100)
    assert (facts["sentences"], facts["latency_ms"]["sentences"]) == (3, 3)
    shown = cli("evaluate", bundle, *pair).stdout
    assert "chrF  100.0 [100.0, 100.0]" in shown and facts["bleu"]["signature"] in shown


def test_translations_can_be_kept(cli: Command, make_bundle: MakeBundle, pair: list[Any], tmp_path: Path) -> None:
    result = cli("evaluate", make_bundle(), *pair, "-o", tmp_path / "out.txt")
    assert result.exit_code == 0
    assert (tmp_path / "out.txt").read_text().splitlines() == LINES


def test_translations_and_json_do_not_share_stdout(cli: Command, make_bundle: MakeBundle, pair: list[Any]) -> None:
    bundle = make_bundle()
    assert cli("evaluate", bundle, *pair, "-o", "-").stdout.startswith("ich bin da\n")
    assert cli("evaluate", bundle, *pair, "-o", "-", "--json").exit_code == 2


def test_the_tokenised_file_is_scored_as_papers_do(
    document: Command, make_bundle: MakeBundle, pair: list[Any], tmp_path: Path
) -> None:
    official = ["ich bin da", "hier w1 . w2 . w3 . w4 .", "da war ich w5 , hier w6 ."]
    (tmp_path / "official.tok").write_text("\n".join(official) + "\n")
    facts = document(
        "evaluate", make_bundle(), *pair, "--lowercase-bleu", "--tokenised-reference", tmp_path / "official.tok"
    )
    expected = lowercase_tokenised_bleu(lowercase_tokenise(LINES, "de"), official)
    assert facts["tokenised_bleu"] == expected
    assert facts["lowercase_bleu"]["score"] == pytest.approx(100)
    assert expected["score"] < 100
    assert "|text:lowercase.normalised.moses" in expected["signature"]


def test_the_score_of_the_hat_paper_stands_beside_the_others(
    cli: Command, document: Command, make_bundle: MakeBundle, pair: list[Any]
) -> None:
    bundle = make_bundle()
    facts = document("evaluate", bundle, *pair, "--legacy-bleu")
    assert facts["legacy_bleu"]["score"] == pytest.approx(100)
    assert facts["legacy_bleu"]["signature"].endswith("|text:moses.de|compounds:split")
    assert "tokenised" not in facts and "lowercase_bleu" not in facts
    shown = cli("evaluate", bundle, *pair, "--legacy-bleu").stdout
    assert "BLEU, tokenised (HAT)" in shown and facts["legacy_bleu"]["signature"] in shown


def test_two_bundles_are_compared_by_the_score_of_the_hat_paper_too(
    cli: Command, document: Command, make_bundle: MakeBundle, pair: list[Any]
) -> None:
    bundle = make_bundle()
    facts = document("compare", bundle, bundle, *pair, "--legacy-bleu")
    assert facts["legacy_difference"]["p_value"] == 1.0
    assert facts["legacy_difference"]["bleu_a"] == facts["bundles"][0]["legacy_bleu"]["score"]
    shown = cli("compare", bundle, bundle, *pair, "--legacy-bleu").stdout
    assert "Tokenised BLEU (HAT) differs by +0.00 on 3 lines" in shown
    assert facts["legacy_difference"]["signature"] in shown


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_files_that_do_not_pair_up_are_refused(
    refusal: Command, make_bundle: MakeBundle, pair: list[Any], tmp_path: Path, command: str
) -> None:
    bundles = [make_bundle()] * (2 if command == "compare" else 1)
    other = tmp_path / "other.txt"
    other.write_text("one\ntwo\n")
    line = refusal(2, command, *bundles, "--source", pair[1], "--reference", other)
    assert f"{pair[1]}: 3 lines, but {other} has 2" in line
    other.write_bytes(b"one\ntwo\n\xff\n")
    assert "other.txt:3: not UTF-8" in refusal(2, command, *bundles, "--source", other, "--reference", pair[1])
    other.write_text("")
    assert "no lines" in refusal(2, command, *bundles, "--source", other, "--reference", other)
    missing = tmp_path / "missing"
    assert "missing: no such file" in refusal(2, command, *bundles, "--source", missing, "--reference", other)


def test_a_tokenised_file_of_another_length_is_refused(
    refusal: Command, make_bundle: MakeBundle, pair: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "official.tok").write_text("one\n")
    line = refusal(2, "evaluate", make_bundle(), *pair, "--tokenised-reference", tmp_path / "official.tok")
    assert "official.tok: 1 lines, but" in line


def test_a_bundle_does_not_differ_from_itself(
    cli: Command, document: Command, make_bundle: MakeBundle, pair: list[Any]
) -> None:
    bundle = make_bundle()
    facts = document("compare", bundle, bundle, *pair)
    assert (facts["difference"]["difference"], facts["difference"]["p_value"]) == (0.0, 1.0)
    assert len(facts["bundles"]) == 2
    shown = cli("compare", bundle, bundle, *pair).stdout
    assert "BLEU differs by +0.00 on 3 lines; by chance alone with p = 1.000" in shown


def test_a_sound_bundle_is_verified(cli: Command, document: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(golden=[GOLDEN], latency=[LATENCY])
    facts = document("verify", bundle)
    assert (facts["files"], facts["golden"], facts["latency"][0]["kept"]) == (3, 1, True)
    shown = cli("verify", bundle).stdout
    assert "1 golden translations are the same, token for token" in shown and "kept" in shown


def test_a_changed_bundle_fails_the_check_with_exit_code_1(refusal: Command, make_bundle: MakeBundle) -> None:
    bundle = make_bundle(golden=[GOLDEN | {"target_ids": [34], "text": "ich"}])
    assert "golden output 1 differs" in refusal(1, "verify", bundle)
    (bundle / "vocabulary").write_text("changed")
    assert "the checksum of vocabulary differs" in refusal(1, "verify", bundle)


def test_watched_lines_move_the_bar_once() -> None:
    progress = Progress("lines", 3, quiet=True)
    lines = WatchedLines(["a", "b", "c"], progress)
    seen = []
    for line in lines:
        seen.append((line, progress.done))
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert progress.done == 3
    assert next(iter(lines)) == "a" and progress.done == 3
    assert (lines[1], lines[1:], len(lines)) == ("b", ["b", "c"], 3)


def test_a_reference_is_never_replaced_by_translations(
    refusal: Command, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("da\n")
    line = refusal(2, "evaluate", make_bundle(), "--source", lines, "--reference", lines, "-o", lines)
    assert "is read, too, and would be lost" in line
    assert lines.read_text() == "da\n"
