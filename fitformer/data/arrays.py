"""Memory-mapped ragged integer arrays: the encoded sentences of a corpus, of any size, in two files.

``PREFIX.bin`` holds the tokens of all sentences one after the other, little-endian, in two bytes each while
the vocabulary allows it and in four otherwise. ``PREFIX.idx`` holds a small header and where each sentence
begins. Opening costs no memory: the operating system brings in the pages that are read.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fitformer.errors import DataError
from fitformer.rundir import atomic_path

IntArray = npt.NDArray[np.int64]

_MAGIC = b"fitarr01"
_HEADER = struct.Struct("<8sQQ")  # magic, bytes per token, number of sentences
_FLUSH_TOKENS = 1 << 18


class ArrayWriter:
    """Writes one ragged array sentence by sentence; both files appear together when the ``with`` block ends
    well.

    ``vocab_size`` decides the width of a token on disk; ``length_counts`` is the histogram of sentence
    lengths.
    """

    def __init__(self, prefix: Path, *, vocab_size: int = 1 << 16) -> None:
        self.prefix = prefix
        self.num_sentences = 0
        self.num_tokens = 0
        self.length_counts: dict[int, int] = {}
        self._itemsize = 2 if vocab_size <= 1 << 16 else 4
        self._tokens = array("H" if self._itemsize == 2 else "I")
        self._offsets = array("q", [0])

    def __enter__(self) -> ArrayWriter:
        with ExitStack() as stack:
            # The index is entered first and so renamed last: whoever finds it finds the tokens, too.
            index = stack.enter_context(atomic_path(_with_suffix(self.prefix, ".idx")))
            tokens = stack.enter_context(atomic_path(_with_suffix(self.prefix, ".bin")))
            self._index_file: IO[bytes] = stack.enter_context(index.open("wb"))
            self._token_file: IO[bytes] = stack.enter_context(tokens.open("wb"))
            self._index_file.write(_HEADER.pack(_MAGIC, self._itemsize, 0))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            return self._stack.__exit__(kind, error, trace)
        # Entered again so that a full disk during the last flush is seen by ``atomic_path`` like any other.
        with self._stack:
            self._flush()
            self._index_file.seek(0)
            self._index_file.write(_HEADER.pack(_MAGIC, self._itemsize, self.num_sentences))
        return None

    def add(self, tokens: Sequence[int]) -> None:
        """Append one sentence of token ids (without begin and end marks)."""
        self._tokens.extend(tokens)
        self.num_sentences += 1
        self.num_tokens += len(tokens)
        self._offsets.append(self.num_tokens)
        self.length_counts[len(tokens)] = self.length_counts.get(len(tokens), 0) + 1
        if len(self._tokens) >= _FLUSH_TOKENS or len(self._offsets) >= _FLUSH_TOKENS:
            self._flush()

    @property
    def median_length(self) -> float:
        """Median number of tokens of a sentence (0 when there are none)."""
        return median_of_counts(self.length_counts)

    def _flush(self) -> None:
        self._token_file.write(np.asarray(self._tokens, dtype=f"<u{self._itemsize}").tobytes())
        self._index_file.write(np.asarray(self._offsets, dtype="<i8").tobytes())
        del self._tokens[:], self._offsets[:]


def write_arrays(prefix: Path, sentences: Iterable[Sequence[int]], *, vocab_size: int = 1 << 16) -> int:
    """Stream ``sentences`` (token ids) to ``prefix.bin`` and ``prefix.idx``, atomically; return how many
    there were.
    """
    with ArrayWriter(prefix, vocab_size=vocab_size) as writer:
        for tokens in sentences:
            writer.add(tokens)
    return writer.num_sentences


class TokenArrays:
    """Read-only view of a ragged array on disk: ``arrays[i]`` is the i-th sentence, an array of token ids.

    Raises:
        DataError: a file is missing, truncated or of another format; the message names it.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index_path, token_path = _with_suffix(prefix, ".idx"), _with_suffix(prefix, ".bin")
        itemsize, count = _read_header(index_path)
        self._offsets: npt.NDArray[Any] = np.memmap(index_path, "<i8", "r", offset=_HEADER.size, shape=(count + 1,))
        total = int(self._offsets[-1])
        _check_size(token_path, total * itemsize)
        dtype = f"<u{itemsize}"
        # An empty file cannot be mapped.
        self._tokens: npt.NDArray[Any] = np.memmap(token_path, dtype, "r") if total else np.zeros(0, dtype)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)} in {self.prefix}")
        index %= len(self)
        return self._tokens[int(self._offsets[index]) : int(self._offsets[index + 1])]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all sentences."""
        return len(self._tokens)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Number of tokens of every sentence, [sentences]."""
        return np.diff(self._offsets).astype(np.int32)

    def padded(self, indices: IntArray, *, extra: int = 0) -> tuple[IntArray, IntArray]:
        """Return the sentences ``indices`` as int64 [B, longest + extra], right-padded with 0, and their
        lengths [B].
        """
        starts = np.asarray(self._offsets[indices])
        lengths = np.asarray(self._offsets[indices + 1]) - starts
        width = int(lengths.max(initial=0)) + extra
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        if not len(self._tokens):
            return np.zeros((len(indices), width), np.int64), lengths
        # One gather for the whole batch; cells beyond a sentence read some token and are then zeroed.
        cells = np.minimum(starts[:, None] + columns, len(self._tokens) - 1)
        return self._tokens[cells].astype(np.int64) * inside, lengths


def median_of_counts(counts: dict[int, int]) -> float:
    """Median of values given as a histogram ``{value: how often}`` (0 when empty)."""
    values = np.array(sorted(counts), dtype=np.int64)
    total = sum(counts.values())
    if not total:
        return 0.0
    cumulative = np.cumsum([counts[int(value)] for value in values])
    low = values[np.searchsorted(cumulative, (total - 1) // 2, side="right")]
    high = values[np.searchsorted(cumulative, total // 2, side="right")]
    return float(low + high) / 2


def _with_suffix(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _read_header(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER.size)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; run the prepare stage again") from None
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise DataError(f"{path}: not an index of token arrays; run the prepare stage again")
    _, itemsize, count = _HEADER.unpack(header)
    _check_size(path, _HEADER.size + 8 * (count + 1))
    return int(itemsize), int(count)


def _check_size(path: Path, expected: int) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file; run the prepare stage again")
    if (size := path.stat().st_size) != expected:
        raise DataError(f"{path}: truncated ({size} bytes, expected {expected}); run the prepare stage again")
