"""How long a model takes: random token ids through the decode loop that ships, encoder and decode loop apart.

The loop is ``greedy`` (or ``beam_search``) itself, with eos held back until ``target_length`` tokens are out,
so what is measured is what a user waits for, per batch, without tokenization. Every repeat is kept; the
summary follows HAT: sort, drop a tenth at either end, mean and standard deviation of the rest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fitformer.errors import InputError
from fitformer.runtime.decoding import EOS, DecodeSettings, Floats, Ids, StepModel, beam_search, greedy

State = TypeVar("State")
TRIMMED_SHARE = 0.1
FIRST_ORDINARY_ID = EOS + 1


@dataclass(frozen=True)
class Summary:
    """Milliseconds of one part. ``mean`` and ``std`` (of the sample) are of the trimmed values, the rest of
    all values."""

    mean: float
    std: float
    median: float
    min: float


@dataclass(frozen=True)
class Timing:
    """What ``time_model`` measured.

    Attributes:
        latency_ms: trimmed mean of encoder plus trimmed mean of decode loop, in milliseconds per batch.
        encoder, decoder: the two parts; "decoder" is the whole decode loop.
        total: the same summary of each repeat's sum.
        encoder_ms, decoder_ms: every repeat in the order measured.
        source_length, target_length, batch_size, beam, warmup, repeats: what was run; lengths in tokens, eos counted.
    """

    latency_ms: float
    encoder: Summary
    decoder: Summary
    total: Summary
    encoder_ms: tuple[float, ...]
    decoder_ms: tuple[float, ...]
    source_length: int
    target_length: int
    batch_size: int
    beam: int
    warmup: int
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """The attributes as JSON-able values."""
        return asdict(self) | {"encoder_ms": list(self.encoder_ms), "decoder_ms": list(self.decoder_ms)}


def summarize(values: Sequence[float]) -> Summary:
    """Sort, drop ``floor(n / 10)`` values at either end, mean and sample standard deviation of the rest."""
    ordered = sorted(values)
    # The hair above 0.1 * n keeps 10 values from becoming 0.9999 and dropping none.
    cut = int(TRIMMED_SHARE * len(ordered) + 1e-9)
    kept = ordered[cut : len(ordered) - cut]
    spread = statistics.stdev(kept) if len(kept) > 1 else 0.0
    return Summary(statistics.fmean(kept), spread, statistics.median(ordered), ordered[0])


def time_model(
    model: StepModel[Any],
    *,
    source_length: int,
    target_length: int,
    vocab_size: int,
    batch_size: int = 1,
    beam: int = 1,
    warmup: int = 5,
    repeats: int = 50,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time ``repeats`` decodings of the same random sentences after ``warmup`` untimed ones.

    Args:
        source_length: tokens per source sentence, the closing eos among them; no padding.
        target_length: decoder steps, the one that gives eos among them.
        vocab_size: source ids are drawn from the ordinary ones below this.
        clock: seconds from any origin; another one only in tests.
    Raises:
        InputError: a length or count that cannot be run.
    """
    for name, value, least in (
        ("source_length", source_length, 1),
        ("target_length", target_length, 1),
        ("batch_size", batch_size, 1),
        ("beam", beam, 1),
        ("warmup", warmup, 0),
        ("repeats", repeats, 1),
        ("vocab_size", vocab_size, FIRST_ORDINARY_ID + 1),
    ):
        if value < least:
            raise InputError(f"{name}: {value} is too small, the least is {least}")
    source = np.random.default_rng(seed).integers(FIRST_ORDINARY_ID, vocab_size, (batch_size, source_length))
    source[:, -1] = EOS
    watch = _EncoderWatch(model, clock)
    encoder_ms, decoder_ms = [], []
    for repeat in range(-warmup, repeats):
        begin = clock()
        _decode(watch, source, target_length, beam)
        seconds = clock() - begin
        if repeat >= 0:
            encoder_ms.append(1e3 * watch.seconds)
            decoder_ms.append(1e3 * (seconds - watch.seconds))
    encoder, decoder = summarize(encoder_ms), summarize(decoder_ms)
    return Timing(
        latency_ms=encoder.mean + decoder.mean,
        encoder=encoder,
        decoder=decoder,
        total=summarize([a + b for a, b in zip(encoder_ms, decoder_ms, strict=True)]),
        encoder_ms=tuple(encoder_ms),
        decoder_ms=tuple(decoder_ms),
        source_length=source_length,
        target_length=target_length,
        batch_size=batch_size,
        beam=beam,
        warmup=warmup,
        repeats=repeats,
    )


def _decode(model: StepModel[Any], source: Ids, target_length: int, beam: int) -> None:
    if beam == 1:
        greedy(model, source, max_lengths=[target_length] * len(source), ignore_eos=True)
        return
    # The last of the target_length steps is the one in which every live hypothesis is closed with eos.
    settings = DecodeSettings(beam=beam, min_length=target_length - 1)
    beam_search(model, source, settings, [target_length - 1] * len(source))


class _EncoderWatch(Generic[State]):
    """Passes everything on to a model and notes how long ``encode`` took."""

    def __init__(self, model: StepModel[State], clock: Callable[[], float]) -> None:
        self._model, self._clock = model, clock
        self.start_id = model.start_id
        self.seconds = 0.0

    def encode(self, source: Ids) -> State:
        begin = self._clock()
        state = self._model.encode(source)
        self.seconds = self._clock() - begin
        return state

    def step(self, state: State, tokens: Ids, position: int) -> tuple[Floats, State]:
        return self._model.step(state, tokens, position)

    def reorder(self, state: State, rows: Ids) -> State:
        return self._model.reorder(state, rows)
