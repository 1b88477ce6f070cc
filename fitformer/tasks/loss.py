"""Label-smoothed cross-entropy, of labels or distilled from a teacher, fused with the output projection.

The vocabulary-sized logits are the largest tensors of a small model. Here they exist only for a few rows at a time:
each chunk of logits becomes its own gradient in place, is multiplied into the two gradients that are wanted, and is
forgotten. Letters: N positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 20  # logits at a time, about what a second-level cache holds


class Predictions(NamedTuple):
    """What a model predicts for the target positions of a batch, unprojected: the logits are hidden @ weight^T."""

    hidden: Tensor  # [N, D]
    weight: Tensor  # [V, D]


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes both gradients in the forward pass, while a chunk of logits is at hand."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        teacher: Predictions | None,
        share: float,
    ) -> tuple[Tensor, Tensor]:
        wants_gradient = any(ctx.needs_input_grad[:2])
        rows = max(16, CHUNK_ELEMENTS // weight.size(0))
        inputs, matrix = hidden.detach().to(dtype), weight.detach().to(dtype).contiguous()
        smoothed = nll = torch.zeros((), device=hidden.device)
        grad_hidden, grad_weight = [], torch.zeros_like(matrix, memory_format=torch.contiguous_format)
        # The weight of the right word, that of all words together, and that of the teacher's distribution: their sum
        # is 1, so the gradient of the logits is softmax - target distribution.
        right, spread = (1 - share) * (1 - smoothing), (1 - share) * smoothing
        soft_targets = _soft_targets(teacher, rows, dtype) if teacher is not None else repeat(None)
        for chunk, truth, soft in zip(inputs.split(rows), target[:, None].split(rows), soft_targets, strict=False):
            log_probs = torch.log_softmax((chunk @ matrix.t()).float(), 1)
            chunk_nll = -log_probs.gather(1, truth).sum()
            nll = nll + chunk_nll
            smoothed = smoothed + right * chunk_nll - spread * log_probs.mean(1).sum()
            if soft is not None:
                smoothed = smoothed - share * torch.vdot(soft.flatten(), log_probs.flatten())
            if wants_gradient:
                gradient = log_probs.exp_().sub_(spread / weight.size(0))
                gradient.scatter_add_(1, truth, gradient.new_full(truth.shape, -right))
                if soft is not None:
                    gradient.sub_(soft, alpha=share)
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
        return grad_hidden.float() * grad_smoothed, grad_weight.float() * grad_smoothed, *(None,) * 5


def _soft_targets(teacher: Predictions, rows: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """The teacher's distributions, ``rows`` positions at a time."""
    matrix = teacher.weight.detach().to(dtype).contiguous()
    for chunk in teacher.hidden.detach().to(dtype).split(rows):
        yield torch.softmax((chunk @ matrix.t()).float(), 1)


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
        return apply(hidden, weight, target, smoothing, dtype, None, 0.0)


def distilled_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    teacher: Predictions,
    *,
    share: float,
    smoothing: float,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Like ``projected_cross_entropy``, with ``share`` of the loss taken against the teacher's distribution.

    loss = (1 - share) * (label-smoothed loss) + share * sum over v of -p_teacher(v) log p(v), summed over positions
    (Hinton et al. 2015 at temperature 1; the teacher's entropy, which has no gradient, is not subtracted). The teacher
    has the same vocabulary and as many positions, any width, and gets no gradient. Its distributions, too, exist only
    for a few rows at a time. The second result is the negative log-likelihood of the labels, as there.
    """
    assert teacher.hidden.size(0) == hidden.size(0) and teacher.weight.size(0) == weight.size(0)
    apply: Callable[..., tuple[Tensor, Tensor]] = _ProjectedCrossEntropy.apply
    with torch.autocast(hidden.device.type, enabled=False):
        return apply(hidden, weight, target, smoothing, dtype, teacher, share)
