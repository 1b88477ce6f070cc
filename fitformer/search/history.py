"""``history.jsonl``: every evaluated architecture on a line of its own, appended as it is evaluated.

Evaluating is the expensive part of a search. So the file is also what a killed search continues from: the same
command runs the same course again, and every architecture that the file holds is answered from it. A last line that
a kill left incomplete is dropped.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitformer.errors import DataError
from fitformer.rundir import disk_error
from fitformer.space import Architecture


@dataclass(frozen=True)
class Candidate:
    """One evaluated architecture.

    Attributes:
        architecture: what was evaluated.
        valid_loss: validation loss per target token with inherited weights; infinite if it was not a number.
        predicted_ms: predicted latency in milliseconds.
        generation: in which generation of the search it was evaluated, from 0.
    """

    architecture: Architecture
    valid_loss: float
    predicted_ms: float
    generation: int

    @property
    def order(self) -> tuple[float, float, str]:
        """Sort key: lowest loss first, then lowest latency; the text form makes it the same on every machine."""
        return self.valid_loss, self.predicted_ms, self.architecture.to_text()

    def to_dict(self) -> dict[str, Any]:
        """Return the line of the history; an infinite loss is ``null``."""
        return {
            "architecture": self.architecture.to_text(),
            "valid_loss": self.valid_loss if math.isfinite(self.valid_loss) else None,
            "predicted_ms": self.predicted_ms,
            "generation": self.generation,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Candidate:
        """Read a line of the history."""
        loss = math.inf if data["valid_loss"] is None else float(data["valid_loss"])
        arch = Architecture.from_text(data["architecture"])
        return cls(arch, loss, float(data["predicted_ms"]), int(data["generation"]))


class History:
    """The file of a search, or with ``path`` None a list in memory.

    Raises:
        DataError: a line before the last is not of this form; the message names it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.candidates: list[Candidate] = []
        self._whole = 0
        if path is not None and path.exists():
            content = path.read_bytes()
            self._whole = content.rfind(b"\n") + 1
            for number, line in enumerate(content[: self._whole].splitlines(), start=1):
                self.candidates.append(_read_line(path, number, line))

    def append(self, candidate: Candidate) -> None:
        """Add one line; it is safe against a kill of this process when this returns.

        Raises:
            NotPossibleError: the disk is full or the file cannot be written.
        """
        self.candidates.append(candidate)
        if self.path is None:
            return
        line = (json.dumps(candidate.to_dict()) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                stream.truncate(self._whole)
                stream.write(line)
        except OSError as error:
            raise disk_error(self.path, error) from error
        self._whole += len(line)

    def sync(self) -> None:
        """Make the lines so far safe against a power cut too."""
        if self.path is not None and self.path.exists():
            with self.path.open("ab") as stream:
                os.fsync(stream.fileno())


def _read_line(path: Path, number: int, line: bytes) -> Candidate:
    try:
        return Candidate.from_dict(json.loads(line))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}:{number}: not a line of a search history ({error})") from None
