"""The teacher's translations of a corpus: whole, in order, counted, and finished by the next call after any kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fitformer.data.arrays import TokenArrays
from fitformer.data.tokenizer_files import prepared_tokenizers
from fitformer.distillation import Corpus, corpus, distil
from fitformer.errors import DataError, InputError
from fitformer.rundir import sha256


def make(folder: Path, prepared: Path, *, beside: bool = False, max_tokens: int = 100) -> Corpus:
    return Corpus(folder, prepared, beside=beside, max_tokens=max_tokens)


def texts(prepared: Path, arrays: TokenArrays, side: int) -> list[str]:
    tokenizer = prepared_tokenizers(prepared)[side]
    return [tokenizer.decode(arrays[i].tolist()) for i in range(len(arrays))]


def pairs(prepared: Path, folder: Path) -> list[tuple[str, str]]:
    sides = [texts(prepared, TokenArrays(folder / f"train.{side}"), i) for i, side in enumerate(("source", "target"))]
    return list(zip(*sides, strict=True))


def backwards(line: str) -> str:
    return " ".join(reversed(line.split()))


def files(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in folder.iterdir() if path.name != "facts.json"}


def test_every_source_gets_the_translation_of_the_teacher(
    prepared: Path, tmp_path: Path, function_teacher: Any
) -> None:
    teacher = function_teacher(backwards)
    facts = distil(make(tmp_path / "c", prepared), lambda: teacher, quiet=True)
    before = pairs(prepared, prepared)
    assert teacher.lines == [source for source, _ in before], "the raw text, line by line"
    assert pairs(prepared, tmp_path / "c") == [(source, backwards(source)) for source, _ in before]
    assert facts["lines"] == facts["translated"] == facts["pairs"] == len(before)
    assert facts["kept_the_text"] == {"empty": 0, "too_long": 0}
    written = [TokenArrays(tmp_path / "c" / f"train.{side}").num_tokens for side in ("source", "target")]
    assert list(facts["tokens"].values()) == written
    assert sorted(files(tmp_path / "c")) == [
        f"train.{side}.{kind}" for side in ("source", "target") for kind in ("bin", "idx")
    ]


def test_beside_the_text_every_source_has_both(prepared: Path, tmp_path: Path, function_teacher: Any) -> None:
    before = pairs(prepared, prepared)
    own = dict(before)
    agreed = {source for source, _ in before[:7]}
    teacher = function_teacher(lambda line: own[line] if line in agreed else backwards(line))
    facts = distil(make(tmp_path / "c", prepared, beside=True), lambda: teacher, quiet=True)
    expected = []
    for source, target in before:
        expected += [(source, target)] if source in agreed else [(source, target), (source, backwards(source))]
    assert pairs(prepared, tmp_path / "c") == expected
    assert (facts["targets"], facts["pairs"]) == ("beside", len(expected))
    assert facts["equal_to_the_text"] == sum(source in agreed for source, _ in before)


@pytest.mark.parametrize("beside", [False, True])
def test_a_line_without_a_usable_translation_keeps_that_of_the_text(
    beside: bool, prepared: Path, tmp_path: Path, function_teacher: Any
) -> None:
    before = pairs(prepared, prepared)
    gone, endless = before[3][0], before[5][0]
    teacher = function_teacher(lambda line: "" if line == gone else "so " * 500 if line == endless else backwards(line))
    facts = distil(make(tmp_path / "c", prepared, beside=beside), lambda: teacher, quiet=True)
    after = pairs(prepared, tmp_path / "c")
    for source, target in (before[3], before[5]):
        assert [pair for pair in after if pair[0] == source] == [(source, target)] * sum(s == source for s, _ in before)
    assert facts["kept_the_text"] == {
        "empty": sum(source == gone for source, _ in before),
        "too_long": sum(source == endless for source, _ in before),
    }
    assert facts["translated"] == facts["lines"] - sum(facts["kept_the_text"].values())


def test_no_pair_is_longer_than_the_text_may_be(prepared: Path, tmp_path: Path, function_teacher: Any) -> None:
    longest = max(TokenArrays(prepared / f"train.{side}").lengths.max() for side in ("source", "target"))
    facts = distil(
        make(tmp_path / "c", prepared, max_tokens=int(longest) + 1), lambda: function_teacher(str.upper), quiet=True
    )
    assert facts["kept_the_text"]["too_long"] > 0, "upper case takes more tokens"
    assert TokenArrays(tmp_path / "c" / "train.target").lengths.max() <= longest


class Interrupted(Exception):
    pass


def test_an_interrupted_corpus_goes_on_where_it_was(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function_teacher: Any
) -> None:
    monkeypatch.setattr(corpus, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(corpus, "LINES_AT_ONCE", 50)
    distil(make(tmp_path / "whole", prepared), lambda: function_teacher(backwards), quiet=True)
    killed, asked = make(tmp_path / "killed", prepared), []

    class Dying:
        calls = 0

        def translate(self, lines: Sequence[str]) -> list[str]:
            self.calls += 1
            if self.calls == 4:
                raise Interrupted
            asked.extend(lines)
            return [backwards(line) for line in lines]

    sessions = 0
    while not killed.is_done:
        sessions += 1
        try:
            facts = distil(killed, Dying, quiet=True)
        except Interrupted:
            assert not killed.is_done
    assert sessions > 2
    assert asked == [source for source, _ in pairs(prepared, prepared)], "no line is asked for twice"
    assert files(killed.folder) == files(tmp_path / "whole")
    assert facts["seconds"] >= 0


def test_damaged_pieces_are_translated_again(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function_teacher: Any
) -> None:
    monkeypatch.setattr(corpus, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(corpus, "LINES_AT_ONCE", 100)
    distil(make(tmp_path / "whole", prepared), lambda: function_teacher(backwards), quiet=True)
    unfinished = make(tmp_path / "c", prepared)

    def die(*_: Any) -> None:
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(corpus._Work, "assemble", die)
        distil(unfinished, lambda: function_teacher(backwards), quiet=True)
    piece = unfinished.folder / "piece-0000000200.bin"
    piece.write_bytes(piece.read_bytes()[:-2])
    (unfinished.folder / "work.json").write_text("{")
    (unfinished.folder / ".piece-0000000300.bin.x.tmp").write_text("left by a kill")
    teacher = function_teacher(backwards)
    distil(unfinished, lambda: teacher, quiet=True)
    assert teacher.lines == [source for source, _ in pairs(prepared, prepared)][200:]
    assert files(unfinished.folder) == files(tmp_path / "whole")


def test_a_finished_corpus_needs_no_teacher(prepared: Path, tmp_path: Path, function_teacher: Any) -> None:
    def refuse() -> Any:
        raise AssertionError("the teacher is not needed")

    facts = distil(make(tmp_path / "c", prepared), lambda: function_teacher(backwards), quiet=True)
    assert distil(make(tmp_path / "c", prepared), refuse) == facts


def test_a_corpus_whose_arrays_were_deleted_is_made_again(
    prepared: Path, tmp_path: Path, function_teacher: Any
) -> None:
    made = make(tmp_path / "c", prepared)
    distil(made, lambda: function_teacher(backwards), quiet=True)
    before = files(made.folder)
    (made.folder / "train.target.bin").unlink()
    distil(made, lambda: function_teacher(backwards), quiet=True)
    assert files(made.folder) == before


def test_a_teacher_that_says_nothing_is_one_line(prepared: Path, tmp_path: Path, function_teacher: Any) -> None:
    with pytest.raises(InputError, match=r"train\.teacher: gives no text for any of the first 256 lines"):
        distil(make(tmp_path / "c", prepared), lambda: function_teacher(lambda _: ""), quiet=True)
    assert not make(tmp_path / "c", prepared).is_done


def test_a_corpus_that_was_not_prepared_is_one_line(tmp_path: Path, function_teacher: Any) -> None:
    (tmp_path / "stats.json").write_text("{}")
    with pytest.raises(DataError, match=r"stats\.json: names no tokenizer"):
        distil(make(tmp_path / "c", tmp_path), lambda: function_teacher(backwards), quiet=True)


KILLED = """
import sys, time
from pathlib import Path
from fitformer.distillation import Corpus, corpus, distil
corpus.SECONDS_BETWEEN_SAVES, corpus.LINES_AT_ONCE = 0.0, 20
class Slow:
    def translate(self, lines):
        time.sleep(0.05)
        return [" ".join(reversed(line.split())) for line in lines]
distil(Corpus(Path(sys.argv[1]), Path(sys.argv[2]), beside=False, max_tokens=100), Slow, quiet=True)
"""


def test_a_corpus_killed_at_any_moment_is_finished_by_the_next_call(
    prepared: Path, tmp_path: Path, repository: Path, function_teacher: Any
) -> None:
    distil(make(tmp_path / "whole", prepared), lambda: function_teacher(backwards), quiet=True)
    folder, kills = tmp_path / "killed", 0
    command = [sys.executable, "-c", KILLED, str(folder), str(prepared)]
    for pieces in (2, 9):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(repository)})
        while process.poll() is None and len(list(folder.glob("piece-*.idx"))) < pieces:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills
    left = function_teacher(backwards)
    distil(make(folder, prepared), lambda: left, quiet=True)
    assert 0 < len(left.lines) < len(TokenArrays(prepared / "train.source"))
    assert files(folder) == files(tmp_path / "whole")
