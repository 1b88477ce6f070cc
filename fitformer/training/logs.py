"""Training logs: one JSON object per line, and the same figures for TensorBoard."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

from fitformer.rundir import disk_error, write_text

LOG = "log.jsonl"


class TrainingLog:
    """Appends to ``folder/log.jsonl`` and to event files in ``folder/tensorboard``."""

    def __init__(self, folder: Path, *, update: int) -> None:
        """Continue after ``update``: lines of later updates, left by a killed run, are dropped."""
        self.path = folder / LOG
        kept = [line for line in read_log(folder) if line["update"] <= update]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._stream = self.path.open("a", encoding="utf-8")
        self._board = _Board(folder / "tensorboard", update)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._stream, self._board):
            with suppress(OSError):  # the disk is full, and the error that ends the training already says so
                stream.close()

    def write(self, update: int, **figures: Any) -> None:
        """Record figures of one update; a dictionary becomes one curve per key.

        Raises:
            NotPossibleError: the disk is full.
        """
        try:
            self._stream.write(json.dumps({"update": update, **figures}) + "\n")
            self._stream.flush()
            self._board.write(update, figures)
        except OSError as error:
            raise disk_error(self.path, error) from error


class _Board:
    """An event file for TensorBoard.

    Written here and now: tensorboardX's own ``SummaryWriter`` does it in a thread, which a full disk ends, and then its
    queue runs full and the training waits for ever.
    """

    def __init__(self, folder: Path, update: int) -> None:
        """Begin a file; TensorBoard hides what earlier files say about later updates."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._records = RecordWriter(str(folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"))
            self._add(file_version="brain.Event:2")
            self._add(step=update + 1, session_log=SessionLog(status=SessionLog.START))
        except OSError as error:
            raise disk_error(folder, error) from error

    def write(self, update: int, figures: dict[str, Any]) -> None:
        for name, value in figures.items():
            items = value.items() if isinstance(value, dict) else [("", value)]
            for key, number in items:
                if isinstance(number, int | float):
                    self._add(step=update, summary=scalar(f"{name}/{key}".rstrip("/"), number))
        self._records.flush()

    def _add(self, **content: Any) -> None:
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())

    def close(self) -> None:
        self._records.close()


class NoLog:
    """The log of a process that keeps none."""

    def __enter__(self) -> NoLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, update: int, **figures: Any) -> None:
        """Drop the figures."""


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a log; a last line torn by a kill is left out."""
    path = folder / LOG
    lines = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return lines
