"""Splitting at line feeds only, one line out of anything, and cutting long lines without losing a word."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitformer.errors import InputError
from fitformer.runtime.lines import one_line, read_lines, split_long


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def glued(text: str, limit: int, lengths: object) -> str:
    pieces, _ = split_long(text, limit, lengths)  # type: ignore[arg-type]
    return "".join(piece.glue + piece.text for piece in pieces)


def test_only_a_line_feed_ends_a_line() -> None:
    text = "\ufeffa\u2028b\x0bc\x85d\re\n\n  \nf\r\nlast"
    assert list(read_lines(io.BytesIO(text.encode()), "x")) == [
        "a\u2028b\x0bc\x85d\re",
        "",
        "  ",
        "f",
        "last",
    ]
    assert list(read_lines(io.BytesIO(b""), "x")) == []


def test_bytes_that_are_no_utf8_are_named_by_file_and_line() -> None:
    with pytest.raises(InputError, match=r"letters.txt:2: not UTF-8 \(byte 0xe4 at column 3\)"):
        list(read_lines(io.BytesIO(b"good\nM\xc3\xa4\n".replace(b"\xc3\xa4", b"a\xe4")), "letters.txt"))


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
def test_any_text_becomes_one_line_that_can_be_written(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == one_line(line) == line.strip()
    assert line.encode("utf-8").decode("utf-8") == line


def test_letters_of_any_script_stay_as_they_are() -> None:
    text = "Gr\u00fc\u00dfe \u043f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d \U0001f600\u200d\U0001f525 a\u0301"
    assert one_line(text) == text
    assert one_line("a\tb\x00c\r") == "a b c"


def test_long_text_is_cut_into_its_sentences() -> None:
    pieces, cut = split_long('One two. "Three four!" Five six? Seven', 3, words)
    assert [piece.text for piece in pieces] == ["One two.", '"Three four!"', "Five six?", "Seven"]
    assert cut == "sentences"


def test_a_long_sentence_is_cut_at_commas_then_spaces_then_anywhere() -> None:
    pieces, cut = split_long("a b, c d, e f g h. i", 4, words)
    assert [piece.text for piece in pieces] == ["a b, c d,", "e f g h.", "i"]
    assert cut == "commas"
    pieces, cut = split_long("a b c d e f g", 3, words)
    assert [piece.text for piece in pieces] == ["a b c", "d e f", "g"]
    assert cut == "spaces"
    pieces, cut = split_long("abcdefgh", 3, characters)
    assert [piece.text for piece in pieces] == ["ab", "cd", "ef", "gh"]
    assert cut == "characters"


def test_full_width_marks_end_a_sentence_without_a_space() -> None:
    text = "\u4f60\u597d\u3002\u6211\u5f88\u597d\uff01\u518d\u89c1"
    pieces, cut = split_long(text, 5, characters)
    assert ([piece.text for piece in pieces], cut) == (
        ["\u4f60\u597d\u3002", "\u6211\u5f88\u597d\uff01", "\u518d\u89c1"],
        "sentences",
    )
    assert glued(text, 5, characters) == text


@given(st.text(alphabet="ab .,!?\u3002\u00e4\"'", max_size=200), st.integers(1, 12))
@settings(deadline=None)
def test_pieces_fit_and_put_together_are_the_text(text: str, limit: int) -> None:
    text = one_line(text)
    pieces, _ = split_long(text, limit, characters)
    assert all(len(piece.text) <= limit and piece.text for piece in pieces)
    assert glued(text, limit, characters).split() == text.split()
