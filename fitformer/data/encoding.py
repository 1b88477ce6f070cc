"""Second pass: text to token ids to memory-mapped arrays, split by split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import sentencepiece

from fitformer.data.arrays import ArrayWriter
from fitformer.data.evaluation import TextWriter, read_evaluation_text
from fitformer.data.spool import Choice, Spool, assigned_pairs
from fitformer.device import available_threads
from fitformer.progress import Progress

CHUNK = 4096  # pairs encoded at a time

Item = TypeVar("Item")


class Encoder:
    """The subword models of both sides, reading text many sentences at a time."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = _processor(source)
        self._target = self._source if target == source else _processor(target)
        self.source_vocab_size = int(self._source.get_piece_size())
        self.target_vocab_size = int(self._target.get_piece_size())

    def encode(self, pairs: list[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Return the token ids of each pair, without begin and end marks."""
        threads = available_threads()
        sources = self._source.encode([source for source, _ in pairs], num_threads=threads)
        targets = self._target.encode([target for _, target in pairs], num_threads=threads)
        return list(zip(sources, targets, strict=True))


class SplitWriter:
    """Writes the arrays (and for ``with_text`` the raw text) of one split and counts what goes in."""

    def __init__(self, folder: Path, split: str, encoder: Encoder, *, max_tokens: int, with_text: bool) -> None:
        self._source = ArrayWriter(folder / f"{split}.source", vocab_size=encoder.source_vocab_size)
        self._target = ArrayWriter(folder / f"{split}.target", vocab_size=encoder.target_vocab_size)
        self._text = TextWriter(folder, split) if with_text else None
        self._most = max_tokens - 1  # the end mark takes one
        self.dropped: Counter[str] = Counter()
        self.cut = 0

    def __enter__(self) -> SplitWriter:
        with ExitStack() as stack:
            stack.enter_context(self._source)
            stack.enter_context(self._target)
            if self._text is not None:
                stack.enter_context(self._text)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def add_training(self, source: list[int], target: list[int]) -> None:
        """Append a pair unless a side has too many tokens (or none, when a text held nothing but marks)."""
        if not source or not target:
            self.dropped["empty"] += 1
        elif max(len(source), len(target)) > self._most:
            self.dropped["too_many_tokens"] += 1
        else:
            self._source.add(source)
            self._target.add(target)

    def add_evaluation(self, source: list[int], target: list[int]) -> None:
        """Append a pair, cut to the most tokens allowed, so that arrays and text keep the same number of
        lines.
        """
        self.cut += max(len(source), len(target)) > self._most
        self._source.add(source[: self._most])
        self._target.add(target[: self._most])

    def add_text(self, source: str, target: str) -> None:
        """Append the raw text of a pair."""
        assert self._text is not None
        self._text.add(source, target)

    @property
    def num_pairs(self) -> int:
        """Pairs written so far."""
        return self._source.num_sentences

    def facts(self) -> dict[str, Any]:
        """Counts for ``stats.json``; tokens and lengths are without end marks."""
        facts: dict[str, Any] = {
            "pairs": self.num_pairs,
            "tokens": {"source": self._source.num_tokens, "target": self._target.num_tokens},
            "median_lengths": {"source": self._source.median_length, "target": self._target.median_length},
            "longest": {
                "source": max(self._source.length_counts, default=0),
                "target": max(self._target.length_counts, default=0),
            },
        }
        return facts | ({"cut_to_max_tokens": self.cut} if self.cut else {})


def encode_training(
    spool: Spool, choice: Choice, encoder: Encoder, folder: Path, *, max_tokens: int, quiet: bool
) -> tuple[SplitWriter, dict[str, SplitWriter]]:
    """Write the training arrays and those of every held-out split; return their (finished) writers."""
    train = SplitWriter(folder, "train", encoder, max_tokens=max_tokens, with_text=False)
    held_out = {
        name: SplitWriter(folder, name, encoder, max_tokens=max_tokens, with_text=True) for name in choice.held_out
    }
    with ExitStack() as stack:
        progress = stack.enter_context(Progress("prepare: encode", len(spool), unit="pairs", quiet=quiet))
        for writer in (train, *held_out.values()):
            stack.enter_context(writer)
        done = 0
        for chunk in chunks(assigned_pairs(spool, choice)):
            tokens = encoder.encode([(source, target) for _, source, target in chunk])
            for (place, source, target), (source_ids, target_ids) in zip(chunk, tokens, strict=True):
                if place == "train":
                    train.add_training(source_ids, target_ids)
                elif place in held_out:
                    held_out[place].add_text(source, target)
                    held_out[place].add_evaluation(source_ids, target_ids)
                else:
                    train.dropped[place] += 1
            done += len(chunk)
            progress.update(done)
    return train, held_out


def encode_evaluation(folder: Path, split: str, encoder: Encoder, *, max_tokens: int) -> SplitWriter:
    """Write the arrays of a split whose text was written before; return the (finished) writer."""
    with SplitWriter(folder, split, encoder, max_tokens=max_tokens, with_text=False) as writer:
        for chunk in chunks(read_evaluation_text(folder, split)):
            for source_ids, target_ids in encoder.encode(chunk):
                writer.add_evaluation(source_ids, target_ids)
    return writer


def _processor(path: Path) -> sentencepiece.SentencePieceProcessor:
    # From bytes: the library's own file reader knows no non-ASCII paths on Windows.
    return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of at most ``CHUNK`` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
