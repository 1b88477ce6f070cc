"""Greedy and beam search over any model that can be asked for one step at a time.

In: a ``StepModel`` and right-padded source ids. Out: target ids without bos and eos, in the order of the
    batch. Only numpy
is needed, so the same loop decodes an ONNX bundle, a PyTorch model and a toy model in a test.

A sentence's result never depends on its batch mates: every choice is made row by row, and ties go to the
better-ranked hypothesis and then to the lower id. The search rule is that of fairseq (used by HAT): ``2 *
beam`` candidates per step, an end-of-sentence candidate counts if it is among the best ``beam``, and a
sentence ends when ``beam`` hypotheses have ended.

Letters in shapes: B batch, S source length, R rows (live hypotheses of all sentences), V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fitformer.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
NEVER_CHOSEN = (PAD, BOS)

# Beyond these a beam takes all memory, and a power of a length is no longer a number.
MOST_BEAM, MOST_PENALTY = 1000, 10.0

# Finished rows are cut out of a greedy batch once this share of its rows is done: cutting copies every tensor
# of the state, so doing it for each single row costs more than it saves.
FINISHED_SHARE_TO_CUT = 0.25

Ids = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
State = TypeVar("State")


class StepModel(Protocol[State]):
    """A sequence-to-sequence model seen one target position at a time. ``State`` is the model's own business."""

    @property
    def start_id(self) -> int:
        """The token that is fed at position 0: bos, or eos in models made by fairseq."""
        ...

    def encode(self, source: Ids) -> State:
        """Read ``source`` [B, S] (right-padded with 0) and return the state before the first target position."""
        ...

    def step(self, state: State, tokens: Ids, position: int) -> tuple[Floats, State]:
        """Feed ``tokens`` [R], all at target ``position``; return logits [R, V] of the next token and the new state."""
        ...

    def reorder(self, state: State, rows: Ids) -> State:
        """Return the state of the given batch rows; a row may be left out or taken several times."""
        ...


@dataclass(frozen=True, kw_only=True)
class DecodeSettings:
    """How to search. Lengths are target tokens without eos.

    Attributes:
        beam: hypotheses kept per sentence; 1 is greedy search.
        length_penalty: exponent of the length (eos counted) by which a sum of log-probabilities is divided.
        n_best: hypotheses returned per sentence, at most ``beam``.
        max_length_ratio, max_length_offset: length cap, ``ceil(ratio * source tokens without eos) + offset``.
        no_repeat_ngram: no sequence of this many tokens occurs twice in an output; 0 switches the rule off.
        min_length: eos is not chosen before this many tokens.
    """

    beam: int = 1
    length_penalty: float = 1.0
    n_best: int = 1
    max_length_ratio: float = 2.0
    max_length_offset: int = 10
    no_repeat_ngram: int = 0
    min_length: int = 0

    def __post_init__(self) -> None:
        for name, lowest in (("beam", 1), ("n_best", 1), ("no_repeat_ngram", 0), ("min_length", 0)):
            value = getattr(self, name)
            if value < lowest:
                raise InputError(f"{name}: {value} is too small, the least is {lowest}")
        if self.n_best > self.beam:
            raise InputError(f"n_best: {self.n_best} is more than beam ({self.beam}); raise beam or lower n_best")
        if not (math.isfinite(self.length_penalty) and math.isfinite(self.max_length_ratio)):
            raise InputError("length_penalty and max_length_ratio: must be finite numbers")
        if self.beam > MOST_BEAM:
            raise InputError(f"beam: {self.beam} is too large, the most is {MOST_BEAM}")
        if abs(self.length_penalty) > MOST_PENALTY:
            raise InputError(f"length_penalty: {self.length_penalty} is not between -{MOST_PENALTY} and {MOST_PENALTY}")
        if self.max_length_ratio < 0:
            raise InputError(f"max_length_ratio: {self.max_length_ratio} is negative, the least is 0")

    def length_cap(self, source_tokens: int, *, limit: int) -> int:
        """Most target tokens (without eos) for a source of ``source_tokens`` (without eos), never above ``limit``."""
        # Rounded first: 1.1 * 10 is a hair above 11 in binary and would give 12.
        wanted = math.ceil(round(self.max_length_ratio * source_tokens, 6)) + self.max_length_offset
        return max(1, min(wanted, limit))


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of beam search.

    Attributes:
        ids: target ids without eos.
        score: ``log_prob`` divided by length (eos counted) to the power of the length penalty.
        log_prob: natural-log probability of the ids and eos.
        token_log_probs: one per id and a last one for eos; they add up to ``log_prob``.
    """

    ids: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]


def greedy(
    model: StepModel[State],
    source: Ids,
    *,
    max_lengths: Sequence[int] | Ids,
    min_length: int = 0,
    no_repeat_ngram: int = 0,
    ignore_eos: bool = False,
) -> list[list[int]]:
    """Take the most probable token at every position until eos or the cap.

    Args:
        source: [B, S] ids, right-padded with 0.
        max_lengths: [B] most target tokens (without eos) per sentence.
        min_length, no_repeat_ngram: as in ``DecodeSettings``.
        ignore_eos: treat eos as any other token, so that every sentence runs to its cap (for timing).
    Returns:
        Target ids without eos, one list per row of ``source``.
    """
    caps = [int(cap) for cap in max_lengths]
    assert len(caps) == len(source), "one cap per sentence"
    outputs: list[list[int]] = [[] for _ in caps]
    rows = list(range(len(caps)))  # sentence of each row of the batch
    running = {sentence for sentence in rows if caps[sentence] > 0}
    if not running:
        return outputs
    state = model.encode(source)
    tokens = np.full(len(rows), model.start_id, np.int64)
    end = None if ignore_eos else EOS
    position = 0
    while True:
        logits, state = model.step(state, tokens, position)
        tokens = logits.argmax(axis=-1).astype(np.int64, copy=False)
        for row, token in enumerate(tokens.tolist()):
            sentence = rows[row]
            if sentence not in running:
                continue
            output = outputs[sentence]
            if no_repeat_ngram or token in NEVER_CHOSEN or (token == end and position < min_length):
                banned = _banned(output, min_length=min_length, no_repeat_ngram=no_repeat_ngram)
                tokens[row] = token = _best_allowed(logits[row], banned)
            if token == end:
                running.discard(sentence)
            else:
                output.append(token)
                if len(output) >= caps[sentence]:
                    running.discard(sentence)
        if not running:
            return outputs
        position += 1
        if len(rows) - len(running) >= FINISHED_SHARE_TO_CUT * len(rows):
            kept = [row for row, sentence in enumerate(rows) if sentence in running]
            index = np.array(kept, np.int64)
            rows, tokens, state = [rows[row] for row in kept], tokens[index], model.reorder(state, index)


class _Node(NamedTuple):
    """A live hypothesis as its last token and the hypothesis it continues."""

    token: int
    log_prob: float
    total: float
    parent: _Node | None

    def path(self) -> list[_Node]:
        """The nodes from the first generated token to this one; the start is left out."""
        nodes: list[_Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


def beam_search(
    model: StepModel[State], source: Ids, settings: DecodeSettings, max_lengths: Sequence[int] | Ids
) -> list[list[Hypothesis]]:
    """Search for the best-scored outputs with ``settings.beam`` live hypotheses per sentence.

    Args:
        source: [B, S] ids, right-padded with 0.
        max_lengths: [B] most target tokens (without eos) per sentence; what is alive there is closed with eos.
    Returns:
        Per sentence ``settings.n_best`` hypotheses, best first (fewer if a tiny vocabulary has no more outputs).
    """
    caps = [int(cap) for cap in max_lengths]
    assert len(caps) == len(source), "one cap per sentence"
    ended: list[list[Hypothesis]] = [[] for _ in caps]
    if not caps:
        return ended
    # One row per sentence at first: the beam rows of a sentence would all be the same before the first choice.
    start = _Node(model.start_id, 0.0, 0.0, None)
    live: list[tuple[int, list[_Node]]] = [(sentence, [start]) for sentence in range(len(caps))]
    state = model.encode(source)
    position = 0
    while True:
        nodes = [node for _, group in live for node in group]
        closing = np.array([position >= caps[sentence] for sentence, group in live for _ in group])
        logits, state = model.step(state, np.array([node.token for node in nodes], np.int64), position)
        candidates, per_row = _candidates(logits, nodes, closing, settings, position)
        live_next: list[tuple[int, list[_Node]]] = []
        rows: list[int] = []
        first = 0
        for sentence, group in live:
            last = first + len(group)
            going_on = _choose(candidates[first * per_row : last * per_row], nodes, ended[sentence], settings)
            first = last
            if going_on and len(ended[sentence]) < settings.beam:
                live_next.append((sentence, [node for _, node in going_on]))
                rows.extend(row for row, _ in going_on)
        if not live_next:
            return [sorted(found, key=lambda h: -h.score)[: settings.n_best] for found in ended]
        if rows != list(range(len(nodes))):
            state = model.reorder(state, np.array(rows, np.int64))
        live = live_next
        position += 1


# A possible continuation: minus the sum of log-probabilities, row, token, log-probability. Plain tuples, as there
# are many and few are kept; their natural order is the ranking, ties to the better hypothesis and lower id included.
_Candidate = tuple[float, int, int, float]


def _choose(
    candidates: list[_Candidate], nodes: list[_Node], ended: list[Hypothesis], settings: DecodeSettings
) -> list[tuple[int, _Node]]:
    """Rank one sentence's candidates, add those that end to ``ended``, return row and node of those that go on."""
    beam = settings.beam
    going_on: list[tuple[int, _Node]] = []
    for rank, (minus_total, row, token, log_prob) in enumerate(sorted(candidates)[: 2 * beam]):
        if minus_total == math.inf:  # ruled out
            break
        if token != EOS:
            going_on.append((row, _Node(token, log_prob, -minus_total, nodes[row])))
        elif rank < beam and len(ended) < beam:
            node = _Node(token, log_prob, -minus_total, nodes[row])
            ended.append(_hypothesis(node, settings.length_penalty))
    return going_on[:beam]


def _candidates(
    logits: Floats, nodes: list[_Node], closing: NDArray[np.bool_], settings: DecodeSettings, position: int
) -> tuple[list[_Candidate], int]:
    """The best ``2 * beam`` continuations of every row, row after row, and their number per row (ruled-out ones last).

    A ``closing`` row can only end, and so can one to which the rules leave nothing else.
    """
    scores = np.array(logits, np.float32)  # a copy: the masks below are written into it
    every_row = np.arange(len(nodes))
    highest = scores.max(axis=-1)
    log_total = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=-1))
    ends = scores[:, EOS].copy()
    scores[:, NEVER_CHOSEN] = -np.inf
    scores[closing] = -np.inf
    if position < settings.min_length:
        scores[:, EOS] = -np.inf
    if settings.no_repeat_ngram:
        for row, node in enumerate(nodes):
            banned = _repeats([step.token for step in node.path()], settings.no_repeat_ngram)
            scores[row, list(banned)] = -np.inf
    per_row = min(2 * settings.beam, scores.shape[1])
    tokens = np.empty((len(nodes), per_row), np.int64)
    values = np.empty((len(nodes), per_row), np.float64)
    # Repeated argmax beats a partition for the few candidates that a beam needs, and ties go to the lower id.
    for place in range(per_row):
        tokens[:, place] = best = scores.argmax(axis=-1)
        values[:, place] = scores[every_row, best]
        scores[every_row, best] = -np.inf
    stuck = values[:, 0] == -np.inf
    tokens[stuck, 0], values[stuck, 0] = EOS, ends[stuck]
    log_probs = values - log_total[:, None]
    minus_totals = -log_probs - np.array([node.total for node in nodes])[:, None]
    columns = (minus_totals, np.repeat(every_row, per_row), tokens, log_probs)
    return list(zip(*(column.ravel().tolist() for column in columns), strict=True)), per_row


def _hypothesis(node: _Node, length_penalty: float) -> Hypothesis:
    path = node.path()
    return Hypothesis(
        ids=[step.token for step in path[:-1]],
        score=node.total / len(path) ** length_penalty,
        log_prob=node.total,
        token_log_probs=[step.log_prob for step in path],
    )


def _repeats(output: list[int], size: int) -> set[int]:
    """Tokens that would complete a sequence of ``size`` tokens already in ``output``."""
    if size <= 0 or len(output) < size:
        return set()
    ending = output[len(output) - size + 1 :]
    starts = range(len(output) - size + 1)
    return {output[start + size - 1] for start in starts if output[start : start + size - 1] == ending}


def _best_allowed(logits: Floats, banned: Iterable[int]) -> int:
    """The most probable token of one row that is not banned, or eos if every token is."""
    allowed = np.array(logits, np.float32)
    allowed[list(banned)] = -np.inf
    best = int(allowed.argmax())
    return best if allowed[best] > -np.inf else EOS


def _banned(output: list[int], *, min_length: int, no_repeat_ngram: int) -> set[int]:
    banned = {*NEVER_CHOSEN, *_repeats(output, no_repeat_ngram)}
    return banned | {EOS} if len(output) < min_length else banned
