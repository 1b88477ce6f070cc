"""What a training will need and cost, from Mult-Adds by formula and the time of one batch.

A forward pass makes one multiplication and one addition per Mult-Add, the backward pass twice as many: six operations
per Mult-Add and update. Letters: d and e width of a side, q width of queries, keys and values, f inner width of the
feed-forward network, h heads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fitformer.cost.account import Cost, Rates, estimate, total
from fitformer.recipe import Supernet, Training
from fitformer.space import Architecture, SearchSpace, counting

OPERATIONS_PER_MAC = 6
SAMPLED = 200  # architectures whose mean is taken for the whole space's
GPU_OPERATIONS_PER_S = {16: 40e12, 32: 5e12}  # by bits; a V100's peaks are 125e12 and 15.7e12 (its data sheet)
GPU = "one that sustains 40 TFLOP/s in 16 bits or 5 in 32, a third of a V100's peaks: an assumption, not a measurement"
FLOAT_BYTES = 4
ADAM_MOMENTS = 2

Macs = Callable[[Architecture], int]


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a sentence, end mark included, and where they are from: ``recipe``, ``run`` or ``assumed``."""

    source: int
    target: int
    origin: str

    @property
    def longest(self) -> int:
        """The longer side, which is what a batch pays for."""
        return max(self.source, self.target)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"source": self.source, "target": self.target, "from": self.origin}


class Work(NamedTuple):
    """Mult-Adds of a forward pass for one pair of sentences: of what is rehearsed, and of an average update."""

    rehearsed: float
    average: float


def work_of_one(arch: Architecture, macs: Macs) -> Work:
    """The work of training one architecture."""
    return Work(macs(arch), macs(arch))


def work_of_supernet(space: SearchSpace, settings: Supernet, macs: Macs) -> Work:
    """The work of training a SuperTransformer: by ``uniform`` sampling the largest architecture is rehearsed."""
    rng = random.Random(0)
    largest = macs(space.largest())
    mean = sum(macs(space.sample(rng)) for _ in range(SAMPLED)) / SAMPLED
    if settings.sampling == "uniform":
        rehearsed, usual = float(largest), mean
    else:
        rehearsed = usual = largest + macs(space.smallest()) + settings.random_architectures * mean
    first = settings.largest_first / settings.updates
    return Work(rehearsed, first * largest + (1 - first) * usual)


@dataclass(frozen=True)
class Memory:
    """Bytes a training needs: for its parameters, and by rule of thumb for each token of a batch."""

    params: int
    per_token: int

    def at(self, batch_tokens: int) -> int:
        """All bytes at such a batch."""
        return sum(parameter_bytes(self.params).values()) + batch_tokens * self.per_token


def parameter_bytes(params: int) -> dict[str, int]:
    """Weights, gradients and Adam's two moments in float32."""
    return {
        "weights": FLOAT_BYTES * params,
        "gradients": FLOAT_BYTES * params,
        "optimizer": ADAM_MOMENTS * FLOAT_BYTES * params,
    }


def activation_bytes(arch: Architecture, lengths: Lengths, *, keeps_attention: bool) -> int:
    """What backward needs of a forward pass, per token of the longer side, in float32: an upper estimate.

    A sublayer keeps its input, its sum, its norm, its output and a dropout mask; attention also queries, keys, values
    and what it attended to, and with dropout of its own (``keeps_attention``) four tables of weights.
    """
    floats, sizes = 0, (lengths.source, lengths.target)
    source, target = (length / lengths.longest for length in sizes)
    encoder = zip(arch.encoder_ffn_dim, arch.encoder_qkv_dim, arch.encoder_num_heads, strict=True)
    for f, q, heads in encoder:
        tables = 4 * heads * lengths.source * keeps_attention
        floats += round(source * (8 * arch.encoder_embed_dim + 5 * q + 2 * f + tables))
    decoder = zip(
        arch.decoder_ffn_dim,
        arch.decoder_qkv_dim,
        arch.decoder_self_heads,
        arch.decoder_cross_heads,
        arch.decoder_cross_layers,
        strict=True,
    )
    for f, q, own, cross, attended in decoder:
        tables = 4 * (own * lengths.target + cross * lengths.source * len(attended)) * keeps_attention
        memory = len(attended) * (arch.encoder_embed_dim + 2 * q)
        floats += round(target * (12 * arch.decoder_embed_dim + 8 * q + 2 * f + tables) + source * memory)
    return FLOAT_BYTES * floats


@dataclass(frozen=True)
class Rehearsed:
    """What the rehearsal of one training found; ``batch_tokens`` of 0: it did not take place."""

    device: str
    precision: str
    batch_tokens: int
    params: int
    losses: tuple[float, ...] = ()
    pass_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    memory_before: int = 0
    memory_peak: int = 0


class Forecast(NamedTuple):
    """Cost of a training on this machine (``None`` when it was not rehearsed) and on the assumed GPU."""

    here: Cost | None
    gpu: Cost

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"here": self.here.to_dict() if self.here else None, "gpu": self.gpu.to_dict()}


def memory_of(memory: Memory, settings: Training, found: Rehearsed) -> dict[str, Any]:
    """Bytes by what they are for; activations and the sum are measured where the rehearsal took place.

    With fewer tokens per batch than the recipe's, the measured activations are scaled to these.
    """
    parts = parameter_bytes(found.params)
    activations, is_measured = settings.batch_tokens * memory.per_token, False
    if found.batch_tokens and found.memory_peak > found.memory_before:
        rest = found.memory_peak - found.memory_before - sum(parts.values())
        activations, is_measured = round(max(rest, 0) * settings.batch_tokens / found.batch_tokens), True
    return {
        **parts,
        "activations": activations,
        "total": sum(parts.values()) + activations,
        "basis": "measured" if is_measured else "estimated",
        "process_peak": found.memory_peak or None,
    }


def seconds_per_update(settings: Training, work: Work, found: Rehearsed) -> float | None:
    """All batches of an average update and one optimizer step, on the machine of the rehearsal."""
    if not found.batch_tokens:
        return None
    one = found.pass_seconds * settings.batch_tokens / found.batch_tokens * work.average / work.rehearsed
    return one * settings.accumulate + found.optimizer_seconds


def operations_per_update(settings: Training, work: Work, lengths: Lengths) -> float:
    """Floating-point operations of an average update."""
    return OPERATIONS_PER_MAC * work.average * settings.batch_tokens / lengths.longest * settings.accumulate


def forecast(
    seconds: float | None, operations: float, updates: int, *, bits: int = 16, gpus: int = 0, rates: Rates
) -> Forecast:
    """Cost of ``updates`` updates of so many seconds here, with ``gpus``, and so many operations anywhere."""
    here = None
    if seconds is not None:
        here = estimate(device_hours=seconds * updates / 3600 * max(gpus, 1), gpus=gpus, rates=rates)
    hours = operations * updates / GPU_OPERATIONS_PER_S[bits] / 3600
    return Forecast(here, estimate(device_hours=hours, gpus=1, rates=rates))


def together(forecasts: Iterable[Forecast], rates: Rates) -> Forecast:
    """The sum; here only where every training was rehearsed."""
    found = list(forecasts)
    here = [forecast.here for forecast in found if forecast.here is not None]
    return Forecast(
        total(here, rates) if len(here) == len(found) else None, total((forecast.gpu for forecast in found), rates)
    )


def counts_of(
    sizes: tuple[int, int], lengths: Lengths, *, share_embeddings: str, pre_norm: bool
) -> Callable[[Architecture], counting.Counts]:
    """Counts parameters and the Mult-Adds of one pair of sentences, output layer included."""

    def count(arch: Architecture) -> counting.Counts:
        return counting.total(
            arch,
            source_vocab_size=sizes[0],
            target_vocab_size=sizes[1],
            share_embeddings=share_embeddings,
            pre_norm=pre_norm,
            source_length=lengths.source,
            target_length=lengths.target,
        )

    return count
