"""Finding equal items among millions without holding them: eight-byte digests in a file, looked at part by
part.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[Any]  # little-endian uint64

PART = 1 << 19  # digests held in memory at a time
_BINS = 1 << 16


class DigestLog:
    """An append-only file of 8-byte digests, written within a ``with`` block and asked questions afterwards.

    Memory stays the same whatever the number of digests (one bit or byte per item in the answers apart).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def __enter__(self) -> DigestLog:
        self._file = self.path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, digest: bytes) -> None:
        """Append one digest of 8 bytes."""
        self._file.write(digest)
        self.count += 1

    def repeated(self) -> npt.NDArray[np.bool_]:
        """Return for each digest whether the same stood earlier in the file, [count]."""
        answer = np.zeros(self.count, dtype=np.bool_)
        parts = -(-self.count // PART)
        for part in range(parts):
            digests, positions = self._of_part(part, parts)
            order = np.argsort(digests, kind="stable")  # stable: the first occurrence stays first
            ranked = digests[order]
            answer[positions[order[1:]]] = ranked[1:] == ranked[:-1]
        return answer

    def member_of(self, others: frozenset[bytes]) -> npt.NDArray[np.bool_]:
        """Return for each digest whether it is one of ``others``, [count]."""
        wanted = np.frombuffer(b"".join(sorted(others)), dtype="<u8")
        answer = np.zeros(self.count, dtype=np.bool_)
        for start in range(0, self.count, PART):
            answer[start : start + PART] = np.isin(self._read(start), wanted)
        return answer

    def at(self, positions: npt.NDArray[np.int64]) -> frozenset[bytes]:
        """Return the digests at ``positions``."""
        if not self.count:
            return frozenset()
        digests = np.memmap(self.path, dtype="<u8", mode="r")
        return frozenset(digest.tobytes() for digest in digests[positions])

    def lowest(self, wanted: int, *, skip: npt.NDArray[np.bool_]) -> int:
        """Return the smallest bound such that at least ``wanted`` digests lie below it (all, if there are
        fewer).

        Digests at positions where ``skip`` [count] is true are not counted. Digests are as good as random
        numbers, so "below the bound" is a fair draw that depends on each item alone: equal items are drawn
        together, and no two runs differ.
        """
        if wanted <= 0:
            return 0
        counts = np.zeros(_BINS, dtype=np.int64)
        for start in range(0, self.count, PART):
            block = self._read(start)[~skip[start : start + PART]]
            counts += np.bincount((block >> 48).astype(np.int64), minlength=_BINS)
        cumulative = np.cumsum(counts)
        if cumulative[-1] <= wanted:
            return 1 << 64
        edge = int(np.searchsorted(cumulative, wanted))
        before = int(cumulative[edge] - counts[edge])
        inside = []
        for start in range(0, self.count, PART):
            block = self._read(start)[~skip[start : start + PART]]
            inside.append(block[(block >> 48) == edge])
        return int(np.sort(np.concatenate(inside))[wanted - before - 1]) + 1

    def _of_part(self, part: int, parts: int) -> tuple[Digests, npt.NDArray[np.int64]]:
        digests, positions = [], []
        for start in range(0, self.count, PART):
            block = self._read(start)
            chosen = np.flatnonzero(block % parts == part)
            digests.append(block[chosen])
            positions.append(chosen + start)
        return np.concatenate(digests), np.concatenate(positions)

    def _read(self, start: int) -> Digests:
        return np.fromfile(self.path, dtype="<u8", count=PART, offset=8 * start)


def as_number(digest: bytes) -> int:
    """Return a digest as the number that ``lowest`` compares."""
    return int.from_bytes(digest, "little")
