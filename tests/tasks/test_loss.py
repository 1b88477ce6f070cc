"""The fused label-smoothed loss against torch.nn.functional.cross_entropy, value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fitformer.tasks import loss as loss_module
from fitformer.tasks.loss import Predictions, distilled_cross_entropy, projected_cross_entropy

Result = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(rows: int, width: int, vocab: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator) * 2 / width**0.5
    return hidden, weight, torch.randint(vocab, (rows,), generator=generator)


def ours(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, dtype: torch.dtype) -> Result:
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss, nll = projected_cross_entropy(hidden, weight, target, smoothing=smoothing, dtype=dtype)
    (loss / 7).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return loss.detach(), nll, hidden.grad, weight.grad


def reference(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Result:
    """In float64."""
    hidden, weight = hidden.double().requires_grad_(), weight.double().requires_grad_()
    logits = hidden @ weight.t()
    loss = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    (loss / 7).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return loss.detach(), F.cross_entropy(logits.detach(), target, reduction="sum"), hidden.grad, weight.grad


def assert_same(actual: Result, expected: Result, *, rtol: float, atol: float) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=rtol, atol=atol)


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 24),
    st.integers(2, 60),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(1, 3000),
    st.integers(0, 99),
)
def test_loss_and_gradients_equal_cross_entropy_however_the_logits_are_cut(
    rows: int, width: int, vocab: int, smoothing: float, chunk: int, seed: int
) -> None:
    arguments = inputs(rows, width, vocab, seed=seed)
    before = loss_module.CHUNK_ELEMENTS
    try:
        loss_module.CHUNK_ELEMENTS = chunk
        actual = ours(*arguments, smoothing, torch.float32)
    finally:
        loss_module.CHUNK_ELEMENTS = before
    assert_same(actual, reference(*arguments, smoothing), rtol=2e-5, atol=2e-5)


def test_it_equals_cross_entropy_at_the_size_of_a_real_batch() -> None:
    """A thousand positions of a vocabulary of 8,000 are cut into eight chunks."""
    arguments = inputs(1000, 64, 8000)
    assert_same(ours(*arguments, 0.1, torch.float32), reference(*arguments, 0.1), rtol=1e-4, atol=1e-4)


def test_bfloat16_products_stay_within_their_precision() -> None:
    arguments = inputs(300, 64, 500)
    actual, expected = ours(*arguments, 0.1, torch.bfloat16), reference(*arguments, 0.1)
    for mine, theirs, tolerance in zip(actual, expected, (2e-3, 2e-3, 2e-2, 2e-2), strict=True):
        assert mine.dtype == torch.float32
        error = (mine.double() - theirs).norm() / theirs.norm()
        assert error.item() <= tolerance


def test_a_bfloat16_hidden_state_gets_a_gradient_of_its_own_format() -> None:
    hidden, weight, target = inputs(20, 8, 30)
    low = hidden.bfloat16().requires_grad_()
    loss, _ = projected_cross_entropy(low, weight, target, smoothing=0.1, dtype=torch.bfloat16)
    loss.backward()
    assert low.grad is not None
    assert low.grad.dtype == torch.bfloat16
    expected = reference(hidden, weight, target, 0.1)[2] * 7
    assert ((low.grad.double() - expected).norm() / expected.norm()).item() <= 3e-2


def test_autocast_around_it_changes_nothing() -> None:
    arguments = inputs(20, 8, 30)
    expected = ours(*arguments, 0.1, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = ours(*arguments, 0.1, torch.float32)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(actual, expected, strict=True))


def test_a_slice_of_a_wider_table_gets_its_gradient_in_place() -> None:
    hidden, table, target = inputs(20, 12, 30)
    table.requires_grad_()
    loss, _ = projected_cross_entropy(hidden[:, :8], table[:, :8], target, smoothing=0.1)
    loss.backward()
    expected = reference(hidden[:, :8], table.detach()[:, :8], target, 0.1)[3] * 7
    assert table.grad is not None
    torch.testing.assert_close(table.grad[:, :8].double(), expected, rtol=1e-4, atol=1e-5)
    assert not table.grad[:, 8:].any()


def test_very_large_logits_give_a_finite_loss() -> None:
    hidden, weight, target = inputs(20, 8, 30)
    actual = ours(hidden * 1e4, weight, target, 0.1, torch.float32)
    assert all(torch.isfinite(value).all() for value in actual)
    assert actual[0].double().item() == pytest.approx(reference(hidden * 1e4, weight, target, 0.1)[0].item(), rel=1e-5)


def test_nothing_is_kept_for_a_gradient_that_is_not_wanted() -> None:
    with torch.no_grad():
        loss, nll = projected_cross_entropy(*inputs(20, 8, 30), smoothing=0.1)
    assert not loss.requires_grad
    assert not nll.requires_grad


def test_the_negative_log_likelihood_has_no_gradient() -> None:
    hidden, weight, target = inputs(20, 8, 30)
    loss, nll = projected_cross_entropy(hidden.requires_grad_(), weight, target, smoothing=0.1)
    assert loss.requires_grad
    assert not nll.requires_grad


def test_smoothing_spreads_over_all_words_the_right_one_included() -> None:
    """HAT's and fairseq's rule: (1 - e) nll + e / V sum over all V, not e / (V - 1) over the others."""
    logits = torch.tensor([[2.0, 0.5, -1.0]])
    log_probs = logits.log_softmax(1)[0]
    loss, nll = projected_cross_entropy(logits, torch.eye(3), torch.tensor([1]), smoothing=0.3)
    assert nll.item() == pytest.approx(-log_probs[1].item())
    assert loss.item() == pytest.approx(-0.7 * log_probs[1].item() - 0.1 * log_probs.sum().item())


def distilled(
    hidden: Tensor, weight: Tensor, target: Tensor, teacher: Predictions, share: float, dtype: torch.dtype
) -> Result:
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss, nll = distilled_cross_entropy(hidden, weight, target, teacher, share=share, smoothing=0.1, dtype=dtype)
    (loss / 7).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return loss.detach(), nll, hidden.grad, weight.grad


def distilled_reference(hidden: Tensor, weight: Tensor, target: Tensor, teacher: Predictions, share: float) -> Result:
    """In float64, by autograd."""
    hidden, weight = hidden.double().requires_grad_(), weight.double().requires_grad_()
    logits = hidden @ weight.t()
    soft = (teacher.hidden.double() @ teacher.weight.double().t()).softmax(1)
    labels = F.cross_entropy(logits, target, reduction="sum", label_smoothing=0.1)
    loss = (1 - share) * labels + share * F.cross_entropy(logits, soft, reduction="sum")
    (loss / 7).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return loss.detach(), F.cross_entropy(logits.detach(), target, reduction="sum"), hidden.grad, weight.grad


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(2, 60),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(1, 3000),
    st.integers(0, 99),
)
def test_distilled_loss_and_gradients_equal_autograd_however_the_logits_are_cut(
    rows: int, width: int, teacher_width: int, vocab: int, share: float, chunk: int, seed: int
) -> None:
    arguments = inputs(rows, width, vocab, seed=seed)
    teacher = Predictions(*inputs(rows, teacher_width, vocab, seed=seed + 100)[:2])
    before = loss_module.CHUNK_ELEMENTS
    try:
        loss_module.CHUNK_ELEMENTS = chunk
        actual = distilled(*arguments, teacher, share, torch.float32)
    finally:
        loss_module.CHUNK_ELEMENTS = before
    assert_same(actual, distilled_reference(*arguments, teacher, share), rtol=5e-5, atol=5e-5)


def test_distilled_bfloat16_products_stay_within_their_precision() -> None:
    arguments, teacher = inputs(300, 64, 500), Predictions(*inputs(300, 96, 500, seed=1)[:2])
    actual = distilled(*arguments, teacher, 0.5, torch.bfloat16)
    expected = distilled_reference(*arguments, teacher, 0.5)
    for mine, theirs, tolerance in zip(actual, expected, (2e-3, 2e-3, 2e-2, 2e-2), strict=True):
        assert mine.dtype == torch.float32
        assert ((mine.double() - theirs).norm() / theirs.norm()).item() <= tolerance


def test_without_a_share_for_the_teacher_the_loss_is_the_plain_one() -> None:
    arguments, teacher = inputs(40, 16, 50), Predictions(*inputs(40, 8, 50, seed=1)[:2])
    actual, expected = distilled(*arguments, teacher, 0.0, torch.float32), ours(*arguments, 0.1, torch.float32)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(actual, expected, strict=True))


def test_a_model_that_already_predicts_what_its_teacher_does_has_no_gradient() -> None:
    hidden, weight, target = inputs(30, 12, 40)
    result = distilled(hidden, weight, target, Predictions(hidden, weight), 1.0, torch.float32)
    for gradient in result[2:]:
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


def test_the_teacher_gets_no_gradient() -> None:
    hidden, weight, target = inputs(20, 8, 30)
    teacher = Predictions(*(value.requires_grad_() for value in inputs(20, 8, 30, seed=1)[:2]))
    loss, _ = distilled_cross_entropy(hidden.requires_grad_(), weight, target, teacher, share=0.5, smoothing=0.1)
    loss.backward()
    assert hidden.grad is not None
    assert teacher.hidden.grad is None
    assert teacher.weight.grad is None
