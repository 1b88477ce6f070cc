"""BLEU as HAT reports it: against the original's figure, a hand-written BLEU-4, and by hand."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fitformer.errors import InputError
from fitformer.rundir import read_json, sha256, write_json
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.hat_bleu import (
    TokenisedLines,
    hat_bleu,
    paired_hat_bleu,
    split_compounds,
    tokenise_for_bleu,
)
from fitformer.runtime.scores import lowercase_tokenised_bleu, score_translations
from fitformer.runtime.translator import Translator

MakeBundle = Callable[..., Path]


def lines(hypotheses: list[str], references: list[str], text: str = "as-given") -> TokenisedLines:
    return TokenisedLines(hypotheses, references, text)


def by_hand(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. (2002): clipped n-gram precisions of the whole text, their geometric mean, brevity penalty."""
    matches, totals, hypothesis_length, reference_length = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, wanted = split_compounds(hypothesis).split(), split_compounds(reference).split()
        wanted = [f"unknown {i}" if word == "<unk>" else word for i, word in enumerate(wanted)]
        hypothesis_length += len(words)
        reference_length += len(wanted)
        for n in range(1, 5):
            found, allowed = (
                Counter(tuple(side[i : i + n]) for i in range(len(side) - n + 1)) for side in (words, wanted)
            )
            matches[n - 1] += sum(min(count, allowed[gram]) for gram, count in found.items())
            totals[n - 1] += sum(found.values())
    if not all(matches):
        return 0.0
    mean = sum(math.log(match / total) for match, total in zip(matches, totals, strict=True)) / 4
    return 100 * math.exp(mean) * min(1.0, math.exp(1 - reference_length / hypothesis_length))


@pytest.fixture(scope="module")
def toy(shared_data: Path) -> Path:
    return shared_data / "hat" / "fixtures" / "toy_checkpoint"


def generated(file: Path) -> tuple[list[str], list[str]]:
    """H and T lines of fairseq's output, sorted by number."""
    found: dict[str, dict[int, str]] = {"H": {}, "T": {}}
    for line in file.read_text(encoding="utf-8").splitlines():
        kind, _, rest = line.partition("-")
        if kind in found:
            fields = rest.split("\t")
            found[kind][int(fields[0])] = fields[-1]
    assert found["H"].keys() == found["T"].keys() and len(found["H"]) == 100
    hypotheses, references = ([found[kind][i] for i in sorted(found[kind])] for kind in ("H", "T"))
    return hypotheses, references


def test_the_figure_of_the_original_code_comes_out(toy: Path) -> None:
    hypotheses, references = generated(toy / "gen_beam5_lenpen1.0.txt")
    expected = read_json(toy / "expected.json")["toy_sub2_test_tokenised_bleu_beam5_lenpen1"]
    found = hat_bleu(lines(hypotheses, references), samples=10)
    assert round(found["score"], 2) == expected
    assert found["score"] == pytest.approx(by_hand(hypotheses, references), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_any_text_scores_as_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    words = ["a", "b", "c", "d-e", "f-g-h", "<unk>", "A", "&apos;s", "-", "--", "."]

    def line() -> str:
        return " ".join(rng.choices(words, k=rng.randint(0, 12)))

    references = [line() for _ in range(30)]
    hypotheses = [" ".join(word for word in text.split() if rng.random() < 0.9) for text in references]
    found = hat_bleu(lines(hypotheses, references), samples=5)["score"]
    assert found == pytest.approx(by_hand(hypotheses, references), abs=1e-9)
    assert 5 < found < 100


def test_score_worked_out_by_hand() -> None:
    """5 of 5 words, 3 of 4 pairs, 1 of 3 triples ... and four words are one four-gram short."""
    found = hat_bleu(lines(["a b c d x"], ["a b c d e f"]), samples=5)["score"]
    assert found == pytest.approx(100 * math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_without_a_common_four_gram_the_score_is_zero_as_nothing_is_smoothed() -> None:
    assert hat_bleu(lines(["a b c x"], ["a b c d"]), samples=5)["score"] == 0
    assert hat_bleu(lines([""], ["a b c d"]), samples=5)["score"] == 0


def test_case_counts() -> None:
    assert hat_bleu(lines(["A b c d e"], ["a b c d e"]), samples=5)["score"] < 100


def test_an_unknown_word_of_the_reference_matches_nothing() -> None:
    text = ["a b c d e <unk>"]
    assert hat_bleu(lines(text, text), samples=5)["score"] == pytest.approx(by_hand(text, text)) != 100
    text = ["a b c d e <unk>s"]
    assert hat_bleu(lines(text, text), samples=5)["score"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("the well-known U-boat", "the well ##AT##-##AT## known U ##AT##-##AT## boat"),
        ("a - b -c d-", "a - b -c d-"),
        ("on-the-fly", "on ##AT##-##AT## the ##AT##-##AT## fly"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a @-@ b", "a @ ##AT##-##AT## @ b"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_the_original_script_splits_them(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_split_compounds_earn_what_their_parts_earn() -> None:
    pair = ["here is one well-known dog that runs far"], ["here is one well-made dog that runs far"]
    plain = lowercase_tokenised_bleu(*pair, samples=5)["score"]
    assert hat_bleu(lines(*pair), samples=5)["score"] > plain


def test_signatures_name_the_convention() -> None:
    pair = ["a b c d e"], ["a b c d e"]
    signatures = {
        score_translations(*pair, samples=5)["bleu"]["signature"],
        lowercase_tokenised_bleu(*pair, samples=5)["signature"],
        hat_bleu(lines(*pair, text="moses.de"), samples=5)["signature"],
        hat_bleu(lines(*pair, text="as-given"), samples=5)["signature"],
    }
    assert len(signatures) == 4
    assert sum("smooth:none" in signature and "compounds:split" in signature for signature in signatures) == 2
    paired = paired_hat_bleu(lines(*pair, text="moses.de"), lines(*pair, text="moses.de"), samples=5)
    assert paired["signature"].endswith("|text:moses.de|compounds:split") and "bs:5" in paired["signature"]


def test_paired_scores_are_those_of_each_alone() -> None:
    references = [f"the cat number {i} sat on the well-made mat <unk> ." for i in range(30)]
    poor = [line.replace("sat on the", "at a") for line in references]
    good = [line.replace("<unk>", "x") if i % 3 else line.replace("cat", "dog") for i, line in enumerate(references)]
    found = paired_hat_bleu(lines(poor, references), lines(good, references), samples=100)
    assert found["bleu_a"] == pytest.approx(by_hand(poor, references))
    assert found["bleu_b"] == pytest.approx(by_hand(good, references))
    assert found["difference"] > 0 and found["p_value"] < 0.05


def test_scores_of_other_tokens_are_not_compared() -> None:
    with pytest.raises(InputError, match=r"not of one kind \(moses.de and moses.de.lowercase\)"):
        paired_hat_bleu(lines(["a"], ["A"], "moses.de"), lines(["a"], ["a"], "moses.de.lowercase"))


def test_lines_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(InputError, match="2 translations but 1 references"):
        hat_bleu(lines(["a", "b"], ["a"]))
    with pytest.raises(InputError, match="no lines"):
        hat_bleu(lines([], []))


# -- which tokens -----------------------------------------------------------------------------------------------------

DICTIONARY = ["ich", "bin", "da", ",", "&apos;s", "<unk>", "it", "e-mail", "."]


@pytest.fixture
def bundle(make_bundle: MakeBundle) -> Callable[..., Bundle]:
    """A copying bundle of the kind subword-nmt without codes."""

    def make(**options: bool) -> Bundle:
        folder = make_bundle()
        words = [*DICTIONARY, *(f"filler{i}" for i in range(34 - len(DICTIONARY)))]
        (folder / "vocabulary").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
        facts = read_json(folder / "fitformer.json")
        facts["tokenizer"] = {"kind": "subword-nmt", "source": "vocabulary", "target": "vocabulary", **options}
        facts["files"]["vocabulary"] = sha256(folder / "vocabulary")
        facts["source_language"] = facts["target_language"] = "en"
        write_json(folder / "fitformer.json", facts)
        return Bundle.load(folder)

    return make


def test_a_bundle_that_detokenises_gives_its_own_tokens(bundle: Callable[..., Bundle]) -> None:
    """Of the plain text '<unk>' Moses would make three tokens."""
    pytest.importorskip("sacremoses")
    loaded = bundle(moses=True, lowercase=True)
    found = tokenise_for_bleu(loaded, list(Translator(loaded).translate(["Ich, strange.", ""])), ["Ich's da", "x"])
    assert found.hypotheses == ["ich , <unk> .", ""]
    assert found.references == ["ich &apos;s da", "x"]
    assert found.text == "moses.en.lowercase"
    (translation,) = Translator(loaded).translate(["It's da."])
    assert (translation.text, translation.outputs[0].tokens) == ("it's da.", "it &apos;s da .")


def test_tokenised_text_stays_as_it_is(bundle: Callable[..., Bundle]) -> None:
    loaded = bundle(moses=False)
    translations = list(Translator(loaded).translate(["it &apos;s da"]))
    found = tokenise_for_bleu(loaded, translations, ["it &apos;s <unk>"])
    assert (found.hypotheses, found.references, found.text) == (["it &apos;s da"], ["it &apos;s <unk>"], "as-given")
    assert translations[0].outputs[0].tokens is None


def test_plain_text_is_tokenised_by_the_rules_of_its_language(make_bundle: MakeBundle) -> None:
    pytest.importorskip("sacremoses")
    loaded = Bundle.load(make_bundle())
    found = tokenise_for_bleu(loaded, list(Translator(loaded).translate(["w1."])), ['Das ist\'s, "ja"'])
    assert found == TokenisedLines(["w1 ."], ["Das ist &apos; s , &quot; ja &quot;"], "moses.de")
