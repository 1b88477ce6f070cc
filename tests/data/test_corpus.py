"""Reading text pairs: every format gives the same pairs, and every mistake names its file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.corpus import CorpusFiles, read_pairs
from fitformer.data.lines import Meter, read_lines
from fitformer.errors import DataError, InputError

PAIRS = [
    ("Hello, {name}!", "Hallo, {name}!"),
    ('She said "no" & left.', "Sie sagte \u201enein\u201c & ging."),
    ("Save <b>all</b> files", "<b>Alle</b> Dateien sichern"),
    ("100 % \\ done", "100 % \\ fertig \U0001f642"),
]


def corpus(format: str, *files: Path, **more: str) -> CorpusFiles:
    return CorpusFiles(format, "en", "de", files=files, **more)  # type: ignore[arg-type]


def parallel(source: Path, target: Path) -> CorpusFiles:
    return CorpusFiles("parallel", "en", "de", source=(source,), target=(target,))


def write(path: Path, text: str) -> Path:
    data = text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def po_text(pairs: list[tuple[str, str]]) -> str:
    header = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    entries = [f"msgid {json.dumps(s)}\nmsgstr {json.dumps(t, ensure_ascii=False)}\n" for s, t in pairs]
    return "\n".join([header, *entries])


def tmx_text(pairs: list[tuple[str, str]], languages: tuple[str, str] = ("en-US", "de-DE")) -> str:
    units = "".join(
        "<tu>"
        + "".join(
            f'<tuv xml:lang="{language}"><seg>{escape(text)}</seg></tuv>'
            for language, text in zip(languages, pair, strict=True)
        )
        + "</tu>\n"
        for pair in pairs
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
        f'<tmx version="1.4"><header srclang="en"/><body>\n{units}</body></tmx>\n'
    )


def write_all_formats(folder: Path, suffix: str = "") -> dict[str, CorpusFiles]:
    sides = [write(folder / f"side{i}.txt{suffix}", "".join(pair[i] + "\n" for pair in PAIRS)) for i in (0, 1)]
    rows = [{"source": s, "target": t} for s, t in PAIRS]
    by_language = [{"translation": {"de": t, "en": s, "fr": ""}} for s, t in PAIRS]
    tsv = "".join(f"{s}\t{t}\tignored\n" for s, t in PAIRS)
    texts = {
        "tsv": tsv,
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "po": po_text(PAIRS),
        "tmx": tmx_text(PAIRS),
    }
    found = {name: corpus(name, write(folder / f"a.{name}{suffix}", text)) for name, text in texts.items()}
    languages = write(folder / f"b.jsonl{suffix}", "".join(json.dumps(row) + "\n" for row in by_language))
    header = write(folder / f"b.tsv{suffix}", "de\tid\ten\n" + "".join(f"{t}\t7\t{s}\n" for s, t in PAIRS))
    return found | {
        "parallel": parallel(*sides),
        "jsonl by language": corpus("jsonl", languages),
        "tsv by name": corpus("tsv", header, source_field="en", target_field="de"),
        "tsv by number": corpus("tsv", header, source_field="3", target_field="1"),
    }


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_format_gives_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    for name, files in write_all_formats(tmp_path, suffix).items():
        pairs = list(read_pairs(files))
        if name == "tsv by number":  # here the header is a row like the others
            pairs = pairs[1:]
        assert pairs == PAIRS, name


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    a, b = (write(tmp_path / name, f"{name}\tx\n") for name in ("a", "b"))
    assert list(read_pairs(corpus("tsv", a, b))) == [("a", "x"), ("b", "x")]
    both = CorpusFiles("parallel", "en", "de", source=(a, b), target=(b, a))
    assert list(read_pairs(both)) == [("a\tx", "b\tx"), ("b\tx", "a\tx")]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "one\u2028still one\x0cone\r\ntwo\x85two\nthree"
    lines = list(read_lines(write(tmp_path / "a", text)))
    assert lines == ["one\u2028still one\x0cone", "two\x85two", "three"]


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", "\ufeffHello\n"))) == ["Hello"]


@given(st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"]))))
def test_any_lines_come_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("lines") / "a", "".join(line + "\n" for line in ["first", *lines]))
    assert list(read_lines(path)) == ["first", *lines]


def test_files_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    short, long = write(tmp_path / "a.en", "x\n" * 3), write(tmp_path / "a.de", "x\n" * 7)
    for source, target, message in (
        (short, long, r"a\.en has 3 lines, but .*a\.de has 7"),
        (long, short, r"a\.de has 7 lines, but .*a\.en has 3"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_pairs(parallel(source, target)))


def test_a_missing_last_line_end_is_no_difference(tmp_path: Path) -> None:
    files = parallel(write(tmp_path / "a", "x\ny"), write(tmp_path / "b", "X\nY\n"))
    assert list(read_pairs(files)) == [("x", "X"), ("y", "Y")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_invalid_utf8_names_file_and_line(tmp_path: Path, suffix: str) -> None:
    data = b"eins\nzwei\n" + "fünf".encode("latin-1") + b"\n"
    bad = tmp_path / f"bad.de{suffix}"
    bad.write_bytes(gzip.compress(data) if suffix else data)
    good = write(tmp_path / "good.en", "one\ntwo\nfive\n")
    with pytest.raises(DataError, match=rf"bad\.de{suffix}:3: not valid UTF-8 \(byte 0xfc at column 2\)"):
        list(read_pairs(parallel(good, bad)))


@pytest.mark.parametrize("format", ["tsv", "jsonl", "po"])
def test_invalid_utf8_is_found_in_every_text_format(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"a.{format}"
    path.write_bytes(b"\n\xff\n")
    with pytest.raises(DataError, match=rf"a\.{format}:2: not valid UTF-8"):
        list(read_pairs(corpus(format, path)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv: no such file"):
        list(read_pairs(corpus("tsv", tmp_path / "nowhere.tsv")))


@pytest.mark.parametrize("format", ["tsv", "jsonl", "tmx"])
def test_an_empty_corpus_is_an_error(tmp_path: Path, format: str) -> None:
    path = write(tmp_path / "empty", tmx_text([]) if format == "tmx" else "\n")
    with pytest.raises(DataError, match="empty: empty corpus"):
        list(read_pairs(corpus(format, path)))
    with pytest.raises(DataError, match="empty corpus"):
        list(read_pairs(parallel(write(tmp_path / "a", ""), write(tmp_path / "b", ""))))


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gz", "some text\n" * 1000)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.gz:\d+: damaged gzip file"):
        list(read_pairs(parallel(path, path)))


@pytest.mark.parametrize("format", ["parallel", "tmx"])
def test_a_gzip_file_with_a_flipped_byte_is_named(tmp_path: Path, format: str) -> None:
    path = write(tmp_path / "a.gz", "".join(f"text number {number}\n" for number in range(1000)))
    content = bytearray(path.read_bytes())
    content[20] ^= 255
    path.write_bytes(content)
    corpus = parallel(path, path) if format == "parallel" else CorpusFiles("tmx", "en", "de", files=(path,))
    with pytest.raises(DataError, match=r"a\.gz.*: damaged gzip file"):
        list(read_pairs(corpus))


def test_a_folder_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, not a text file"):
        list(read_pairs(parallel(tmp_path, tmp_path)))


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("tsv", "a\tb\nalone\n", r":2: 1 column\(s\), but column 2 is needed"),
        ("jsonl", '{"source": "a", "target": "b"}\n{"source": \n', r":2: not JSON"),
        ("jsonl", '["a", "b"]\n', r":1: a JSON object with the keys 'source' and 'target' or 'en' and 'de'"),
        ("jsonl", '{"sorce": "a", "target": "b"}\n', r":1: no keys .*did you mean 'sorce'"),
        ("jsonl", '{"source": 1, "target": "b"}\n', r":1: 'source' and 'target' have to be texts"),
        ("po", 'msgid "a"\nmsgstr "b"\nhello\n', r":3: not a line of a gettext catalogue"),
        ("po", "plain text\n", r"not a gettext catalogue"),
        ("tmx", "<tmx><body><tu></body></tmx>", r":1: not well-formed XML"),
        ("tmx", tmx_text(PAIRS, ("en", "fr")), r"no unit has both 'en' and 'de'; languages found: en, fr"),
    ],
)
def test_a_malformed_file_is_one_clear_error(tmp_path: Path, format: str, text: str, message: str) -> None:
    path = write(tmp_path / f"bad.{format}", text)
    with pytest.raises(DataError, match=rf"bad\.{format}.*{message}"):
        list(read_pairs(corpus(format, path)))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "english\tgerman\nx\ty\n")
    with pytest.raises(DataError, match=r"no column named 'englisch' \(did you mean 'english'\?\)"):
        list(read_pairs(corpus("tsv", path, source_field="englisch", target_field="german")))
    with pytest.raises(DataError, match="columns are counted from 1"):
        list(read_pairs(corpus("tsv", path, source_field="0")))


def test_untranslated_fuzzy_and_obsolete_messages_are_left_out(tmp_path: Path) -> None:
    text = po_text([("a", "A"), ("empty", "")]) + (
        '\n#, fuzzy\nmsgid "b"\nmsgstr "B"\n'
        '\nmsgid "one file"\nmsgid_plural "many files"\nmsgstr[0] "eine Datei"\nmsgstr[1] "viele Dateien"\n'
        '\n#~ msgid "old"\n#~ msgstr "alt"\n'
    )
    pairs = list(read_pairs(corpus("po", write(tmp_path / "a.po", text))))
    assert pairs == [("a", "A"), ("one file", "eine Datei"), ("many files", "viele Dateien")]


def test_a_translation_memory_with_many_languages_gives_the_two_asked_for(tmp_path: Path) -> None:
    unit = (
        '<tu><tuv xml:lang="FR"><seg>un</seg></tuv><tuv xml:lang="de"><seg>ei<ph x="1">{1}</ph>ns'
        '<hi>!</hi></seg></tuv><tuv lang="EN_GB"><seg>one!</seg></tuv></tu>'
    )
    text = f'<?xml version="1.0"?><tmx><body>{unit}<tu><tuv xml:lang="en"><seg>x</seg></tuv></tu></body></tmx>'
    assert list(read_pairs(corpus("tmx", write(tmp_path / "a.tmx", text)))) == [("one!", "eins!")]


def test_a_translation_memory_in_utf16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes(tmx_text(PAIRS).replace("UTF-8", "UTF-16").encode("utf-16"))
    assert list(read_pairs(corpus("tmx", path))) == PAIRS


def test_a_translation_memory_that_would_explode_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><body>&b;</body></tmx>'
    with pytest.raises(DataError, match="entities are not accepted"):
        list(read_pairs(corpus("tmx", write(tmp_path / "bomb.tmx", bomb))))


def test_an_unknown_format_offers_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"'jsnl' is not one of .*did you mean 'jsonl'"):
        corpus("jsnl", Path("a"))


def test_unequal_numbers_of_parallel_files_are_refused() -> None:
    with pytest.raises(InputError, match="got 2 and 1"):
        CorpusFiles("parallel", "en", "de", source=(Path("a"), Path("b")), target=(Path("c"),))
    with pytest.raises(InputError, match="at least one file"):
        corpus("tmx")


def test_the_meter_follows_the_bytes_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "word\tWort\n" * 5000)
    meter = Meter()
    assert sum(1 for _ in read_pairs(corpus("tsv", path), meter=meter)) == 5000
    assert 0.5 < meter.bytes_read / path.stat().st_size <= 1
