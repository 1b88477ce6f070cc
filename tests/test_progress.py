"""Progress on stderr: lines now and then, a bar on a terminal, silence when asked for; stdout stays for results."""

from __future__ import annotations

import io
import sys

import pytest

from fitformer import progress
from fitformer.progress import Progress, duration, say


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (41.6, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_a_duration_reads_as_a_person_says_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_say_prints_one_line_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("done")
    assert capsys.readouterr() == ("", "done\n")


def test_without_a_terminal_a_line_comes_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 100, unit="updates") as bar:
        for done in range(1, 41):
            clock.now += 1
            bar.update(done, loss=4.56789, name="x")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "train: 15/100 1 updates/s, 1 min 25 s left loss 4.568 name x",
        "train: 30/100 1 updates/s, 1 min 10 s left loss 4.568 name x",
        "train: 40/100 done in 40 s",
    ]


def test_rate_and_time_left_count_from_where_a_resumed_task_started(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("train", 1000, unit="updates", start=900) as bar:
        clock.now += 20
        bar.update(950)
    assert "train: 950/1000 2.5 updates/s, 20 s left\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("done", "shown"), [(3, "0.15 pairs/s"), (2468, "123 pairs/s"), (24_680, "1234 pairs/s"), (2e7, "1000000 pairs/s")]
)
def test_a_rate_is_a_plain_number(clock: Clock, capsys: pytest.CaptureFixture[str], done: int, shown: str) -> None:
    with Progress("read", 10**9, unit="pairs") as bar:
        clock.now += 20
        bar.update(done)
    assert f" {shown}," in capsys.readouterr().err


def test_nothing_done_yet_and_more_done_than_expected_are_shown_without_nonsense(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("measure", 10) as bar:
        clock.now += 20
        bar.update(0)
        clock.now += 20
        bar.update(12)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "measure: 0/10 0/s, ? left"
    assert lines[1] == "measure: 12/10 0.3/s, 0 s left"


def test_a_task_of_nothing_is_no_error(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("read", 0) as bar:
        bar.update(0)
    assert capsys.readouterr().err.endswith("done in 0 s\n")


def test_quiet_prints_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 10, quiet=True) as bar:
        clock.now += 100
        bar.update(5)
    assert capsys.readouterr() == ("", "")


def test_an_error_passes_and_nothing_is_called_done(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="mine"), Progress("train", 10) as bar:
        bar.update(5)
        raise RuntimeError("mine")
    assert "done" not in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("fails", [False, True])
def test_on_a_terminal_there_is_a_bar_with_figures(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    try:
        with Progress("train", 100, unit="updates", start=20) as bar:
            bar.update(30, loss=4.56789)
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    shown = terminal.getvalue()
    assert "train" in shown
    assert "30/100" in shown
    assert "updates/s" in shown
    assert "loss 4.568" in shown
    assert shown.endswith("\n") or "\x1b[?25h" in shown  # the cursor is given back
