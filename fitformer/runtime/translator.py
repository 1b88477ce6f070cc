"""Lines in, translations out: one per line, in order, whatever the lines hold.

Lines are read in windows (so a pipe of any size works), sorted by length, decoded in batches and put back in
order. In fp32, and in int8 whose scales of activations belong to a row each, a translation does not depend on what
else is in its batch. Where a whole batch shares them, one sentence at a time is the default, and a larger
``batch_size`` is the faster mode without that promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fitformer.errors import InputError
from fitformer.progress import say
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import EOS, DecodeSettings, Hypothesis, Ids, beam_search, greedy
from fitformer.runtime.lines import one_line, split_long
from fitformer.runtime.subword_nmt import SubwordNmtTokenizer

BATCH_SIZE = 16
BATCHES_PER_WINDOW = 16
# A batch of long sentences is cut at this many padded source tokens: attention memory grows with batch times length.
MOST_PADDED_TOKENS = 4096


@dataclass(frozen=True)
class Output:
    """One text for a line. ``score`` and ``log_prob`` as in ``Hypothesis``; None when scores were not asked for.

    ``tokens``: its words and marks before they were put together, of a bundle that writes Moses tokens; else None.
    """

    text: str
    score: float | None = None
    log_prob: float | None = None
    tokens: str | None = None


@dataclass(frozen=True)
class Translation:
    """What came out for one line.

    Attributes:
        outputs: ``n_best`` outputs, best first; fewer when there are no more, one empty output for an empty line.
            For a line in parts the first joins the best of each part, the second the second best of each, ...
        parts: number of parts that a line longer than the model can read was split into; else 1.
    """

    outputs: tuple[Output, ...]
    parts: int = 1

    @property
    def text(self) -> str:
        """The best output."""
        return self.outputs[0].text


@dataclass(frozen=True)
class _Job:
    """One stretch of ids to decode: a line or a part of one."""

    line: int
    glue: str
    ids: list[int]


class Translator:
    """Translates lines with a bundle.

    Args:
        threads: processor threads of ONNX Runtime.
        batch_size: sentences decoded together; None for 16, or 1 where a translation may depend on its batch.
        warn: receives one line of text for each line that had to be split.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        batch_size: int | None = None,
        warn: Callable[[str], None] = say,
    ) -> None:
        for name, value in (("threads", threads), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise InputError(f"{name}: {value} is too small, the least is 1")
        self.bundle, self._warn = bundle, warn
        self.batch_size = batch_size or (BATCH_SIZE if bundle.rows_independent else 1)
        if self.batch_size > 1 and not bundle.rows_independent:
            warn(
                f"batch_size {self.batch_size} with this {bundle.precision} bundle: faster, but a line may change "
                "with the other lines of its batch; batch_size 1 rules that out"
            )
        self._source, self._target = bundle.tokenizers()
        self._join: Callable[[Sequence[int]], str] | None = None
        if isinstance(self._target, SubwordNmtTokenizer) and not self._target.reads_tokens:
            self._join = self._target.join
        self._model = bundle.step_model(threads)

    def translate(
        self, lines: Iterable[str], settings: DecodeSettings | None = None, *, scores: bool = False
    ) -> Iterator[Translation]:
        """Translate ``lines`` (without their line ends), one result per line, in order, window by window.

        Args:
            settings: how to search; None for the bundle's own.
            scores: fill in scores with a beam of one too, where they cost a little time.
        """
        settings = settings or self.bundle.decode_settings
        numbered = enumerate(lines, start=1)
        # One sentence at a time gains nothing from sorting, so each line is answered as soon as it is read.
        size = self.batch_size * BATCHES_PER_WINDOW if self.batch_size > 1 else 1
        while window := list(islice(numbered, size)):
            yield from self._window(window, settings, scores)

    def _window(self, window: list[tuple[int, str]], settings: DecodeSettings, scores: bool) -> Iterator[Translation]:
        jobs = self._jobs(window)
        order = sorted(range(len(jobs)), key=lambda i: len(jobs[i].ids))
        found: list[list[Hypothesis]] = [[] for _ in jobs]
        for batch in self._batches(order, jobs):
            results = self._decode([jobs[i].ids for i in batch], settings, scores)
            for i, result in zip(batch, results, strict=True):
                found[i] = result
        by_line: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            by_line.setdefault(job.line, []).append(i)
        with_scores = scores or settings.beam > 1
        for number, _ in window:
            parts = [(jobs[i], found[i]) for i in by_line.get(number, [])]
            yield self._joined(parts, settings, with_scores)

    def _jobs(self, window: list[tuple[int, str]]) -> list[_Job]:
        """Ids of every line that has any; a line that is too long gives several jobs and a warning."""
        texts = [one_line(line) for _, line in window]
        limit = max(1, self.bundle.max_source_length - 1)  # eos takes one
        jobs: list[_Job] = []
        for (number, _), text, ids in zip(window, texts, self._source.encode(texts), strict=True):
            if len(ids) <= limit:
                jobs.extend([_Job(number, "", ids)] if ids else [])
                continue
            pieces, cut = split_long(text, limit, self._lengths)
            parts = [
                _Job(number, piece.glue, part[:limit])
                for piece, part in zip(pieces, self._source.encode([piece.text for piece in pieces]), strict=True)
                if part
            ]
            jobs.extend(parts)
            self._warn(
                f"line {number}: {len(ids)} tokens are more than the {limit} the model reads at once; "
                f"split at {cut} into {len(parts)} parts, translated one by one and joined"
            )
        return jobs

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._source.encode(texts)]

    def _batches(self, order: list[int], jobs: list[_Job]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in order:  # ascending lengths, so the newest is the longest
            if batch and (
                len(batch) == self.batch_size or (len(batch) + 1) * (len(jobs[i].ids) + 1) > MOST_PADDED_TOKENS
            ):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _decode(self, batch: list[list[int]], settings: DecodeSettings, scores: bool) -> list[list[Hypothesis]]:
        limit = self.bundle.max_target_length
        caps = [settings.length_cap(len(ids), limit=limit) for ids in batch]
        source = pad_batch(batch)
        if settings.beam > 1 or scores:
            return beam_search(self._model, source, settings, caps)
        outputs = greedy(
            self._model,
            source,
            max_lengths=caps,
            min_length=settings.min_length,
            no_repeat_ngram=settings.no_repeat_ngram,
        )
        return [[Hypothesis(ids, 0.0, 0.0, [])] for ids in outputs]

    def _joined(
        self, parts: list[tuple[_Job, list[Hypothesis]]], settings: DecodeSettings, with_scores: bool
    ) -> Translation:
        """One line's translation from those of its parts: the best of each, then the second of each, ..."""
        if not parts:
            return Translation((Output("", 0.0, 0.0) if with_scores else Output(""),))
        outputs: list[Output] = []
        for rank in range(max(len(found) for _, found in parts)):
            chosen = [(job.glue, found[min(rank, len(found) - 1)]) for job, found in parts]
            text = one_line("".join(glue + self._target.decode(hypothesis.ids) for glue, hypothesis in chosen))
            tokens = " ".join(self._join(found.ids) for _, found in chosen).strip() if self._join else None
            if not with_scores:
                outputs.append(Output(text, tokens=tokens))
                continue
            log_prob = sum(hypothesis.log_prob for _, hypothesis in chosen)
            length = sum(len(hypothesis.ids) + 1 for _, hypothesis in chosen)
            outputs.append(Output(text, log_prob / length**settings.length_penalty, log_prob, tokens))
        return Translation(tuple(outputs), len(parts))


def pad_batch(batch: Sequence[Sequence[int]]) -> Ids:
    """Source ids [B, S]: eos after every sentence, 0 up to the longest."""
    width = max(len(ids) for ids in batch) + 1
    source = np.zeros((len(batch), width), np.int64)
    for row, ids in enumerate(batch):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = EOS
    return source
