"""Subword models: fixed ids, nothing lost, placeholders whole, the same model every time."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitformer.data.normalise import normalise
from fitformer.data.tokenizer import (
    PlaceholderCounter,
    TokenizerSettings,
    placeholders,
    suggested_vocab_size,
    train_tokenizer,
)
from fitformer.data.written_numbers import number_pairs
from fitformer.errors import InputError

SYMBOLS = ["{name}", "%s", "%1$d", "<b>", "</b>", '<a href="x y">', "&nbsp;", "{{a,b}}"]
TEXT = [side for pair in number_pairs(300, seed=1) for side in pair]


def trained(path: Path, vocab_size: int = 700, **more: object) -> sentencepiece.SentencePieceProcessor:
    train_tokenizer(path, TEXT, TokenizerSettings(**more), vocab_size=vocab_size, symbols=SYMBOLS)  # type: ignore[arg-type]
    return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> sentencepiece.SentencePieceProcessor:
    return trained(tmp_path_factory.mktemp("model") / "joint.model")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_special_ids_are_fixed_and_the_size_is_reached(tmp_path: Path, kind: str) -> None:
    model = trained(tmp_path / "m", kind=kind)
    assert (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id()) == (0, 1, 2, 3)
    assert 500 < model.get_piece_size() <= 700


@settings(deadline=None)
@given(st.text(max_size=60))
@example("\u1ec7 e\u0323\u0302 \u1eb9\u0302 cafe\u0301\u00a0x\ty")
@example("\U0001f468\u200d\U0001f469 \u65e5\u672c\u8a9e \u0928\u092e\u0938\u094d\u0924\u0947 \ufeff\x07")
def test_every_text_survives_as_cleaning_leaves_it(processor: sentencepiece.SentencePieceProcessor, text: str) -> None:
    clean = normalise(text)
    if "\u2581" in text or "\x00" in text:  # the library's own mark for a space; an end of string
        return
    ids = processor.encode(clean)
    assert 1 not in ids
    assert processor.decode(ids) == clean


@given(
    st.lists(st.sampled_from(["a", "e\u0301", "o\u0308", "e\u0323\u0302", " ", "\t", "\u00a0", "\u200b", "\x07", "\r"]))
)
def test_raw_text_is_encoded_as_the_cleaned_text_was(
    processor: sentencepiece.SentencePieceProcessor, parts: list[str]
) -> None:
    text = "".join(parts)
    assert processor.encode(text) == processor.encode(normalise(text))


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(SYMBOLS), st.sampled_from(["three", "Haus", ":", "x"])), min_size=1))
def test_placeholders_stay_whole(processor: sentencepiece.SentencePieceProcessor, parts: list[str]) -> None:
    text = " ".join(parts)
    ids = processor.encode(text)
    assert processor.decode(ids) == text
    for symbol in SYMBOLS:
        piece = processor.piece_to_id(symbol.replace(" ", "\u2581"))
        assert piece > 3
        assert ids.count(piece) == parts.count(symbol)


def test_symbols_of_the_user_stay_whole(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", user_defined_symbols=("@@", "<2de>"))
    assert model.encode("a@@b", out_type=str).count("@@") == 1
    assert "<2de>" in model.encode("<2de> three", out_type=str)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_twice_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    trained(tmp_path / "a", kind=kind)
    trained(tmp_path / "b", kind=kind)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_model_names_no_path_of_the_machine_that_made_it(tmp_path: Path) -> None:
    trained(tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    assert b"normalisation.tsv" not in data
    assert str(tmp_path).encode() not in data


def test_a_vocabulary_too_small_for_the_characters_grows(tmp_path: Path) -> None:
    size = train_tokenizer(tmp_path / "m", TEXT, TokenizerSettings(), vocab_size=8)
    assert size > 256 + 4


def test_a_handful_of_sentences_is_enough(tmp_path: Path) -> None:
    assert train_tokenizer(tmp_path / "m", ["a"], TokenizerSettings(), vocab_size=4000) >= 261


def test_without_byte_fallback_unseen_characters_are_unknown(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", vocab_size=300, byte_fallback=False)
    assert 1 in model.encode("\u65e5")


def test_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to learn"):
        train_tokenizer(tmp_path / "m", ["", ""], TokenizerSettings(), vocab_size=400)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hi {name}, {{ x }} {0} {}", ["{name}", "{0}", "{}"]),
        ("${home} %{user} #{id} {{count}}", ["${home}", "%{user}", "#{id}", "{{count}}"]),
        ("%s of %1$d, %(n)s and %.2f%%", ["%s", "%1$d", "%(n)s", "%.2f"]),
        ("5 % der Leute, 100% sure", []),
        ('<b>x</b> <br/> <a href="q r">y</a>', ["<b>", "</b>", "<br/>", '<a href="q r">', "</a>"]),
        ("a < b and c > d, <3", []),
        ("&nbsp; &#160; A&B; R&D", ["&nbsp;", "&#160;"]),
    ],
)
def test_placeholders_are_recognised_and_prose_is_not(text: str, found: list[str]) -> None:
    assert placeholders(text) == found


def test_the_most_frequent_placeholders_come_first() -> None:
    counter = PlaceholderCounter()
    for text in ("{b} {a} {c}", "{c}", "nothing", "{a}"):
        counter.add(text)
    assert counter.most_frequent(10) == ["{a}", "{c}", "{b}"]
    assert counter.most_frequent(1) == ["{a}"]


def test_counting_placeholders_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitformer.data.tokenizer._MOST_COUNTED", 50)
    counter = PlaceholderCounter()
    for i in range(1000):
        counter.add(f"{{often}} {{rare{i}}}")
        assert len(counter.counts) <= 51
    assert counter.most_frequent(1) == ["{often}"]


def test_the_suggested_vocabulary_grows_with_the_text_within_bounds() -> None:
    sizes = [suggested_vocab_size(10**n) for n in range(3, 12)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (400, 32_000)
    assert suggested_vocab_size(4_000_000) == 5000


@pytest.mark.parametrize(
    ("setting", "value"),
    [("kind", "wordpiece"), ("vocab_size", 3), ("character_coverage", 0.5), ("user_defined_symbols", (" x",))],
)
def test_an_impossible_tokenizer_setting_is_named(setting: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"tokenizer\.{setting}"):
        TokenizerSettings(**{setting: value})  # type: ignore[arg-type]
