"""A corpus out of nothing: written-out numbers, dates and times in English and German, of any size.

Small enough a language to be learned in a minute and rich enough to need attention: units before tens
("twenty-one", "einundzwanzig"), half hours named after the next hour ("half past seven", "halb acht"),
weekdays that fit the date, gender, plurals, verbs with a separated prefix.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta

Pair = tuple[str, str]

_EN_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_EN_TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DE_SMALL = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_DE_TENS = ["-", "-", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_EN_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_DE_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_EN_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DE_MONTHS = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
]
_EN_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DE_DAYS = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]

# singular and plural in English and German; the article decides the form of "one"
_NOUNS = (
    ("book", "books", "ein", "Buch", "Bücher"), ("apple", "apples", "ein", "Apfel", "Äpfel"),
    ("pear", "pears", "eine", "Birne", "Birnen"), ("house", "houses", "ein", "Haus", "Häuser"),
    ("tree", "trees", "ein", "Baum", "Bäume"), ("cat", "cats", "eine", "Katze", "Katzen"),
    ("letter", "letters", "ein", "Brief", "Briefe"), ("bottle", "bottles", "eine", "Flasche", "Flaschen"),
    ("child", "children", "ein", "Kind", "Kinder"), ("picture", "pictures", "ein", "Bild", "Bilder"),
    ("lamp", "lamps", "eine", "Lampe", "Lampen"), ("day", "days", "ein", "Tag", "Tage"),
)  # fmt: skip
_EVENTS = (
    ("The meeting", "Die Besprechung"), ("The concert", "Das Konzert"), ("The course", "Der Kurs"),
    ("The film", "Der Film"), ("The exam", "Die Prüfung"), ("The match", "Das Spiel"),
)  # fmt: skip
_PLACES = (
    ("in the school", "In der Schule"), ("in the garden", "Im Garten"), ("on the table", "Auf dem Tisch"),
    ("behind the door", "Hinter der Tür"), ("at the station", "Am Bahnhof"), ("in the city", "In der Stadt"),
)  # fmt: skip


def english_number(number: int) -> str:
    """Write a number from 0 to 999,999,999 in English words."""
    if number < 20:
        return _EN_SMALL[number]
    if number < 100:
        unit = number % 10
        return _EN_TENS[number // 10] + (f"-{_EN_SMALL[unit]}" if unit else "")
    for size, name in ((1_000_000, "million"), (1_000, "thousand"), (100, "hundred")):
        if number >= size:
            head, rest = divmod(number, size)
            words = f"{english_number(head)} {name}"
            if not rest:
                return words
            return f"{words} {'and ' if rest < 100 else ''}{english_number(rest)}"
    raise AssertionError(number)


def german_number(number: int) -> str:
    """Write a number from 0 to 999,999,999 in German words, as in counting ("eins", not "ein")."""
    millions, rest = divmod(number, 1_000_000)
    if not millions:
        return _german_below_million(rest)
    words = "eine Million" if millions == 1 else f"{_german_below_million(millions)} Millionen"
    return f"{words} {_german_below_million(rest)}" if rest else words


def _german_below_million(number: int) -> str:
    if number < 20:
        return _DE_SMALL[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return (f"{_german_prefix(unit)}und" if unit else "") + _DE_TENS[tens]
    size, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
    head, rest = divmod(number, size)
    return _german_prefix(head) + name + (_german_below_million(rest) if rest else "")


def _german_prefix(number: int) -> str:
    """A number as the first part of a longer word: "eins" loses its s."""
    return _german_below_million(number).removesuffix("s") if number % 100 == 1 else _german_below_million(number)


def english_ordinal(number: int) -> str:
    """Write 1 to 99 as an English ordinal: "twenty-first"."""
    head, dash, last = english_number(number).rpartition("-")
    if last.endswith("y"):
        return head + dash + last[:-1] + "ieth"
    return head + dash + _EN_ORDINALS.get(last, last + "th")


def german_ordinal(number: int, ending: str) -> str:
    """Write 1 to 99 as a German ordinal with an ending: ``german_ordinal(3, "en")`` is "dritten"."""
    stem = _DE_ORDINALS.get(number) or german_number(number) + ("t" if number < 20 else "st")
    return stem + ending


def english_year(year: int) -> str:
    """Write a year from 1100 to 2099 as it is spoken: "nineteen eighty-four", "two thousand and four"."""
    century, rest = divmod(year, 100)
    if 2000 <= year < 2010:
        return english_number(year)
    if not rest:
        return f"{english_number(century)} hundred"
    return f"{english_number(century)} {'oh ' if rest < 10 else ''}{english_number(rest)}"


def german_year(year: int) -> str:
    """Write a year from 1100 to 2099: centuries before 2000 are counted in hundreds."""
    if year >= 2000:
        return german_number(year)
    century, rest = divmod(year, 100)
    return f"{german_number(century)}hundert" + (german_number(rest) if rest else "")


def clock_time(hour: int, minute: int) -> Pair:
    """Write a time of the twelve-hour clock (hour 1 to 12), as answers to "at what time?"."""
    following = hour % 12 + 1
    en, de, en_next, de_next = _EN_SMALL[hour], _DE_SMALL[hour], _EN_SMALL[following], _DE_SMALL[following]
    if minute == 0:
        return f"{en} o'clock", f"{_german_prefix(hour)} Uhr"
    if minute == 15:
        return f"a quarter past {en}", f"Viertel nach {de}"
    if minute == 30:
        return f"half past {en}", f"halb {de_next}"
    if minute == 45:
        return f"a quarter to {en_next}", f"Viertel vor {de_next}"
    if minute in (5, 10, 20):
        return f"{english_number(minute)} past {en}", f"{german_number(minute)} nach {de}"
    if minute in (40, 50, 55):
        return f"{english_number(60 - minute)} to {en_next}", f"{german_number(60 - minute)} vor {de_next}"
    spoken = f"oh {english_number(minute)}" if minute < 10 else english_number(minute)
    return f"{en} {spoken}", f"{_german_prefix(hour)} Uhr {german_number(minute)}"


def number_pairs(size: int, seed: int) -> Iterator[Pair]:
    """Yield ``size`` English-German sentence pairs; the same for the same seed, on every machine."""
    draw = random.Random(f"fitformer numbers {seed}")
    for _ in range(size):
        yield draw.choice(_SENTENCES)(draw)


def _number(draw: random.Random) -> int:
    """A number whose count of digits is drawn first, so that short ones are not rare."""
    return draw.randrange(10 ** draw.randint(1, 6))


def _amount(draw: random.Random) -> tuple[int, str, str, str, str]:
    """A counted thing: the number, the noun in both languages as it follows it, and the number in both
    languages.
    """
    singular, plural, article, de_singular, de_plural = draw.choice(_NOUNS)
    number = _number(draw) + 2
    if draw.random() < 0.1:
        return 1, f"one {singular}", f"{article} {de_singular}", "is", "ist"
    if number % 100 == 1:  # "hundertein Bücher" or "hunderteins Bücher"? German speakers disagree
        number += 1
    return number, f"{english_number(number)} {plural}", f"{german_number(number)} {de_plural}", "are", "sind"


def _date(draw: random.Random) -> tuple[date, str, str]:
    """A day, and "the third of May" with "dritten Mai"."""
    day = date(1900, 1, 1) + timedelta(days=draw.randrange(73_000))
    en = f"the {english_ordinal(day.day)} of {_EN_MONTHS[day.month - 1]}"
    return day, en, f"{german_ordinal(day.day, 'en')} {_DE_MONTHS[day.month - 1]}"


def _time(draw: random.Random) -> Pair:
    return clock_time(draw.randint(1, 12), draw.choice((0, 15, 30, 45, draw.randrange(60), draw.randrange(60))))


def _sum_sentence(draw: random.Random) -> Pair:
    a, b = _number(draw), _number(draw)
    en, de = map(english_number, (a, b, a + b)), map(german_number, (a, b, a + b))
    return "{} plus {} is {}.".format(*en), "{} plus {} ist {}.".format(*de)


def _price_sentence(draw: random.Random) -> Pair:
    euros, cents = _number(draw) + 2, draw.randint(2, 99)
    euros += euros % 100 == 1
    en = f"It costs {english_number(euros)} euros and {english_number(cents)} cents."
    return en, f"Es kostet {german_number(euros)} Euro und {german_number(cents)} Cent."


def _place_sentence(draw: random.Random) -> Pair:
    _, en, de, en_verb, de_verb = _amount(draw)
    en_place, de_place = draw.choice(_PLACES)
    return f"There {en_verb} {en} {en_place}.", f"{de_place} {de_verb} {de}."


def _event_sentence(draw: random.Random) -> Pair:
    day, en_date, de_date = _date(draw)
    en_event, de_event = draw.choice(_EVENTS)
    en_time, de_time = _time(draw)
    en = f"{en_event} is on {_EN_DAYS[day.weekday()]}, {en_date} {english_year(day.year)}, at {en_time}."
    return en, (f"{de_event} ist am {_DE_DAYS[day.weekday()]}, dem {de_date} {german_year(day.year)}, um {de_time}.")


def _birth_sentence(draw: random.Random) -> Pair:
    day, en_date, de_date = _date(draw)
    en_who, de_who = draw.choice((("She", "Sie"), ("He", "Er"), ("My brother", "Mein Bruder"), ("Her son", "Ihr Sohn")))
    return (
        f"{en_who} was born on {en_date} {english_year(day.year)}.",
        f"{de_who} wurde am {de_date} {german_year(day.year)} geboren.",
    )


def _train_sentence(draw: random.Random) -> Pair:
    en_time, de_time = _time(draw)
    number, platform = draw.randint(2, 9999), draw.randint(2, 20)
    return (
        f"Train {english_number(number)} leaves from platform {english_number(platform)} at {en_time}.",
        f"Zug {german_number(number)} fährt um {de_time} von Gleis {german_number(platform)} ab.",
    )


_SENTENCES: tuple[Callable[[random.Random], Pair], ...] = (
    _sum_sentence, _price_sentence, _place_sentence, _event_sentence, _birth_sentence, _train_sentence,
)  # fmt: skip
