"""The built-in corpora: correct numbers in two languages, and interface sentences that never cross splits."""

from __future__ import annotations

import calendar
import json
import re
import subprocess
import zipfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data import homeassistant
from fitformer.data.builtin import BuiltinCorpus, builtin_pairs
from fitformer.data.homeassistant import SPLITS, component_split, fetch_wheel, homeassistant_pairs
from fitformer.data.normalise import comparison_form, normalise
from fitformer.data.written_numbers import (
    clock_time,
    english_number,
    english_ordinal,
    english_year,
    german_number,
    german_ordinal,
    german_year,
    number_pairs,
)
from fitformer.errors import InputError, NotPossibleError
from fitformer.rundir import sha256

# -- written-out numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (70, "seventy", "siebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
        (1_000, "one thousand", "eintausend"),
        (1_001, "one thousand and one", "eintausendeins"),
        (2_345, "two thousand three hundred and forty-five", "zweitausenddreihundertfünfundvierzig"),
        (21_000, "twenty-one thousand", "einundzwanzigtausend"),
        (101_000, "one hundred and one thousand", "einhunderteintausend"),
        (1_000_000, "one million", "eine Million"),
        (2_000_016, "two million and sixteen", "zwei Millionen sechzehn"),
    ],
)
def test_numbers_are_written_as_in_a_dictionary(number: int, english: str, german: str) -> None:
    assert english_number(number) == english
    assert german_number(number) == german


@given(st.integers(0, 999_999_999), st.integers(0, 999_999_999))
def test_different_numbers_have_different_names(a: int, b: int) -> None:
    assert (english_number(a) == english_number(b)) == (german_number(a) == german_number(b)) == (a == b)


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "first", "ersten"),
        (3, "third", "dritten"),
        (7, "seventh", "siebten"),
        (8, "eighth", "achten"),
        (12, "twelfth", "zwölften"),
        (19, "nineteenth", "neunzehnten"),
        (20, "twentieth", "zwanzigsten"),
        (21, "twenty-first", "einundzwanzigsten"),
        (31, "thirty-first", "einunddreißigsten"),
    ],
)
def test_ordinals_are_inflected(number: int, english: str, german: str) -> None:
    assert english_ordinal(number) == english
    assert german_ordinal(number, "en") == german


@pytest.mark.parametrize(
    ("year", "english", "german"),
    [
        (1900, "nineteen hundred", "neunzehnhundert"),
        (1905, "nineteen oh five", "neunzehnhundertfünf"),
        (1984, "nineteen eighty-four", "neunzehnhundertvierundachtzig"),
        (2000, "two thousand", "zweitausend"),
        (2004, "two thousand and four", "zweitausendvier"),
        (2023, "twenty twenty-three", "zweitausenddreiundzwanzig"),
    ],
)
def test_years_are_spoken_in_their_own_way(year: int, english: str, german: str) -> None:
    assert (english_year(year), german_year(year)) == (english, german)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (9, 45, "a quarter to ten", "Viertel vor zehn"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (3, 20, "twenty past three", "zwanzig nach drei"),
        (2, 50, "ten to three", "zehn vor drei"),
        (1, 7, "one oh seven", "ein Uhr sieben"),
        (4, 54, "four fifty-four", "vier Uhr vierundfünfzig"),
    ],
)
def test_times_name_the_hour_each_language_names(hour: int, minute: int, english: str, german: str) -> None:
    assert clock_time(hour, minute) == (english, german)


def test_weekdays_fit_their_dates() -> None:
    ordinals = {english_ordinal(day): day for day in range(1, 32)}
    years = {english_year(year): year for year in range(1900, 2100)}
    checked = 0
    for english, _ in number_pairs(500, seed=3):
        found = re.search(r"is on (\w+), the ([\w-]+) of (\w+) ([\w -]+), at", english)
        if found:
            weekday, ordinal, month, year = found.groups()
            day = date(years[year], list(calendar.month_name).index(month), ordinals[ordinal])
            assert f"{day:%A}" == weekday
            checked += 1
    assert checked > 30


def test_the_generated_corpus_depends_on_its_seed_alone() -> None:
    first, again, other = (list(number_pairs(200, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first == list(number_pairs(500, 1))[:200]
    assert first[1] == ("There is one letter on the table.", "Auf dem Tisch ist ein Brief.")


def test_most_generated_pairs_are_different_and_clean() -> None:
    pairs = list(builtin_pairs(BuiltinCorpus("numbers", size=5000)))
    assert len(pairs) == 5000
    assert len(set(pairs)) > 4500
    assert all(side == normalise(side) != "" for pair in pairs for side in pair)


# -- interface sentences ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of the same layout in an own cache, with a component for each split."""
    names: dict[str, str] = {}
    for number in range(1000):
        names.setdefault(component_split(f"part{number}"), f"part{number}")
    texts = {
        "train": {
            "Press the big button": "Drück den großen Knopf",
            "Try again later": "Versuch es später",
            "Host": "Host",
            "Value of {name} here": "Wert von {name} hier",
            "See [the docs](https://x.y) first": "Siehe [die Doku](https://x.y) zuerst",
            "Home Assistant Green": "Home Assistant Green",
        },
        "valid": {"Try again, later!": "Bitte später versuchen", "Open the door": "Öffne die Tür"},
        "test": {
            "Open the door!": "Mach die Tür auf",
            "Close the door": "Schließ die Tür",
            "close the door.": "Tür zu!",
        },
    }
    wheel = tmp_path / "cache" / homeassistant.WHEEL
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for split, pairs in texts.items():
            folder = f"homeassistant/components/{names[split]}/translations"
            english = {"config": {str(i): text for i, text in enumerate(pairs)}, "only_english": "Not here"}
            german = {"config": {str(i): text for i, text in enumerate(pairs.values())}}
            archive.writestr(f"{folder}/en.json", json.dumps(english))
            archive.writestr(f"{folder}/de.json", json.dumps(german))
    monkeypatch.setenv("FITFORMER_CACHE", str(wheel.parent))
    monkeypatch.setattr(homeassistant, "SHA256", sha256(wheel))
    return wheel


@pytest.mark.usefixtures("small_wheel")
def test_only_plain_translated_sentences_are_taken_and_none_is_in_two_splits() -> None:
    assert {split: homeassistant_pairs(split) for split in SPLITS} == {
        "train": [("Press the big button", "Drück den großen Knopf"), ("Try again later", "Versuch es später")],
        "valid": [("Open the door", "Öffne die Tür")],
        "test": [("Close the door", "Schließ die Tür")],
    }


def test_a_cached_corpus_needs_no_network(small_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert fetch_wheel() == small_wheel
    assert BuiltinCorpus("homeassistant").size_hint() == 2


def failing_pip(stderr: str) -> object:
    return lambda command, **_: subprocess.CompletedProcess(command, 1, "", stderr)


def test_without_network_one_line_says_how_to_use_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FITFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", failing_pip("WARNING: Retrying\nERROR: No matching distribution\n"))
    with pytest.raises(NotPossibleError) as caught:
        fetch_wheel()
    message = str(caught.value)
    assert "\n" not in message
    assert "No matching distribution" in message
    assert "use your own files" in message
    assert not list((tmp_path / "cache").iterdir())


def test_a_download_with_another_checksum_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / homeassistant.WHEEL).write_text("something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("FITFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(NotPossibleError, match="wrong checksum"):
        fetch_wheel()
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.slow
def test_the_real_corpus_has_its_size_and_its_splits_share_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        fetch_wheel()  # into the user's cache, so that it is downloaded once
    except NotPossibleError as error:
        pytest.skip(str(error))
    splits = {split: homeassistant_pairs(split) for split in SPLITS}
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 8138, "valid": 516, "test": 426}
    sources = {split: {comparison_form(source) for source, _ in pairs} for split, pairs in splits.items()}
    assert not sources["train"] & sources["valid"]
    assert not sources["train"] & sources["test"]
    assert not sources["valid"] & sources["test"]
    assert len(sources["test"]) == len(splits["test"])
    for pairs in splits.values():
        for pair in pairs:
            assert all(side == normalise(side) and not re.search(r"[{}<>|\\]", side) for side in pair)


def test_an_unknown_corpus_offers_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'homeassistant'"):
        BuiltinCorpus("home_assistant")
    with pytest.raises(InputError, match="split 'dev'"):
        BuiltinCorpus("homeassistant", "dev")
    with pytest.raises(InputError, match="size: 0"):
        BuiltinCorpus("numbers", size=0)
