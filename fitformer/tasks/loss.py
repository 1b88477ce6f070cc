"""Label-smoothed cross-entropy fused with the output projection.

The vocabulary-sized logits are the largest tensors of a small model. Here they exist only for a few rows at a time:
each chunk of logits becomes its own gradient in place, is multiplied into the two gradients that are wanted, and is
forgotten. Letters: N positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 20  # logits at a time, about what a second-level cache holds


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes both gradients in the forward pass, while a chunk of logits is at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        wants_gradient = any(ctx.needs_input_grad[:2])
        rows = max(16, CHUNK_ELEMENTS // weight.size(0))
        inputs, matrix = hidden.detach().to(dtype), weight.detach().to(dtype).contiguous()
        smoothed = nll = torch.zeros((), device=hidden.device)
        grad_hidden, grad_weight = [], torch.zeros_like(matrix, memory_format=torch.contiguous_format)
        for chunk, truth in zip(inputs.split(rows), target[:, None].split(rows), strict=True):
            log_probs = torch.log_softmax((chunk @ matrix.t()).float(), 1)
            chunk_nll = -log_probs.gather(1, truth).sum()
            nll = nll + chunk_nll
            smoothed = smoothed + (1 - smoothing) * chunk_nll - smoothing * log_probs.mean(1).sum()
            if wants_gradient:
                gradient = log_probs.exp_().sub_(smoothing / weight.size(0))
                gradient.scatter_add_(1, truth, gradient.new_full(truth.shape, smoothing - 1))
                gradient = gradient.to(dtype)
                grad_hidden.append(gradient @ matrix)
                grad_weight.addmm_(gradient.t(), chunk)
        if wants_gradient:
            ctx.save_for_backward(torch.cat(grad_hidden), grad_weight)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad_smoothed: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden.float() * grad_smoothed, grad_weight.float() * grad_smoothed, None, None, None


def projected_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, *, smoothing: float, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return the summed label-smoothed loss and the summed negative log-likelihood, in nats.

    loss = (1 - e) * nll + e / V * sum over v of -log p(v), as HAT and fairseq smooth (over all V words, the right one
    included). ``hidden [N, D]``, output ``weight [V, D]``, ``target [N]`` without padding. The matrix products run
    in ``dtype``, softmax and sums in float32. Only the first result has a gradient.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _ProjectedCrossEntropy.apply
    with torch.autocast(hidden.device.type, enabled=False):
        return apply(hidden, weight, target, smoothing, dtype)
