"""The export check: does the bundle's runtime say what PyTorch says, token for token?

Both sides run the same search code, so a difference is the graphs' fault. Two correct engines add numbers in
another order, and where the two best tokens are as good as equal either may win: such a difference is called
a tie, counted and told, and only a difference that rounding cannot explain fails the check. In int8 tokens
may differ; how many do is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fitformer.errors import InputError, NotPossibleError
from fitformer.export.torch_steps import TorchStepModel
from fitformer.models import Transformer
from fitformer.models.transformer import DecodeState
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import EOS, DecodeSettings, Floats, Ids, StepModel, beam_search, greedy
from fitformer.runtime.translator import pad_batch

TIE = 1e-4  # of a logit; float32 rounding in these models stays below a tenth of it
TIE_TRIALS = 16
LISTED = 3


@dataclass(frozen=True)
class Difference:
    """Outputs that differ for sentence ``number`` (from 0), first at token ``position``."""

    number: int
    position: int
    expected: list[int]
    found: list[int]

    def __str__(self) -> str:
        tokens = [ids[self.position] if self.position < len(ids) else EOS for ids in (self.expected, self.found)]
        return f"sentence {self.number + 1}, token {self.position + 1}: PyTorch {tokens[0]}, bundle {tokens[1]}"


def check_export(
    model: Transformer,
    bundle: Bundle,
    source_ids: Sequence[Sequence[int]],
    *,
    beam: int = 4,
    batch_size: int = 16,
    threads: int = 1,
) -> dict[str, Any]:
    """Decode sentences greedily and with a beam in PyTorch and in the bundle's runtime and compare the tokens.

    Args:
        model: the model that the bundle was made from; it is put into evaluation mode.
        source_ids: ids per sentence, with or without eos at the end; those too long for the bundle are left out.
        beam: hypotheses of the second comparison; the other settings are the bundle's own.
    Returns:
        JSON-able facts: ``sentences``, ``left_out``, ``precision``, ``greedy`` and ``beam`` (``equal``, ``ties``,
        ``different``: numbers of sentences), and along PyTorch's greedy outputs ``max_logit_difference`` and
        ``next_token_agreement``, the share of positions with the same most probable token.
    Raises:
        InputError: no sentence that the bundle can read.
        NotPossibleError: a float32 bundle gives other tokens; the first differences are listed.
    """
    sentences = [ids[:-1] if ids and ids[-1] == EOS else ids for ids in map(list, source_ids)]
    usable = [ids for ids in sentences if 0 < len(ids) < bundle.max_source_length]
    if not usable:
        raise InputError("export check: there is no sentence that the bundle can read")
    expected, found = TorchStepModel(model), bundle.step_model(threads)
    settings = replace(bundle.decode_settings, n_best=1)
    comparison = _Comparison(expected, found, usable, bundle.max_target_length, batch_size)
    facts: dict[str, Any] = {
        "sentences": len(usable),
        "left_out": len(sentences) - len(usable),
        "precision": bundle.precision,
        "greedy": comparison.compare(replace(settings, beam=1), exact=bundle.precision == "fp32"),
        "beam": comparison.compare(replace(settings, beam=beam), exact=bundle.precision == "fp32") | {"size": beam},
    }
    return facts | comparison.logits(replace(settings, beam=1))


class _Comparison:
    """PyTorch and the bundle side by side on the same batches."""

    def __init__(
        self,
        expected: StepModel[DecodeState],
        found: StepModel[Any],
        sentences: list[list[int]],
        longest: int,
        batch_size: int,
    ) -> None:
        self.expected, self.found, self.sentences = expected, found, sentences
        self.longest, self.batch_size = longest, batch_size

    def compare(self, settings: DecodeSettings, *, exact: bool) -> dict[str, int]:
        """Numbers of sentences with equal outputs, ties and other differences; with ``exact`` the last must be 0."""
        differences = []
        for numbers in self._batches():
            pairs = (self.decode(side, numbers, settings) for side in (self.expected, self.found))
            for number, want, have in zip(numbers, *pairs, strict=True):
                if want != have:
                    differences.append(Difference(number, _first_difference(want, have), want, have))
        # A difference that is no failure anyway (int8) is not worth the trials.
        real = [difference for difference in differences if not (exact and self._is_tie(difference, settings))]
        if exact and real:
            listed = "; ".join(map(str, real[:LISTED])) + (" ..." if len(real) > LISTED else "")
            name = "greedy search" if settings.beam == 1 else f"beam {settings.beam}"
            raise NotPossibleError(
                f"export check: {len(real)} of {len(self.sentences)} sentences come out different from PyTorch "
                f"({name}): {listed}"
            )
        equal, ties = len(self.sentences) - len(differences), len(differences) - len(real)
        return {"equal": equal, "ties": ties, "different": len(real)}

    def logits(self, settings: DecodeSettings) -> dict[str, float]:
        """Feed both sides PyTorch's greedy outputs and compare the logits of every position."""
        largest, agreeing, positions = 0.0, 0, 0
        for numbers in self._batches():
            outputs = self.decode(self.expected, numbers, settings)
            source = pad_batch([self.sentences[number] for number in numbers])
            for want, have, live in self._forced(source, outputs):
                largest = max(largest, float(np.abs(want - have)[live].max()))
                agreeing += int((want.argmax(-1) == have.argmax(-1))[live].sum())
                positions += int(live.sum())
        return {"max_logit_difference": largest, "next_token_agreement": agreeing / positions}

    def decode(self, model: StepModel[Any], numbers: list[int], settings: DecodeSettings) -> list[list[int]]:
        """Target ids of the sentences of those numbers."""
        batch = [self.sentences[number] for number in numbers]
        caps = [settings.length_cap(len(ids), limit=self.longest) for ids in batch]
        if settings.beam > 1:
            return [found[0].ids for found in beam_search(model, pad_batch(batch), settings, caps)]
        return greedy(
            model,
            pad_batch(batch),
            max_lengths=caps,
            min_length=settings.min_length,
            no_repeat_ngram=settings.no_repeat_ngram,
        )

    def _batches(self) -> Iterator[list[int]]:
        order = sorted(range(len(self.sentences)), key=lambda number: len(self.sentences[number]))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _forced(self, source: Ids, outputs: list[list[int]]) -> Iterator[tuple[Floats, Floats, Any]]:
        want_state, have_state = self.expected.encode(source), self.found.encode(source)
        lengths = np.array([len(ids) for ids in outputs])
        tokens = np.full((len(outputs), int(lengths.max()) + 1), EOS, np.int64)
        tokens[:, 0] = self.expected.start_id
        for row, ids in enumerate(outputs):
            tokens[row, 1 : len(ids) + 1] = ids
        for position in range(tokens.shape[1]):
            want, want_state = self.expected.step(want_state, tokens[:, position], position)
            have, have_state = self.found.step(have_state, tokens[:, position], position)
            yield want, have, position <= lengths

    def _is_tie(self, difference: Difference, settings: DecodeSettings) -> bool:
        """Whether PyTorch itself gives the bundle's output once its logits are moved by at most ``TIE``.

        First each token of that output is preferred by ``TIE``, which decides every tie along it. In beam search a tie
        elsewhere can decide which hypothesis is dropped; for that, logits are moved at random a number of times.
        """
        trials: list[StepModel[Any]] = [_Preferring(self.expected, difference.found)]
        if settings.beam > 1:
            trials += [_Shaken(self.expected, np.random.default_rng(seed)) for seed in range(TIE_TRIALS)]
        return any(self.decode(trial, [difference.number], settings)[0] == difference.found for trial in trials)


class _Preferring:
    """A model that prefers one output: wherever it has begun so, the logit of its next token is higher by ``TIE``."""

    def __init__(self, model: StepModel[Any], output: list[int]) -> None:
        self.model, self.start_id = model, model.start_id
        self.path = [self.start_id, *output, EOS]

    def encode(self, source: Ids) -> tuple[Any, list[bool]]:
        return self.model.encode(source), [True] * len(source)

    def step(self, state: tuple[Any, list[bool]], tokens: Ids, position: int) -> tuple[Floats, tuple[Any, list[bool]]]:
        logits, inner = self.model.step(state[0], tokens, position)
        inside = position + 1 < len(self.path)
        on_path = [
            inside and so_far and token == self.path[position]
            for so_far, token in zip(state[1], tokens.tolist(), strict=True)
        ]
        logits = logits.copy()
        for row in np.flatnonzero(on_path):
            logits[row, self.path[position + 1]] += TIE
        return logits, (inner, on_path)

    def reorder(self, state: tuple[Any, list[bool]], rows: Ids) -> tuple[Any, list[bool]]:
        return self.model.reorder(state[0], rows), [state[1][row] for row in rows]


class _Shaken:
    """A model whose logits are moved by random amounts of at most ``TIE / 2``."""

    def __init__(self, model: StepModel[Any], rng: np.random.Generator) -> None:
        self.model, self.start_id, self.rng = model, model.start_id, rng

    def encode(self, source: Ids) -> Any:
        return self.model.encode(source)

    def step(self, state: Any, tokens: Ids, position: int) -> tuple[Floats, Any]:
        logits, state = self.model.step(state, tokens, position)
        # The ends of the range and not its inside: a tie is decided by the extremes.
        return logits + self.rng.choice((-TIE / 2, TIE / 2), logits.shape).astype(logits.dtype), state

    def reorder(self, state: Any, rows: Ids) -> Any:
        return self.model.reorder(state, rows)


def _first_difference(want: list[int], have: list[int]) -> int:
    shared = min(len(want), len(have))
    return next((i for i in range(shared) if want[i] != have[i]), shared)
