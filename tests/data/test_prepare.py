"""The prepare stage as a whole: what it writes, what it counts, and that no sentence leaks between splits."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.arrays import TokenArrays
from fitformer.data.builtin import BuiltinCorpus
from fitformer.data.cleaning import Cleaner, CleaningSettings
from fitformer.data.corpus import CorpusFiles
from fitformer.data.evaluation import TextWriter, read_evaluation_text
from fitformer.data.normalise import comparison_form
from fitformer.data.prepare import PrepareSettings, prepare
from fitformer.data.spool import assigned_pairs, choose, fill_spool
from fitformer.data.tokenizer import TokenizerSettings
from fitformer.data.written_numbers import number_pairs
from fitformer.errors import DataError, InputError, NotPossibleError
from fitformer.rundir import sha256

SPLITS, SIDES = ("train", "valid", "test"), ("source", "target")
PAIRS = list(number_pairs(600, seed=1))


def corpus(folder: Path, name: str, pairs: list[tuple[str, str]]) -> CorpusFiles:
    paths = [folder / f"{name}.{side}" for side in ("en", "de")]
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return CorpusFiles("parallel", "en", "de", source=(paths[0],), target=(paths[1],))


def quiet(train: CorpusFiles | BuiltinCorpus, **more: Any) -> PrepareSettings:
    return PrepareSettings(train, "en", "de", quiet=True, **more)


def decoded(folder: Path, split: str) -> list[tuple[str, str]]:
    stats = json.loads((folder / "stats.json").read_text(encoding="utf-8"))
    sides = []
    for side in SIDES:
        model = (folder / stats["tokenizer"]["models"][side]).read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        arrays = TokenArrays(folder / f"{split}.{side}")
        sides.append([processor.decode(arrays[i].tolist()) for i in range(len(arrays))])
    return list(zip(*sides, strict=True))


def text(folder: Path, split: str) -> list[tuple[str, str]]:
    sides = [(folder / f"{split}.{side}.txt").read_text(encoding="utf-8").split("\n")[:-1] for side in SIDES]
    return list(zip(*sides, strict=True))


def check_counts(stats: dict[str, Any]) -> None:
    train = stats["train"]
    assert train["read"] == train["pairs"] + train["held_out"] + sum(train["dropped"].values())
    for split in ("valid", "test"):
        assert stats[split]["read"] == stats[split]["pairs"] + sum(stats[split]["dropped"].values())


def test_exactly_the_promised_files_are_written(tmp_path: Path) -> None:
    stats = prepare(quiet(corpus(tmp_path, "train", PAIRS)), tmp_path / "out")
    arrays = {f"{split}.{side}.{end}" for split in SPLITS for side in SIDES for end in ("bin", "idx")}
    texts = {f"{split}.{side}.txt" for split in SPLITS[1:] for side in SIDES}
    assert {path.name for path in (tmp_path / "out").iterdir()} == arrays | texts | {"joint.model", "stats.json"}
    assert stats["checksums"] == {name: sha256(tmp_path / "out" / name) for name in arrays | texts | {"joint.model"}}
    assert stats == json.loads((tmp_path / "out/stats.json").read_text(encoding="utf-8"))
    assert stats["inputs"]["train"] == {
        str(tmp_path / f"train.{side}"): sha256(tmp_path / f"train.{side}") for side in ("en", "de")
    }


def test_the_arrays_hold_the_text(tmp_path: Path) -> None:
    given_sets = {split: corpus(tmp_path, split, PAIRS[i * 200 : i * 200 + 200]) for i, split in enumerate(SPLITS)}
    out = tmp_path / "out"
    stats = prepare(quiet(**given_sets), out)
    check_counts(stats)
    seen = {comparison_form(source) for source, _ in PAIRS[200:]}
    train = [pair for pair in dict.fromkeys(PAIRS[:200]) if comparison_form(pair[0]) not in seen]
    assert decoded(out, "train") == train
    assert decoded(out, "valid") == text(out, "valid") == PAIRS[200:400]
    assert decoded(out, "test") == text(out, "test") == PAIRS[400:]
    lengths = TokenArrays(out / "train.target").lengths
    assert stats["train"]["tokens"]["target"] == lengths.sum()
    assert stats["median_lengths"]["target"] == sorted(lengths)[len(lengths) // 2] or len(lengths) % 2 == 0
    assert stats["train"]["longest"]["target"] == lengths.max()


def test_the_same_settings_give_the_same_bytes(tmp_path: Path) -> None:
    settings = quiet(corpus(tmp_path, "train", PAIRS))
    first, again = (prepare(settings, tmp_path / name) for name in ("a", "b"))
    assert first == again
    other = prepare(replace(settings, seed=2), tmp_path / "c")
    assert other["checksums"]["test.source.txt"] != first["checksums"]["test.source.txt"]


# A small stock of sources that differ in case and punctuation only, so that leaks would be frequent.
WORDS = ["one", "One", "two", "three", "four", "five", "six", "Six"]
SOURCES = st.sampled_from([f"{word} {end}" for word in WORDS for end in "ab!."])
LOOSE = CleaningSettings(max_ratio=100)


@given(
    st.lists(st.tuples(SOURCES, st.text("xyz", min_size=1, max_size=2)), min_size=1, max_size=60),
    st.integers(1, 6),
    st.integers(0, 9),
    st.booleans(),
)
def test_no_source_is_in_two_splits(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[str, str]],
    wanted: int,
    seed: int,
    drop_duplicates: bool,
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = fill_spool(folder, pairs, Cleaner(LOOSE), seed=seed, report=lambda: None)
    choice = choose(
        spool,
        frozenset(),
        drop_duplicates=drop_duplicates,
        drop_evaluation_sources=True,
        hold_out={"valid": wanted, "test": wanted},
    )
    places = list(assigned_pairs(spool, choice))
    assert [pair for _, *pair in places] == [list(pair) for pair in pairs]
    kept = [(place, source, target) for place, source, target in places if place != "repeated"]
    splits_of: dict[str, set[str]] = {}
    for split, source, _ in kept:
        splits_of.setdefault(comparison_form(source), set()).add(split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    distinct = sorted(set(pairs)) if drop_duplicates else sorted(pairs)
    assert sorted((source, target) for _, source, target in kept) == distinct
    held_out = sum(split != "train" for split, *_ in kept)
    assert held_out >= min(2 * wanted, len(kept))


def test_held_out_sets_share_no_source_with_the_training_set(tmp_path: Path) -> None:
    doubled = [*PAIRS, *((source.upper(), target) for source, target in PAIRS)]
    stats = prepare(quiet(corpus(tmp_path, "train", doubled), held_out_pairs=100), tmp_path / "out")
    check_counts(stats)
    forms = {split: {comparison_form(s) for s, _ in decoded(tmp_path / "out", split)} for split in SPLITS}
    assert not forms["train"] & (forms["valid"] | forms["test"])
    assert not forms["valid"] & forms["test"]
    assert all(100 <= stats[split]["pairs"] <= 105 for split in ("valid", "test"))
    assert stats["valid"]["held_out"] is True


def test_training_pairs_of_evaluation_sources_are_dropped_unless_allowed(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", PAIRS[:100])
    seen = corpus(tmp_path, "valid", [(PAIRS[5][0].upper(), "anders"), ("Something new here", "Etwas Neues")])
    settings = quiet(train, valid=seen, test=seen)
    assert prepare(settings, tmp_path / "a")["train"]["dropped"]["in_evaluation"] == 1
    allowed = replace(settings, cleaning=CleaningSettings(drop_evaluation_sources=False))
    assert prepare(allowed, tmp_path / "b")["train"]["dropped"]["in_evaluation"] == 0


def test_every_reason_is_counted(tmp_path: Path) -> None:
    dirty = [
        ("", "leer"),
        ("one word " * 80, "ein Wort " * 80),
        ("short", "sehr " * 40),
        PAIRS[0],
        ("x y z " * 25, "\u65e5\u672c" * 50),
        (PAIRS[50][0], f"{PAIRS[50][1]} Und noch etwas."),
    ]
    train = corpus(tmp_path, "train", PAIRS[:50] + dirty)
    test = corpus(tmp_path, "test", PAIRS[50:60])
    settings = quiet(train, valid=test, test=test, cleaning=CleaningSettings(max_words=100), max_tokens=90)
    stats = prepare(settings, tmp_path / "out")
    check_counts(stats)
    assert stats["train"]["dropped"] == {
        "empty": 1,
        "too_long": 1,
        "ratio": 1,
        "too_many_tokens": 1,
        "in_evaluation": 1,
        "repeated": 1,
    }


def test_evaluation_sets_keep_order_repeats_and_spelling_and_lose_only_empty_pairs(tmp_path: Path) -> None:
    odd = [
        ("Twice", "Doppelt"),
        ("Twice", "Doppelt"),
        ("", "nichts"),
        ("cafe\u0301  two", "Caf\u00e9  zwei"),
        ("a" * 900, "b"),
    ]
    test = corpus(tmp_path, "test", odd)
    stats = prepare(quiet(corpus(tmp_path, "train", PAIRS), valid=test, test=test, max_tokens=20), tmp_path / "out")
    check_counts(stats)
    assert text(tmp_path / "out", "test") == [pair for pair in odd if pair[0]]
    assert stats["test"]["dropped"] == {"empty": 1}
    assert stats["test"]["cut_to_max_tokens"] == 1
    lengths = TokenArrays(tmp_path / "out/test.source").lengths
    assert len(lengths) == 4
    assert lengths.max() == 19


def test_separate_models_serve_their_own_side(tmp_path: Path) -> None:
    settings = quiet(corpus(tmp_path, "train", PAIRS), tokenizer=TokenizerSettings(joint=False))
    stats = prepare(settings, tmp_path / "out")
    assert stats["tokenizer"]["models"] == {"source": "source.model", "target": "target.model"}
    assert not (tmp_path / "out/joint.model").exists()
    assert decoded(tmp_path / "out", "valid") == text(tmp_path / "out", "valid")
    for side in SIDES:
        model = (tmp_path / f"out/{side}.model").read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        assert stats["vocab_size"][side] == processor.get_piece_size()


def test_placeholders_of_the_corpus_are_one_token_each(tmp_path: Path) -> None:
    pairs = [(f"Hello {{name}}, {source} <b>%s</b>", f"Hallo {{name}}, {target} <b>%s</b>") for source, target in PAIRS]
    stats = prepare(quiet(corpus(tmp_path, "train", pairs)), tmp_path / "out")
    assert sorted(stats["tokenizer"]["kept_whole"]) == ["%s", "</b>", "<b>", "{name}"]
    model = (tmp_path / "out/joint.model").read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = TokenArrays(tmp_path / "out/train.target")[0].tolist()
    assert all(ids.count(processor.piece_to_id(piece)) == 1 for piece in ("%s", "</b>", "<b>", "{name}"))


def test_the_generated_corpus_needs_no_files(tmp_path: Path) -> None:
    stats = prepare(quiet(BuiltinCorpus("numbers", size=500, seed=4)), tmp_path / "out")
    check_counts(stats)
    assert stats["train"]["read"] == 500
    assert stats["inputs"] == {"train": {"builtin": "numbers", "size": 500, "seed": 4}}
    assert stats["licence"] == "generated, no rights reserved"
    assert stats["valid"]["pairs"] >= 20


def test_the_licence_is_recorded_as_stated(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", PAIRS)
    assert prepare(quiet(train, licence="CC0"), tmp_path / "a")["licence"] == "CC0"
    assert prepare(quiet(train), tmp_path / "b")["licence"] == "not stated"


def test_a_vocabulary_that_cannot_be_reached_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = quiet(corpus(tmp_path, "train", PAIRS), tokenizer=TokenizerSettings(vocab_size=8))
    stats = prepare(replace(settings, quiet=False), tmp_path / "out")
    said = capsys.readouterr().err
    assert f"joint.model has {stats['vocab_size']['source']} pieces instead of 8" in said


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".spool.x1").mkdir(parents=True)
    (out / ".train.source.bin.x1.tmp").write_text("half")
    (out / "started.json").write_text("{}")
    stats = prepare(quiet(corpus(tmp_path, "train", PAIRS)), out)
    assert not list(out.glob(".*"))
    assert "started.json" not in stats["checksums"]


def test_nothing_left_after_cleaning_is_one_clear_error(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", ""), ("", "b"), ("c", "x" * 400)])
    with pytest.raises(DataError, match=r"no training pair is left of the 3 read \(empty 2, ratio 1\)"):
        prepare(quiet(train), tmp_path / "out")
    one = corpus(tmp_path, "one", [("only this", "nur das")])
    with pytest.raises(DataError, match="after holding out"):
        prepare(quiet(one), tmp_path / "out")
    with pytest.raises(DataError, match="all 1 pairs have an empty side"):
        prepare(quiet(train, valid=corpus(tmp_path, "empty", [("", "x")])), tmp_path / "out")


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fitformer.data.prepare.fill_spool", full)
    with pytest.raises(NotPossibleError, match="no space left on the disk"):
        prepare(quiet(corpus(tmp_path, "train", PAIRS)), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("setting", "value"), [("max_tokens", 1), ("held_out_pairs", 0)])
def test_an_impossible_prepare_setting_is_named(setting: str, value: int) -> None:
    with pytest.raises(InputError, match=f"{setting}: {value}"):
        quiet(BuiltinCorpus("numbers"), **{setting: value})


@pytest.mark.parametrize("cut", [1, 3, 12])
def test_an_evaluation_text_that_was_cut_short_is_named(tmp_path: Path, cut: int) -> None:
    with TextWriter(tmp_path, "test") as writer:
        for i in range(3):
            writer.add(f"line {i}", f"Zeile {i} \u00e4\u00e4")
    assert len(list(read_evaluation_text(tmp_path, "test"))) == 3
    path = tmp_path / "test.target.txt"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"test\.target\.txt: damaged; run the prepare stage again"):
        list(read_evaluation_text(tmp_path, "test"))
    path.unlink()
    with pytest.raises(DataError, match=r"test\.target\.txt: no such file"):
        list(read_evaluation_text(tmp_path, "test"))
