"""Dropout whose masks come from a pool drawn beforehand.

Drawing Bernoulli masks costs about a quarter of a training step on a CPU. ``MaskPool`` draws a large block of uniform
numbers now and then, and every mask is a stretch of it at a random offset: each element is kept with the right
probability, and masks of different calls are different stretches. Block and offsets follow from the seed and the
update number alone, so that a resumed training repeats them exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

POOL_ELEMENTS = 1 << 21
UPDATES_PER_POOL = 64
ALIGNMENT = 16  # elements; keeps every stretch on a vector boundary


class MaskPool:
    """Source of dropout masks for one model. Call ``start_update`` before each training update."""

    def __init__(self, *, elements: int = POOL_ELEMENTS) -> None:
        self.elements = elements
        self._drawn: tuple[int, int] | None = None
        self._uniform = torch.empty(0)
        self._masks: dict[tuple[float, torch.dtype, torch.device], Tensor] = {}
        self._offsets = torch.Generator()
        self.start_update(0, 0)

    def start_update(self, seed: int, update: int) -> None:
        """Make all masks until the next call a function of ``seed`` and ``update``."""
        drawn = (seed, update // UPDATES_PER_POOL)
        if drawn != self._drawn:
            self._drawn = drawn
            self._masks.clear()
            self._uniform = torch.empty(0)  # drawn on first use: models that do not drop pay nothing
        self._offsets.manual_seed(_mix(seed, update, 1))

    def mask(self, like: Tensor, p: float) -> Tensor:
        """A mask of the shape of ``like``: 0 with probability ``p``, else 1 / (1 - p)."""
        size = like.numel()
        if 2 * size > self.elements:  # too large for a random offset to mean much: draw it
            drawn = torch.rand(size, generator=self._offsets).to(like.device)
            return (drawn >= p).to(like.dtype).div_(1 - p).view(like.shape)
        pool = self._masks.get((p, like.dtype, like.device))
        if pool is None:
            pool = self._masks[p, like.dtype, like.device] = self._draw(p, like)
        slots = (self.elements - size) // ALIGNMENT
        offset = int(torch.randint(slots + 1, (), generator=self._offsets)) * ALIGNMENT
        return pool[offset : offset + size].view(like.shape)

    def _draw(self, p: float, like: Tensor) -> Tensor:
        if not self._uniform.numel():
            assert self._drawn is not None
            generator = torch.Generator().manual_seed(_mix(*self._drawn, 2))
            self._uniform = torch.rand(self.elements, generator=generator)
        return (self._uniform >= p).to(like.dtype).div_(1 - p).to(like.device)


def _mix(seed: int, number: int, stream: int) -> int:
    """One generator seed from three numbers; neighbouring numbers give unrelated seeds (splitmix64 finaliser)."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + stream) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)


class Dropout(nn.Module):
    """Dropout with probability ``p * width / reference_dim`` on ``[..., width]`` (HAT scales dropout with the width).

    ``reference_dim`` of ``None`` leaves ``p`` as it is.
    """

    def __init__(self, p: float, pool: MaskPool, *, reference_dim: int | None = None) -> None:
        super().__init__()
        self.p, self.pool, self.reference_dim = p, pool, reference_dim

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements in training, return the input unchanged otherwise."""
        if not self.training or self.p == 0.0:
            return input
        scale = input.size(-1) / self.reference_dim if self.reference_dim else 1.0
        return input * self.pool.mask(input, self.p * scale)
