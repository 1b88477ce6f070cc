"""Progress of long work on stderr: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

SECONDS_BETWEEN_LINES = 15.0


def say(text: str) -> None:
    """Print one line to stderr."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return seconds as a person reads them: ``42 s``, ``3 min 05 s``, ``2 h 07 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """One long task with a known total; use as a context manager and call ``update`` with the amount done."""

    def __init__(self, title: str, total: int, *, unit: str = "", start: int = 0, quiet: bool = False) -> None:
        self.title, self.total, self.unit = title, max(total, 1), unit
        self.start, self.done, self.quiet = start, start, quiet
        self._began = self._last_line = time.monotonic()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        self._began = self._last_line = time.monotonic()
        if not self.quiet and sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[info]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.start, rate="", info="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif not self.quiet and kind is None:
            say(f"{self.title}: {self.done}/{self.total} done in {duration(time.monotonic() - self._began)}")

    def update(self, done: int, **info: str | float) -> None:
        """Report that ``done`` of the total are finished, with a few figures to show beside the bar."""
        self.done = done
        now = time.monotonic()
        rate = (done - self.start) / max(now - self._began, 1e-9)
        left = duration(max(self.total - done, 0) / rate) if rate > 0 else "?"
        shown = " ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in info.items())
        number = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
        speed = f"{number} {self.unit}/s".replace(" /", "/") + f", {left} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, rate=speed, info=shown)
        elif not self.quiet and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            say(f"{self.title}: {done}/{self.total} {speed} {shown}".rstrip())
