"""Text as the shared tasks publish it: NIST's test sets, the talks of IWSLT, validation pairs by their number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.cleaning import CleaningSettings
from fitformer.data.corpus import CorpusFiles, read_pairs
from fitformer.data.evaluation import read_evaluation_text
from fitformer.data.markup import is_marked_up, read_marked_up
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.data.written_numbers import number_pairs
from fitformer.errors import DataError, InputError

PAIRS = list(number_pairs(300, seed=4))
TALKS = """<url>http://www.ted.com/talks/1.html</url>
<keywords>talks, science</keywords>
<speaker>Ann Example</speaker>
<talkid>1</talkid>
<title>{0}</title>
<description>{1}</description>
<reviewer href="http://www.ted.com/profiles/1">Bo</reviewer>
{2}
 {3}
1 < 2 and <3 &amp; co
<doc docid="2" genre="lectures">
</doc>
"""
TEST_SET = """<srcset setid="newstest2014" srclang="any">
<doc sysid="ref" docid="1" genre="news" origlang="en">
<hl>
<seg id="1">{0}</seg>
</hl>
<p>
<seg id="2"> AT&amp;T &lt;b&gt; </seg><seg id="3">R&D</seg>
<SEG id="4">{1}
goes on</SEG>
</p>
</doc>
</srcset>
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_talks_are_their_lines_titles_and_descriptions(tmp_path: Path) -> None:
    path = write(tmp_path / "train.tags.de-en.de", TALKS.format("Ein Titel", "Worum es geht", "Satz eins.", "Zwei."))
    lines = ["Ein Titel", "Worum es geht", "Satz eins.", "Zwei.", "1 < 2 and <3 &amp; co"]
    assert list(read_marked_up(path)) == lines


def test_a_test_set_is_its_segments(tmp_path: Path) -> None:
    text = TEST_SET.format("Gutach: more safety", "a segment that")
    expected = ["Gutach: more safety", "AT&T <b>", "R&D", "a segment that goes on"]
    assert list(read_marked_up(write(tmp_path / "newstest2014-deen-src.en.sgm", text))) == expected
    assert list(read_marked_up(write(tmp_path / "IWSLT14.TED.tst2010.de-en.de.xml", text))) == expected
    packed = tmp_path / "newstest2014-deen-src.en.sgm.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert list(read_marked_up(packed)) == expected


@pytest.mark.parametrize(
    ("name", "is_marked"),
    [
        ("newstest2014-deen-ref.de.sgm", True),
        ("IWSLT14.TEDX.dev2012.de-en.en.xml", True),
        ("train.tags.de-en.en", True),
        ("train.tags.de-en.en.gz", True),
        ("europarl-v7.de-en.de", False),
        ("news-commentary-v14.de-en.tsv.de", False),
        ("tags.txt", False),
    ],
)
def test_names_tell_which_files_are_marked_up(name: str, is_marked: bool) -> None:
    assert is_marked_up(Path(name)) == is_marked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no <seg> found"),
        ("just text\n" * 5, "no <seg> found"),
        ('<seg id="1">a</seg>\n<seg id="2">b\n', ":2: a <seg> that does not end"),
        ('<seg id="1">' + "word\n" * 200, ":1: a <seg> that does not end"),
    ],
)
def test_a_broken_test_set_is_one_line_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "x.sgm", text)
    with pytest.raises(DataError, match=message) as caught:
        list(read_marked_up(path))
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n<>&"), min_size=1).map(str.strip), min_size=1)
)
def test_segments_read_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    lines = "".join(f'<seg id="{i}">{text}</seg>\n' for i, text in enumerate(texts))
    path = tmp_path_factory.mktemp("sgm") / "x.sgm"
    path.write_text(lines, encoding="utf-8", newline="\n")
    assert list(read_marked_up(path)) == texts


def test_both_sides_of_a_marked_up_corpus_match_segment_for_segment(tmp_path: Path) -> None:
    source = write(tmp_path / "test-src.en.sgm", TEST_SET.format("one", "two"))
    target = write(tmp_path / "test-ref.de.sgm", TEST_SET.format("eins", "zwei"))
    files = CorpusFiles("parallel", "en", "de", source=(source,), target=(target,))
    assert next(iter(read_pairs(files))) == ("one", "eins")
    shorter = write(tmp_path / "short.de.sgm", '<seg id="1">eins</seg>\n')
    files = CorpusFiles("parallel", "en", "de", source=(source,), target=(shorter,))
    with pytest.raises(DataError, match=r"has 4 lines, but .* has 1"):
        list(read_pairs(files))


# -- validation pairs by their number ---------------------------------------------------------------------------------


def settings(folder: Path, pairs: list[tuple[str, str]], every: int, *, clean: bool = False) -> PrepareSettings:
    sides = list(zip(*pairs, strict=True))
    paths = [
        write(folder / f"train.{end}", "".join(f"{line}\n" for line in sides[i])) for i, end in ((0, "a"), (1, "b"))
    ]
    return PrepareSettings(
        CorpusFiles("parallel", "en", "de", source=(paths[0],), target=(paths[1],)),
        "en",
        "de",
        valid_every=every,
        held_out_pairs=10,
        tokenizer=TokenizerSettings(vocab_size=400),
        cleaning=CleaningSettings(max_ratio=100, drop_duplicates=clean, drop_evaluation_sources=clean),
        quiet=True,
    )


def test_every_so_many_th_pair_is_a_validation_pair(tmp_path: Path) -> None:
    pairs = [*PAIRS[:40], ("", "nothing"), *PAIRS[40:]]  # what cleaning drops is not counted
    stats = prepare(settings(tmp_path, pairs, 23), tmp_path / "out")
    assert list(read_evaluation_text(tmp_path / "out", "valid")) == PAIRS[22::23]
    train = stats["train"]
    assert train["read"] == train["pairs"] + train["held_out"] + sum(train["dropped"].values()) == 301
    assert stats["valid"]["pairs"] == 13 and stats["valid"]["held_out"]
    assert json.loads((tmp_path / "out/stats.json").read_text())["valid"]["pairs"] == 13


def test_a_validation_pair_may_be_in_the_training_text_only_if_cleaning_allows_it(tmp_path: Path) -> None:
    twice = [*PAIRS[:50], *PAIRS[:50]]
    for clean in (False, True):
        stats = prepare(settings(tmp_path, twice, 10, clean=clean), tmp_path / str(clean))
        assert list(read_evaluation_text(tmp_path / str(clean), "valid")) == twice[9::10]
        dropped = stats["train"]["dropped"]
        assert (dropped["repeated"] + dropped["in_evaluation"] > 0) == clean
    # five sources are drawn, each of them twice, so that none of them is left
    assert stats["train"]["pairs"] + stats["test"]["pairs"] == 45


def test_a_number_that_leaves_no_validation_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="valid_every: 500 is more than the 300 pairs kept"):
        prepare(settings(tmp_path, PAIRS, 500), tmp_path / "out")
    with pytest.raises(InputError, match="valid_every: 1 must be at least 2"):
        settings(tmp_path, PAIRS, 1)
