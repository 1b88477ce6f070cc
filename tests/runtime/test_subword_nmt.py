"""The tokenizer kind ``subword-nmt``: what the original programs give, and one line for what cannot be read."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.errors import BundleError, InputError
from fitformer.rundir import sha256
from fitformer.runtime import subword_nmt
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.moses import Moses
from fitformer.runtime.subword_nmt import BytePairs, SubwordNmtTokenizer, join_pieces, read_dictionary
from fitformer.runtime.tokenizer import load_tokenizer
from fitformer.runtime.translator import Translator

pytest.importorskip("subword_nmt")
pytest.importorskip("sacremoses")

CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\n& a\n&a p\n&ap o\n&apo s\n&apos ;</w>\n"
DICTIONARY = "low 9\nlo@@ 5\nw@@ 4\ner 3\n&apos; 2\n, 2\n. 2\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    dictionary, codes = tmp_path / "dict.en.txt", tmp_path / "codes"
    dictionary.write_text(DICTIONARY, encoding="utf-8")
    codes.write_text(CODES, encoding="utf-8")
    return dictionary, codes


def official(*arguments: object, text: str = "") -> str:
    """What the program ``subword-nmt`` of the package prints."""
    command = [sys.executable, "-c", "from subword_nmt.subword_nmt import main; main()", *map(str, arguments)]
    environment = {"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, input=text.encode(), capture_output=True, env=environment, check=True)
    return done.stdout.decode("utf-8")


def test_text_becomes_pieces_becomes_ids_from_four(files: tuple[Path, Path]) -> None:
    tokenizer = SubwordNmtTokenizer(files[0], codes=files[1])
    assert tokenizer.vocab_size == 11
    assert tokenizer.encode(["low lower", "", "  low\u00a0 \tlow ", "x"]) == [[4, 5, 6, 7], [], [4, 4], [1]]
    assert tokenizer.decode([4, 5, 6, 7]) == "low lower"


def test_an_unfinished_word_and_special_ids_leave_no_trace_but_unk_does(files: tuple[Path, Path]) -> None:
    tokenizer = SubwordNmtTokenizer(files[0], codes=files[1])
    assert tokenizer.decode([2, 4, 1, 5, 3, 0, 99]) == "low <unk> lo"
    assert tokenizer.decode([]) == ""


def test_special_words_in_a_text_are_unknown_words(files: tuple[Path, Path]) -> None:
    assert SubwordNmtTokenizer(files[0]).encode(["<s> </s> <pad> <unk> low"]) == [[1, 1, 1, 1, 4]]


def test_without_codes_the_text_is_cut_already(files: tuple[Path, Path]) -> None:
    tokenizer = SubwordNmtTokenizer(files[0])
    assert tokenizer.encode(["lo@@ w@@ er low"]) == [[5, 6, 7, 4]]
    assert tokenizer.decode([5, 6, 7, 4]) == "lower low"


def test_of_equal_words_the_last_one_counts_as_in_fairseq(tmp_path: Path) -> None:
    (tmp_path / "dict").write_text("a 3\nb 2\na 1\n")
    tokenizer = SubwordNmtTokenizer(tmp_path / "dict")
    assert (tokenizer.vocab_size, tokenizer.encode(["a b"])) == (7, [[6, 5]])
    assert tokenizer.decode([4, 6]) == "a a"


def test_moses_reads_plain_text_and_gives_it_back(files: tuple[Path, Path]) -> None:
    tokenizer = SubwordNmtTokenizer(files[0], codes=files[1], moses=True, lowercase=True, language="en")
    assert tokenizer.tokenise("Low, 'LOWER'.") == "low , &apos; lower &apos; ."
    assert tokenizer.encode(["Low, 'LOWER'."]) == [[4, 9, 8, 5, 6, 7, 8, 10]]
    assert tokenizer.decode(tokenizer.encode(["Low, 'LOWER'."])[0]) == "low, 'lower'."


@pytest.mark.parametrize(("language", "tokens"), [("en", "dog &apos;s"), ("fr", "dog&apos; s"), ("xx", "dog &apos; s")])
def test_apostrophes_go_by_the_language(language: str, tokens: str) -> None:
    assert Moses(language).tokenise("dog's") == tokens


def test_text_is_tokenised_before_it_is_lowercased_so_that_abbreviations_are_known() -> None:
    assert Moses("en", lowercase=True).tokenise("Mr. A met Dr. Bo.") == "mr. a met dr. bo ."


def test_hyphens_are_split_and_joined_on_demand_only() -> None:
    assert Moses("en").tokenise("well-known") == "well-known"
    aggressive = Moses("en-GB", aggressive_hyphens=True)
    assert aggressive.tokenise("well-known") == "well @-@ known"
    assert aggressive.detokenise("well @-@ known .") == "well-known."


@given(st.text(), st.booleans(), st.sampled_from(["de", "en", "fr", "zh"]))
def test_any_text_can_be_tokenised_and_detokenised(text: str, aggressive: bool, language: str) -> None:
    moses = MOSES[language, aggressive]
    tokens = moses.tokenise(text)
    assert tokens.split() == tokens.split(" ") or not tokens
    assert isinstance(moses.detokenise(tokens), str)


MOSES = {
    (language, aggressive): Moses(language, aggressive_hyphens=aggressive)
    for language in ("de", "en", "fr", "zh")
    for aggressive in (False, True)
}


def captions(shared_data: Path, language: str, count: int) -> list[str]:
    with gzip.open(shared_data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line, _ in zip(file, range(count), strict=False)]


def test_real_text_is_cut_as_the_program_subword_nmt_cuts_it(shared_data: Path, tmp_path: Path) -> None:
    lines = captions(shared_data, "de", 1500)
    moses = Moses("de")
    text = "".join(f"{moses.tokenise(line)}\n" for line in lines)
    for version in ("0.2", "0.1"):
        codes = tmp_path / "codes"
        learned = official("learn-bpe", "-s", 600, text=text)
        codes.write_text(learned.replace("0.2", version, 1) if version == "0.2" else learned.split("\n", 1)[1])
        expected = official("apply-bpe", "-c", codes, text=text).splitlines()
        pieces = BytePairs(codes)
        assert [" ".join(pieces.pieces(line.split())) for line in text.splitlines()] == expected
        assert [join_pieces(line) for line in expected] == text.splitlines()


def test_real_text_survives_the_way_there_and_back(shared_data: Path, tmp_path: Path) -> None:
    """All captions come back but for spaces that Moses cannot know, such as those around a slash."""
    lines = captions(shared_data, "de", 1000)
    moses = Moses("de")
    text = "".join(f"{moses.tokenise(line)}\n" for line in lines)
    codes = tmp_path / "codes"
    codes.write_text(official("learn-bpe", "-s", 300, text=text))
    pieces = sorted({piece for line in text.splitlines() for piece in BytePairs(codes).pieces(line.split())})
    (tmp_path / "dict").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    tokenizer = SubwordNmtTokenizer(tmp_path / "dict", codes=codes, moses=True, language="de")
    ids = tokenizer.encode(lines)
    assert ids == tokenizer.encode(lines), "what is remembered of a word changes nothing"
    assert 1 not in {i for line in ids for i in line}
    back = [tokenizer.decode(line) for line in ids]
    assert [line.replace(" ", "") for line in back] == [line.replace(" ", "") for line in lines]
    assert sum(a == b for a, b in zip(back, lines, strict=True)) > 950


def test_remembered_words_are_bounded(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subword_nmt, "MOST_CACHED", 10)
    pieces = BytePairs(files[1])
    for number in range(100):
        assert pieces.pieces([f"lower{number}"])[0] == "lo@@"
    assert len(pieces._bpe.cache) <= 12


def test_a_word_without_end_is_cut_in_stretches(files: tuple[Path, Path]) -> None:
    pieces = BytePairs(files[1]).pieces(["lo" * 50_000])
    assert join_pieces(" ".join(pieces)) == "lo" * 50_000


# -- files that cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ":1: a dictionary has one 'token count' a line, this is ''"),
        (b"a 1\nb\n", ":2: a dictionary has one 'token count' a line, this is 'b'"),
        (b"a 1\nb x\n", ":2: a dictionary"),
        (b"a 1\n\nb 2\n", ":2: a dictionary"),
        (b"a 1\n 5\n", ":2: a dictionary"),
        (b"a 1\n\xff 2\n", "not UTF-8"),
    ],
)
def test_a_dictionary_of_another_form_is_one_line(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "dict").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_dictionary(tmp_path / "dict")
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_a_dictionary_from_windows_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "dict").write_bytes(b"a 3\r\nb\xc2\xa0c 2\r\n")
    assert read_dictionary(tmp_path / "dict") == ["a", "b\u00a0c"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "holds no merges"),
        (b"#version: 0.2\n", "holds no merges"),
        (b"#version: 0.9\na b\n", ":1: '#version: 0.9'; known are the versions 0.1 and 0.2"),
        (b"#version: x\na b\n", ":1:"),
        (b"#version: 0.2\na b\na b 17\n", ":3: a merge is two pieces and a space between them, not 'a b 17'"),
        (b"the 1061396\nof 593677\n", "holds words with their counts; that is a dictionary"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_codes_of_another_form_are_one_line(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "codes").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        BytePairs(tmp_path / "codes")
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_missing_files_are_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"nowhere: no dictionary of fairseq that can be read \(No such file"):
        load_tokenizer("subword-nmt", tmp_path / "nowhere")
    with pytest.raises(BundleError, match=r"nowhere: no file of merges \(codes of subword-nmt\) that can be read"):
        load_tokenizer("subword-nmt", files[0], codes=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("module", "error", "named"),
    [
        ("subword_nmt.apply_bpe", BundleError, r"byte pair encoding needs subword-nmt: pip install 'fitformer\[subw"),
        ("sacremoses", InputError, r"Moses tokens need sacremoses: pip install 'fitformer\[subword-nmt\]'"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, module: str, error: type[Exception], named: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(error, match=named):
        SubwordNmtTokenizer(files[0], codes=files[1], moses=True)


def test_options_of_another_kind_are_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(BundleError, match="'lower' is no option of the kind subword-nmt"):
        load_tokenizer("subword-nmt", files[0], options={"lower": True})
    with pytest.raises(BundleError, match="'moses' is 'yes', not true or false"):
        load_tokenizer("subword-nmt", files[0], options={"moses": "yes"})
    with pytest.raises(BundleError, match="'moses' is no option of the kind words"):
        load_tokenizer("words", files[0], options={"moses": True})
    with pytest.raises(BundleError, match="the kind words takes no codes"):
        load_tokenizer("words", files[0], codes=files[1])


# -- in a bundle ------------------------------------------------------------------------------------------------------


@pytest.fixture
def copying(make_bundle: Callable[..., Path], files: tuple[Path, Path]) -> Callable[..., Path]:
    """A bundle that copies its source, with the dictionary and codes above for both languages."""

    def make(name: str = "bundle", **entry: Any) -> Path:
        folder = make_bundle(name=name)
        dictionary = "".join((*DICTIONARY, *(f"filler{i} 1\n" for i in range(27))))  # as many ids as the graphs have
        (folder / "vocabulary").write_text(dictionary, encoding="utf-8")
        (folder / "codes").write_text(CODES, encoding="utf-8")
        names = {"source": "vocabulary", "target": "vocabulary", "codes": "codes"}
        facts = {"tokenizer": {"kind": "subword-nmt", **names, **entry}}
        facts["files"] = {file.name: sha256(file) for file in folder.iterdir() if file.name != "fitformer.json"}
        (folder / "fitformer.json").unlink()
        return rewritten(folder, make_bundle, facts)

    return make


def rewritten(folder: Path, make_bundle: Callable[..., Path], facts: dict[str, Any]) -> Path:
    other = make_bundle(name=f"{folder.name}.facts", **facts)
    (other / "fitformer.json").rename(folder / "fitformer.json")
    return folder


def test_a_bundle_translates_plain_text_through_moses(copying: Callable[..., Path]) -> None:
    bundle = Bundle.load(copying(moses=True, lowercase=True))
    lines = ["Low, 'lower'.", "", "   ", "LOW\u2028low"]
    outputs = [translation.text for translation in Translator(bundle).translate(lines)]
    assert outputs == ["low, 'lower'.", "", "", "low low"]
    source, target = bundle.tokenizers()
    assert source is not target, "each has the rules of its language"


def test_a_bundle_of_tokenised_text_shares_its_tokenizer(copying: Callable[..., Path]) -> None:
    bundle = Bundle.load(copying(moses=False))
    source, target = bundle.tokenizers()
    assert source is target
    assert next(iter(Translator(bundle).translate(["low , lower ."]))).text == "low , lower ."


def test_codes_that_are_not_among_the_files_are_refused(copying: Callable[..., Path]) -> None:
    with pytest.raises(BundleError, match="the file of the codes, 'others', is not among 'files'"):
        Bundle.load(copying(codes="others"))
    with pytest.raises(BundleError, match="the checksum differs"):
        folder = copying("changed")
        (folder / "codes").write_text(CODES + "a b\n")
        Bundle.load(folder)
