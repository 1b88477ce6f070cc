"""Batches of similar lengths under a token budget, in an order that depends on the seed and the epoch
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitformer.data.arrays import IntArray, TokenArrays
from fitformer.errors import DataError

PAD, UNK, BOS, EOS = 0, 1, 2, 3


@dataclass(frozen=True)
class PairBatch:
    """One batch of B sentence pairs as int64 arrays, right-padded with 0."""

    source: IntArray  #: [B, S], each row ends with EOS
    decoder_input: IntArray  #: [B, T], each row starts with the start id
    target: IntArray  #: [B, T], ``decoder_input`` one step later: each row ends with EOS
    num_source_tokens: int  #: tokens in ``source`` that are not padding (EOS counts)
    num_target_tokens: int  #: tokens in ``target`` that are not padding (EOS counts)


class BucketedBatches:
    """Cuts a parallel corpus into batches of at most ``batch_tokens`` cells.

    A batch of n pairs costs n times its longest side, EOS included. A single pair longer than the budget gets
    a batch of its own: it is never lost. Only index arrays are held in memory, so the corpus may be of any
    size. ``start_id`` is what a decoder input starts with: BOS, or EOS for models made by fairseq.

    Raises:
        DataError: the two sides have a different number of sentences, or none.
    """

    def __init__(
        self,
        source: TokenArrays,
        target: TokenArrays,
        *,
        batch_tokens: int,
        seed: int,
        max_sentences: int | None = None,
        start_id: int = BOS,
    ) -> None:
        if len(source) != len(target):
            raise DataError(
                f"{source.prefix} has {len(source)} sentences, "
                f"but {target.prefix} has {len(target)}; prepare them again"
            )
        if not len(source):
            raise DataError(f"{source.prefix}: no sentences")
        self.source, self.target = source, target
        self.batch_tokens, self.seed, self.start_id = batch_tokens, seed, start_id
        self.max_sentences = max_sentences or batch_tokens
        self._widths = np.maximum(source.lengths, target.lengths).astype(np.int64) + 1

    def __len__(self) -> int:
        return len(self.source)

    def epoch(self, number: int) -> list[IntArray]:
        """Return the batches of epoch ``number`` as arrays of sentence indices: the same for the same seed,
        always.

        Sentences are shuffled, then sorted by length, so that equals meet in another company every epoch; the
        order of the batches is shuffled, too.
        """
        random = np.random.default_rng([self.seed, number])
        shuffled = random.permutation(len(self))
        batches = self._cut(shuffled[self._by_length(shuffled)])
        return [batches[i] for i in random.permutation(len(batches))]

    def in_order(self) -> list[IntArray]:
        """Return batches that cover every sentence once, from short to long, without chance (for
        validation).
        """
        everything = np.arange(len(self))
        return self._cut(everything[self._by_length(everything)])

    def collate(self, indices: IntArray) -> PairBatch:
        """Read the pairs ``indices`` [B] from disk as padded arrays with start id and EOS in place."""
        rows = np.arange(len(indices))
        source, source_lengths = self.source.padded(indices, extra=1)
        source[rows, source_lengths] = EOS
        target, target_lengths = self.target.padded(indices, extra=1)
        decoder_input = np.empty_like(target)
        decoder_input[:, 0] = self.start_id
        decoder_input[:, 1:] = target[:, :-1]
        target[rows, target_lengths] = EOS
        return PairBatch(
            source=source,
            decoder_input=decoder_input,
            target=target,
            num_source_tokens=int(source_lengths.sum()) + len(indices),
            num_target_tokens=int(target_lengths.sum()) + len(indices),
        )

    def efficiency(self, batches: Sequence[IntArray]) -> dict[str, float]:
        """Return the share of cells that hold a token, for each side and for both: 1.0 means no padding at
        all.
        """
        real, cells = np.zeros(2), np.zeros(2)
        for indices in batches:
            for side, arrays in enumerate((self.source, self.target)):
                lengths = arrays.lengths[indices] + 1
                real[side] += lengths.sum()
                cells[side] += lengths.max() * len(indices)
        source, target = real / cells
        return {"source": float(source), "target": float(target), "both": float(real.sum() / cells.sum())}

    def _by_length(self, indices: IntArray) -> IntArray:
        """Positions in ``indices`` by target length, then source length; ties keep their order.

        The source lengths run up for even target lengths and down for odd ones, so that a batch that holds
        the end of one target length and the start of the next does not mix the longest with the shortest
        sources.
        """
        source, target = self.source.lengths[indices], self.target.lengths[indices]
        return np.lexsort((np.where(target % 2, -source, source), target))

    def _cut(self, order: IntArray) -> list[IntArray]:
        widths = self._widths[order]
        most = min(self.max_sentences, self.batch_tokens)
        counts = np.arange(1, most + 1)
        batches, start = [], 0
        while start < len(order):
            # No batch that starts here can hold more than this many, so no longer window need be looked at.
            window = max(1, min(most, self.batch_tokens // int(widths[start])))
            longest = np.maximum.accumulate(widths[start : start + window])
            fitting = int(np.searchsorted(longest * counts[: len(longest)], self.batch_tokens, side="right"))
            batches.append(order[start : start + max(fitting, 1)])
            start += max(fitting, 1)
        return batches
