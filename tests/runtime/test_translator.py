"""One line out per line in, in order, whatever the lines hold: shown with a bundle that copies."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitformer.errors import InputError
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.lines import one_line
from fitformer.runtime.translator import BATCH_SIZE, Translator

MakeBundle = Callable[..., Path]
# Made once per test and only read by the examples.
shared_folder = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NASTY = ["", " ", "\t", "\x00", "\x0b", "\x0c", "\r", "\x85", "\u2028", "\u2029", "\ufeff", "\u00a0", "\u200b",
         "\ud800", "\U0001f600", "\u4f60\u597d", "\u0928\u092e\u0938\u094d\u0924\u0947", "a", "the", "cat.",
         "<s>", "</s>", "w1", "w2.", "w3,", "x" * 100, "w1 " * 50]  # fmt: skip
nasty_lines = st.lists(st.lists(st.sampled_from(NASTY), max_size=8).map(" ".join) | st.text(max_size=20), max_size=12)


def translator(folder: Path, **options: object) -> tuple[Translator, list[str]]:
    warnings: list[str] = []
    return Translator(Bundle.load(folder), warn=warnings.append, **options), warnings  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["words", "sentencepiece"])
@pytest.mark.parametrize("beam", [1, 3])
def test_every_line_gives_exactly_one_line(make_bundle: MakeBundle, kind: str, beam: int) -> None:
    copier, _ = translator(make_bundle(kind), batch_size=3)
    rule = DecodeSettings(beam=beam, n_best=beam)

    @shared_folder
    @given(nasty_lines)
    def check(lines: list[str]) -> None:
        outputs = [translation.text for translation in copier.translate(lines, rule)]
        written = "".join(f"{text}\n" for text in outputs)
        assert len(written.splitlines()) == written.count("\n") == len(outputs) == len(lines)
        assert all(text == "" for text, line in zip(outputs, lines, strict=True) if not one_line(line))

    check()


def test_output_is_in_input_order_across_windows_and_batches(make_bundle: MakeBundle) -> None:
    lines = [" ".join(["w1", "w2.", "w3,"] * (1 + 7 * i % 6)) + f" w{i % 10}" for i in range(600)]
    copier, _ = translator(make_bundle())
    assert copier.batch_size == BATCH_SIZE
    assert [t.text for t in copier.translate(lines)] == lines


def test_emoji_and_unseen_scripts_pass_through_byte_fallback(make_bundle: MakeBundle) -> None:
    lines = ["\U0001f600", "\u4f60\u597d", "the \u043a\u043e\u0442 sat", "\u0928\u092e", "e\u0301", "\u200d"]
    copier, warnings = translator(make_bundle("sentencepiece"))
    texts = [t.text for t in copier.translate(lines)]
    assert texts[:4] == lines[:4]
    assert texts[4] == "\u00e9"  # SentencePiece's own normalisation
    assert warnings == []


def test_blank_lines_stay_empty_beside_full_ones(make_bundle: MakeBundle) -> None:
    copier, _ = translator(make_bundle())
    lines = ["", "ich bin hier", "  \t ", "da", "\u3000\x00"]
    translations = list(copier.translate(lines))
    assert [t.text for t in translations] == ["", "ich bin hier", "", "da", ""]
    assert [t.parts for t in translations] == [1] * 5


def test_ten_thousand_words_are_split_joined_and_told_in_one_line(make_bundle: MakeBundle) -> None:
    long = " ".join(f"w{i % 10}{mark}" for i, mark in zip(range(10_000), ["", ",", ""] * 4000, strict=False))
    copier, warnings = translator(make_bundle())
    before, middle, after = copier.translate(["da", long, "hier"])
    assert (before.text, after.text) == ("da", "hier")
    assert middle.text == long
    assert middle.parts >= 10_000 // 23
    assert len(warnings) == 1 and "\n" not in warnings[0]
    assert "line 2" in warnings[0] and "10000 tokens" in warnings[0] and "commas" in warnings[0]


def test_a_long_line_is_split_into_sentences_first(make_bundle: MakeBundle) -> None:
    text = "w1 w2 w3 w4. " * 10
    copier, warnings = translator(make_bundle())
    (translation,) = copier.translate([text])
    assert translation.text == text.strip()
    assert translation.parts == 10
    assert "sentences" in warnings[0]


def test_a_long_word_is_cut_and_nothing_is_lost(make_bundle: MakeBundle) -> None:
    word = "thecat" * 200
    copier, warnings = translator(make_bundle("sentencepiece"))
    (translation,) = copier.translate([word])
    assert translation.text.replace(" ", "") == word
    assert "characters" in warnings[0]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_lines_translation_does_not_depend_on_its_batch_mates(make_bundle: MakeBundle, beam: int) -> None:
    lines = ["ich", "ich bin", "w1 w2 w3 w4 w5 w6 w7", "da", "hier hier hier"]
    folder, rule = make_bundle(), DecodeSettings(beam=beam, n_best=beam)
    together = list(translator(folder, batch_size=5)[0].translate(lines, rule, scores=True))
    alone = list(translator(folder, batch_size=1)[0].translate(lines, rule, scores=True))
    for one, other in zip(together, alone, strict=True):
        assert [o.text for o in one.outputs] == [o.text for o in other.outputs]
        assert [o.score for o in one.outputs] == pytest.approx([o.score for o in other.outputs], abs=1e-5)


def test_scores_are_given_when_asked_for_and_add_up_over_parts(make_bundle: MakeBundle) -> None:
    copier, _ = translator(make_bundle())
    sentence = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w0 ich bin da."
    assert next(copier.translate(["ich bin"])).outputs[0].score is None
    one, two, nothing = copier.translate([sentence, f"{sentence} {sentence}", ""], scores=True)
    first, second = one.outputs[0], two.outputs[0]
    assert first.log_prob is not None and second.log_prob is not None and second.score is not None
    assert second.log_prob == pytest.approx(2 * first.log_prob, rel=1e-3)
    assert second.score == pytest.approx(second.log_prob / 28)
    assert nothing.outputs[0].score == 0.0


def test_n_best_is_best_first_for_whole_and_split_lines(make_bundle: MakeBundle) -> None:
    copier, _ = translator(make_bundle())
    rule = DecodeSettings(beam=4, n_best=3)
    whole, split = copier.translate(["ich bin", "w1 w2 w3. " * 20], rule)
    assert len(whole.outputs) == len(split.outputs) == 3
    assert whole.text == "ich bin"
    scores = [output.score or 0.0 for output in whole.outputs]
    assert scores == sorted(scores, reverse=True)
    part = next(copier.translate(["w1 w2 w3."], rule))
    assert [output.text for output in split.outputs] == [" ".join([output.text] * 20) for output in part.outputs]


def test_int8_translates_one_sentence_at_a_time_unless_told_otherwise(make_bundle: MakeBundle) -> None:
    folder = make_bundle(precision="int8")
    copier, warnings = translator(folder)
    assert (copier.batch_size, warnings) == (1, [])
    copier, warnings = translator(folder, batch_size=8)
    assert copier.batch_size == 8
    assert len(warnings) == 1 and "may change" in warnings[0]


def test_lines_are_answered_before_the_input_ends(make_bundle: MakeBundle) -> None:
    read: list[int] = []

    def endless() -> Iterator[str]:
        for number in range(10**9):
            read.append(number)
            yield "ich"

    one_by_one, _ = translator(make_bundle(), batch_size=1)
    assert next(one_by_one.translate(endless())).text == "ich"
    assert len(read) == 1


def test_impossible_numbers_are_named(make_bundle: MakeBundle) -> None:
    folder = make_bundle()
    for setting in ("threads", "batch_size"):
        with pytest.raises(InputError, match=setting):
            translator(folder, **{setting: 0})


def test_a_pipe_of_bytes_comes_out_line_by_line(make_bundle: MakeBundle) -> None:
    from fitformer.runtime.lines import read_lines

    copier, _ = translator(make_bundle())
    stream = io.BytesIO("ich\u2028bin\nda\x0c\r\n\nhier".encode())
    assert [t.text for t in copier.translate(read_lines(stream, "stdin"))] == ["ich bin", "da", "", "hier"]
