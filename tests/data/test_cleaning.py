"""Cleaning and normalising: pairs go together, every reason is counted, nothing readable is lost."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.cleaning import REASONS, Cleaner, CleaningSettings
from fitformer.data.digests import DigestLog, as_number
from fitformer.data.normalise import comparison_form, digest, normalise, one_line, source_digest
from fitformer.errors import InputError

TEXT = st.text(max_size=40)


@given(st.lists(st.tuples(TEXT, TEXT)), st.integers(1, 8), st.integers(1, 30))
def test_kept_and_dropped_pairs_add_up(pairs: list[tuple[str, str]], words: int, characters: int) -> None:
    cleaner = Cleaner(CleaningSettings(max_words=words, max_characters=characters, max_ratio=1.5))
    kept = [pair for pair in (cleaner(*pair) for pair in pairs) if pair is not None]
    assert cleaner.seen == len(pairs) == len(kept) + sum(cleaner.dropped.values())
    assert set(cleaner.dropped) <= set(REASONS)
    for pair in kept:
        assert all(side and side == normalise(side) for side in pair)
        assert max(len(side.split(" ")) for side in pair) <= words
        assert max(map(len, pair)) <= characters


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("one two", "eins zwei", None),
        ("", "eins", "empty"),
        ("one", " \u200b\t", "empty"),
        ("a b c d e", "eins", "too_long"),
        ("x" * 31, "y" * 31, "too_long"),
        ("x", "y" * 30, "ratio"),
        ("y" * 30, "x", "ratio"),
        ("a b c d", "a b c d", None),
    ],
)
def test_each_reason_is_found(source: str, target: str, reason: str | None) -> None:
    cleaner = Cleaner(CleaningSettings(max_words=4, max_characters=30, max_ratio=2.0))
    assert (cleaner(source, target) is None) == (reason is not None)
    assert dict(cleaner.dropped) == ({reason: 1} if reason else {})


def test_a_short_pair_of_unequal_length_is_kept() -> None:
    assert Cleaner(CleaningSettings())("OK", "In Ordnung") == ("OK", "In Ordnung")


@pytest.mark.parametrize(("setting", "value"), [("max_words", 0), ("max_characters", -1), ("max_ratio", 0.5)])
def test_an_impossible_setting_is_named(setting: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"cleaning\.{setting}: {value}"):
        CleaningSettings(**{setting: value})  # type: ignore[arg-type]


@given(TEXT)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once == unicodedata.normalize("NFC", once)
    assert once.splitlines() in ([], [once])
    once.encode("utf-8")


def test_joiners_and_emoji_survive_and_control_characters_do_not() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert normalise(f" {family}\x00\x07\ufeff \u00a0 cafe\u0301\tx\r\n") == f"{family} caf\u00e9 x"


@given(TEXT)
def test_a_line_stays_one_line_and_keeps_its_words(text: str) -> None:
    line = one_line(text)
    assert line.splitlines() in ([], [line])
    assert line.encode("utf-8").decode("utf-8").split() == text.split()


def test_a_plain_line_is_only_trimmed() -> None:
    assert one_line("  zwei  W\u00f6rter\u00a0hier ") == "zwei  W\u00f6rter\u00a0hier"
    assert one_line("one\r\n\r\n two\u2028three") == "one two three"


def test_case_punctuation_and_spacing_make_no_difference_but_words_do() -> None:
    same = ["Save the file!", "save the  file", "SAVE, THE FILE \u2026", "\u201esave\u201c the f\u00adile"]
    assert {comparison_form(text) for text in same[:3]} == {"save the file"}
    assert comparison_form("Save the files") != "save the file"
    assert comparison_form("STRASSE") == comparison_form("Stra\u00dfe.")
    assert comparison_form("!!!") != comparison_form("???")


def test_digests_are_the_same_everywhere() -> None:
    assert digest("a", "b").hex() == digest("a", "b").hex() != digest("ab").hex()
    assert digest("Haus").hex() == "d7599fc20167ac09"
    assert source_digest("A b.", 1) == source_digest("a B", 1) != source_digest("a B", 2)


# -- digests in a file ------------------------------------------------------------------------------------------------


def log_of(path: Path, items: list[str]) -> DigestLog:
    with DigestLog(path) as log:
        for item in items:
            log.add(digest(item))
    return log


ITEMS = st.lists(st.text("abc", max_size=2), max_size=60)


@given(ITEMS)
def test_a_repeated_item_is_one_that_stood_earlier(tmp_path_factory: pytest.TempPathFactory, items: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitformer.data.digests.PART", 7)  # many parts
        repeated = log_of(tmp_path_factory.mktemp("log") / "a", items).repeated()
    assert repeated.tolist() == [item in items[:i] for i, item in enumerate(items)]


@given(ITEMS, st.sets(st.text("abc", max_size=2)))
def test_members_are_found(tmp_path_factory: pytest.TempPathFactory, items: list[str], others: set[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitformer.data.digests.PART", 7)
        log = log_of(tmp_path_factory.mktemp("log") / "a", items)
        found = log.member_of(frozenset(map(digest, others)))
    assert found.tolist() == [item in others for item in items]


@given(st.lists(st.integers(0, 30).map(str), min_size=1, max_size=60), st.integers(0, 70), st.data())
def test_the_bound_cuts_off_just_enough(
    tmp_path_factory: pytest.TempPathFactory, items: list[str], wanted: int, data: st.DataObject
) -> None:
    skip = np.array(data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitformer.data.digests.PART", 7)
        bound = log_of(tmp_path_factory.mktemp("log") / "a", items).lowest(wanted, skip=skip)
    numbers = [as_number(digest(item)) for item, out in zip(items, skip, strict=True) if not out]
    below = [number for number in numbers if number < bound]
    assert len(below) >= min(wanted, len(numbers))
    if below and wanted < len(numbers):  # without the largest of them (and its equals) there are too few
        assert sum(number < max(below) for number in below) < wanted
