"""Merges and dictionaries of the kind ``subword-nmt``: those of the original programs on the same text."""

from __future__ import annotations

import io
import sys
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fitformer.data.corpus import CorpusFiles
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.subword_nmt import learn_merges, learn_subword_nmt
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.data.written_numbers import number_pairs
from fitformer.errors import BundleError, InputError
from fitformer.runtime.moses import Moses
from fitformer.runtime.subword_nmt import BytePairs, read_dictionary

learn_bpe = pytest.importorskip("subword_nmt.learn_bpe")
pytest.importorskip("sacremoses")

PAIRS = [
    (f"{source}, isn't it? {i % 7}", f"{target} (Ja!)") for i, (source, target) in enumerate(number_pairs(200, seed=3))
]
SETTINGS = TokenizerSettings(kind="subword-nmt", moses=True)


def learn(folder: Path, pairs: list[tuple[str, str]] = PAIRS, merges: int = 60, **changes: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    settings = replace(SETTINGS, **changes)
    return learn_subword_nmt(pairs, settings, folder, languages=("en", "de"), merges=merges, quiet=True)[1]


def tokens(side: int, **options: bool) -> list[str]:
    moses = Moses(("en", "de")[side], **options)
    return [moses.tokenise(pair[side]) for pair in PAIRS]


@pytest.mark.parametrize("joint", [True, False])
def test_merges_are_those_that_subword_nmt_learns_from_both_languages(tmp_path: Path, joint: bool) -> None:
    facts = learn(tmp_path / "out", joint=joint)
    text, codes = io.StringIO("".join(f"{line}\n" for side in (0, 1) for line in tokens(side))), io.StringIO()
    with redirect_stderr(io.StringIO()):
        learn_bpe.learn_bpe(text, codes, 60)
    assert (tmp_path / "out" / facts["codes"]).read_text(encoding="utf-8") == codes.getvalue()


def test_a_dictionary_counts_the_pieces_of_its_side_the_most_frequent_first(tmp_path: Path) -> None:
    facts = learn(tmp_path / "out", joint=False, lowercase=True)
    bpe = BytePairs(tmp_path / "out" / facts["codes"])
    for side, name in enumerate(("source", "target")):
        wanted = Counter(piece for line in tokens(side, lowercase=True) for piece in bpe.pieces(line.split()))
        lines = (tmp_path / "out" / facts["models"][name]).read_text(encoding="utf-8").splitlines()
        found = {word: int(count) for word, _, count in (line.rpartition(" ") for line in lines)}
        padding = {word: 0 for word in found if word.startswith("madeupword0")}
        assert found == {**wanted, **padding}
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert facts["vocab_size"][name] == len(found) + 4
    assert facts["options"] == {"moses": True, "lowercase": True}


@pytest.mark.parametrize("merges", range(40, 56, 3))
def test_a_dictionary_is_filled_up_to_a_multiple_of_eight_ids_as_fairseq_does(tmp_path: Path, merges: int) -> None:
    facts = learn(tmp_path / "out", merges=merges, joint=False)
    for side, name in facts["models"].items():
        words = read_dictionary(tmp_path / "out" / name)
        padding = [word for word in words if word.startswith("madeupword")]
        assert words[len(words) - len(padding) :] == padding == [f"madeupword{i:04d}" for i in range(len(padding))]
        assert facts["vocab_size"][side] % 8 == 0 and len(padding) < 8


def test_a_joint_dictionary_holds_both_sides_once(tmp_path: Path) -> None:
    facts = learn(tmp_path / "out")
    assert facts["models"]["source"] == facts["models"]["target"] and facts["joint"]
    words = read_dictionary(tmp_path / "out" / facts["models"]["source"])
    assert len(words) == len(set(words)) and {"&apos;t", "is@@"} & set(words)


def test_learning_is_deterministic(tmp_path: Path) -> None:
    for name in ("a", "b"):
        learn(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert not list((tmp_path / "a").glob(".*"))


def test_a_text_may_support_fewer_merges(tmp_path: Path) -> None:
    assert learn_merges(Counter({"ab": 2, "c": 1}), 50) == "#version: 0.2\na b</w>\n"


@pytest.mark.parametrize("words", [Counter[str](), Counter({"a": 3}), Counter({"ab": 1})])
def test_text_without_a_merge_is_one_line(words: Counter[str]) -> None:
    with pytest.raises(InputError, match="no two characters that occur together twice"):
        learn_merges(words, 10)


def test_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to learn subwords from"):
        learn(tmp_path / "out", pairs=[])


def test_text_that_is_cut_already_needs_a_dictionary_alone(tmp_path: Path) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("one 3\ntw@@ 2\no 2\n", encoding="utf-8")
    facts = learn(tmp_path / "out", moses=False, source_dictionary=dictionary, target_dictionary=dictionary)
    assert "codes" not in facts and facts["vocab_size"] == {"source": 7, "target": 7}


def test_a_damaged_file_of_merges_is_named(tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\na b c\n", encoding="utf-8")
    with pytest.raises(BundleError, match="codes:2: a merge is two pieces"):
        learn(tmp_path / "out", codes=codes)


@pytest.mark.parametrize("package", ["subword_nmt.learn_bpe", "sacremoses"])
def test_a_missing_package_is_one_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'fitformer\[subword-nmt\]'"):
        learn(tmp_path / "out")


@pytest.mark.parametrize("setting", ["codes", "source_dictionary", "target_dictionary"])
def test_given_files_are_looked_at_before_the_text_is_read(tmp_path: Path, setting: str) -> None:
    """The error names the file that was given, not a copy."""
    files = {name: tmp_path / name for name in ("source_dictionary", "target_dictionary", "codes")}
    for path, text in zip(files.values(), ("a 1\n", "b 1\n", "a b\n"), strict=True):
        path.write_text(text)
    files[setting].write_text("what is this\n")
    nowhere = CorpusFiles("parallel", "en", "de", source=(tmp_path / "no",), target=(tmp_path / "no",))
    tokenizer = TokenizerSettings(kind="subword-nmt", joint=False, **files)
    with pytest.raises(BundleError, match=rf"{setting}:1: "):
        prepare(PrepareSettings(nowhere, "en", "de", tokenizer=tokenizer, quiet=True), tmp_path / "out")
