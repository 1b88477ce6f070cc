"""The teacher's translations of the training text, as token arrays that a training reads instead of the prepared ones.

Sequence-level knowledge distillation (Kim & Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2): beam
search by the teacher over the whole training set, and training on what comes out. The work is saved piece by piece, so
that a killed one goes on where it was; the arrays appear when all is translated. A line without a usable translation
keeps the translation of the text.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from fitformer.data.arrays import ArrayWriter, TokenArrays, write_arrays
from fitformer.data.tokenizer_files import prepared_tokenizers
from fitformer.distillation.teacher import Teacher
from fitformer.errors import DataError, InputError
from fitformer.progress import Progress, say
from fitformer.rundir import read_json, write_json
from fitformer.runtime.lines import one_line
from fitformer.runtime.tokenizer import Tokenizer

FACTS, WORK = "facts.json", "work.json"
PIECE = "piece-{:010d}"  # the number of its first line
SECONDS_BETWEEN_SAVES = 30.0
LINES_AT_ONCE = 256  # among which a teacher sorts by length
# Longest translation that is used, in tokens: what a bundle would write at most. Longer ones repeat themselves.
LENGTH_RATIO, LENGTH_OFFSET = 2.0, 10
REASONS = ("empty", "too_long")


@dataclass(frozen=True)
class Corpus:
    """A corpus to be made: where, from which prepared text, and how.

    Attributes:
        folder: appears piece by piece; with ``facts.json`` it is finished.
        prepared: the prepared corpus.
        beside: every source with both translations, the text's own and the teacher's, instead of the teacher's alone.
        max_tokens: longest side of a pair, end mark included.
    """

    folder: Path
    prepared: Path
    beside: bool
    max_tokens: int

    @property
    def is_done(self) -> bool:
        """Whether all is translated."""
        arrays = [f"train.{side}.{kind}" for side in ("source", "target") for kind in ("idx", "bin")]
        return all((self.folder / name).exists() for name in (FACTS, *arrays))

    @property
    def facts(self) -> dict[str, Any]:
        """What came out, of a finished one."""
        facts: dict[str, Any] = read_json(self.folder / FACTS)
        return facts


def distil(corpus: Corpus, open_teacher: Callable[[], Teacher], *, quiet: bool = False) -> dict[str, Any]:
    """Translate the training text, or what is left of it, and write the arrays; return the facts.

    ``open_teacher`` is called only when something is left to translate.

    Raises:
        InputError: the teacher cannot be loaded, or gives no text.
        DataError: the prepared corpus is damaged.
        NotPossibleError: the disk is full.
    """
    if corpus.is_done:
        return corpus.facts
    corpus.folder.mkdir(parents=True, exist_ok=True)
    for leftover in corpus.folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
    work = _Work(corpus, *prepared_tokenizers(corpus.prepared), quiet=quiet)
    work.translate(open_teacher)
    facts = work.assemble()
    write_json(corpus.folder / FACTS, facts)
    work.clean_up()
    return facts


class _Work:
    """A corpus in the making."""

    def __init__(self, corpus: Corpus, source: Tokenizer, target: Tokenizer, *, quiet: bool) -> None:
        self.corpus, self.source, self.target, self.quiet = corpus, source, target, quiet
        self.sources, self.targets = (TokenArrays(corpus.prepared / f"train.{side}") for side in ("source", "target"))
        if len(self.sources) != len(self.targets):
            raise DataError(f"{self.sources.prefix}: has another number of sentences than the target side")
        self.pieces = list(self._whole_pieces())
        self.done = sum(map(len, self.pieces))
        self.seconds = float(self._state().get("seconds", 0.0)) if self.done else 0.0

    def _state(self) -> dict[str, Any]:
        path = self.corpus.folder / WORK
        try:
            state = read_json(path) if path.exists() else {}
        except InputError:
            state = {}
        return state if isinstance(state, dict) else {}

    def _whole_pieces(self) -> Iterator[TokenArrays]:
        """The pieces from the first line on without a gap; a damaged one, and all after it, are translated again."""
        start = 0
        while (self.corpus.folder / f"{PIECE.format(start)}.idx").exists():
            try:
                piece = TokenArrays(self.corpus.folder / PIECE.format(start))
            except DataError:
                return
            if not len(piece):
                return
            yield piece
            start += len(piece)

    def translate(self, open_teacher: Callable[[], Teacher]) -> None:
        """Translate what is left, saving now and then."""
        total = len(self.sources)
        if self.done >= total:
            return
        teacher = open_teacher()
        began, before = time.monotonic(), self.seconds
        with Progress("train: teacher translates", total, unit="lines", start=self.done, quiet=self.quiet) as progress:
            while self.done < total:
                waiting: list[list[int]] = []
                saved = time.monotonic()
                while self.done + len(waiting) < total and (
                    not waiting or time.monotonic() - saved < SECONDS_BETWEEN_SAVES
                ):
                    first = self.done + len(waiting)
                    waiting += self._translate(teacher, range(first, min(first + LINES_AT_ONCE, total)))
                    progress.update(self.done + len(waiting))
                self.seconds = before + time.monotonic() - began
                self._save(waiting)

    def _translate(self, teacher: Teacher, lines: range) -> list[list[int]]:
        """Ids of the teacher's translations of some lines, as they are."""
        texts = [one_line(self.source.decode([int(i) for i in self.sources[line]])) for line in lines]
        outputs = teacher.translate(texts)
        assert len(outputs) == len(texts), "a teacher gives one line per line"
        if lines.start == 0:
            first = next((pair for pair in zip(texts, outputs, strict=True) if pair[1]), None)
            if first is None:
                raise InputError(
                    f"train.teacher: gives no text for any of the first {len(texts)} lines; is it a translation model, "
                    "and does it want a teacher_prefix or teacher_languages?"
                )
            if not self.quiet:
                say(f"train: the teacher translates '{first[0][:60]}' as '{first[1][:60]}'")
        return self.target.encode([one_line(text) for text in outputs])

    def _save(self, ids: Sequence[Sequence[int]]) -> None:
        prefix = self.corpus.folder / PIECE.format(self.done)
        write_arrays(prefix, ids, vocab_size=self.target.vocab_size)
        write_json(self.corpus.folder / WORK, {"seconds": round(self.seconds, 1)})
        self.pieces.append(TokenArrays(prefix))
        self.done += len(ids)

    def assemble(self) -> dict[str, Any]:
        """Write the pairs to learn from; return what they are."""
        kept: Counter[str] = Counter()
        translated = equal = 0
        with ExitStack() as stack:
            source, target = (
                stack.enter_context(ArrayWriter(self.corpus.folder / f"train.{side}", vocab_size=tokenizer.vocab_size))
                for side, tokenizer in (("source", self.source), ("target", self.target))
            )
            for line, ids in enumerate(chain.from_iterable(self._piece(piece) for piece in self.pieces)):
                source_ids, own = self.sources[line].tolist(), self.targets[line].tolist()
                reason = self._unusable(ids, source_ids, own)
                if reason is not None:
                    kept[reason] += 1
                else:
                    translated += 1
                    equal += ids == own
                learned = [own] if reason is not None or ids == own else [own, ids] if self.corpus.beside else [ids]
                for choice in learned:
                    source.add(source_ids)
                    target.add(choice)
        return {
            "targets": "beside" if self.corpus.beside else "replace",
            "lines": len(self.sources),
            "translated": translated,
            "equal_to_the_text": equal,
            "kept_the_text": {reason: kept[reason] for reason in REASONS},
            "pairs": source.num_sentences,
            "tokens": {"source": source.num_tokens, "target": target.num_tokens},
            "seconds": round(self.seconds, 1),
            "lines_per_s": round(len(self.sources) / self.seconds, 1) if self.seconds else None,
        }

    @staticmethod
    def _piece(piece: TokenArrays) -> Iterator[list[int]]:
        for i in range(len(piece)):
            yield piece[i].tolist()

    def _unusable(self, ids: list[int], source: list[int], own: list[int]) -> str | None:
        """Why a translation is not learned, or ``None``."""
        if not ids:
            return "empty"
        longest = math.ceil(LENGTH_RATIO * max(len(source), len(own))) + LENGTH_OFFSET
        return "too_long" if len(ids) > min(longest, self.corpus.max_tokens - 1) else None

    def clean_up(self) -> None:
        """Remove the pieces."""
        for path in [*self.corpus.folder.glob("piece-*"), self.corpus.folder / WORK]:
            path.unlink(missing_ok=True)
