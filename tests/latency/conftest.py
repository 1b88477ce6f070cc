"""A simulated device: its latencies follow a known linear law, and it slows down when a test says so."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fitformer.latency import Conditions, LatencyRecord
from fitformer.runtime.timing import Summary, Timing
from fitformer.space import Architecture, SearchSpace


@dataclass
class SimulatedDevice:
    """Times architectures without running anything; ``slowness(n)`` is the factor on its n-th timing."""

    slowness: Callable[[int], float] = lambda count: 1.0
    noise: float = 0.0
    timed: list[Architecture] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def true_parts(self, arch: Architecture) -> tuple[float, float]:
        e, d = arch.encoder_embed_dim, arch.decoder_embed_dim
        encoder = 0.5 + 0.1 * arch.encoder_num_layers + 4e-6 * e * sum(arch.encoder_ffn_dim)
        spans = [len(layers) for layers in arch.decoder_cross_layers]
        decoder = 2.0 + 1.5 * arch.decoder_num_layers + 2e-2 * d + 5e-5 * d * sum(arch.decoder_ffn_dim)
        decoder += 0.01 * sum(q * n for q, n in zip(arch.decoder_qkv_dim, spans, strict=True))
        return encoder, decoder

    def true_ms(self, arch: Architecture) -> float:
        return sum(self.true_parts(arch))

    def __call__(self, arch: Architecture) -> Timing:
        factor = self.slowness(len(self.timed)) * (1 + self.noise * self.rng.gauss(0, 1))
        self.timed.append(arch)
        encoder, decoder = (factor * part for part in self.true_parts(arch))
        return Timing(
            latency_ms=encoder + decoder,
            encoder=Summary(encoder, 0.0, encoder, encoder),
            decoder=Summary(decoder, 0.0, decoder, decoder),
            total=Summary(encoder + decoder, 0.0, encoder + decoder, encoder + decoder),
            encoder_ms=(encoder,),
            decoder_ms=(decoder,),
            source_length=13,
            target_length=12,
            batch_size=1,
            beam=1,
            warmup=0,
            repeats=1,
        )


@pytest.fixture
def space() -> SearchSpace:
    return SearchSpace(
        encoder_embed_dim=(64, 96),
        decoder_embed_dim=(64, 96),
        encoder_num_layers=(2, 3),
        decoder_num_layers=(1, 2, 3),
        encoder_ffn_dim=(128, 256, 512),
        encoder_qkv_dim=(64, 128),
        encoder_num_heads=(2, 4),
        decoder_ffn_dim=(128, 256, 512),
        decoder_qkv_dim=(64, 128),
        decoder_self_heads=(2, 4),
        decoder_cross_heads=(2, 4),
        decoder_cross_span=(1, 2, 3),
    )


@pytest.fixture
def conditions() -> Conditions:
    return Conditions(threads=1, batch_size=1, beam=1, source_length=13, target_length=12, exporter_version=1)


@pytest.fixture
def make_device() -> type[SimulatedDevice]:
    return SimulatedDevice


@pytest.fixture
def make_records(space: SearchSpace, conditions: Conditions) -> Callable[..., list[LatencyRecord]]:
    """Records of ``count`` drawn architectures as a simulated device gives them."""

    def make(count: int, *, noise: float = 0.0, seed: int = 0) -> list[LatencyRecord]:
        rng, device = random.Random(seed), SimulatedDevice(noise=noise)
        drawn = dict.fromkeys(space.sample(rng) for _ in range(4 * count))
        return [_record(arch, device(arch), conditions, index) for index, arch in enumerate(list(drawn)[:count])]

    return make


def _record(arch: Architecture, timing: Timing, conditions: Conditions, index: int) -> LatencyRecord:
    return LatencyRecord(
        architecture=arch.to_text(),
        encoder_ms=timing.encoder.mean,
        decoder_ms=timing.decoder.mean,
        latency_ms=timing.latency_ms,
        std_ms=timing.total.std,
        min_ms=timing.total.min,
        repeats=timing.repeats,
        **conditions.to_dict(),
        reference_before_ms=1.0,
        reference_after_ms=1.0,
        correction=1.0,
        drifted=False,
        attempt=1,
        index=index,
        timestamp="2026-01-01T00:00:00+00:00",
    )
