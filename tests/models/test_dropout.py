"""Dropout from a pool of masks: the right share, independent enough, and a function of seed and update alone.

Everything is seeded, so the bounds of five standard deviations hold or fail the same way every time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fitformer.models import SuperTransformer, Transformer
from fitformer.models.dropout import ALIGNMENT, POOL_ELEMENTS, UPDATES_PER_POOL, Dropout, MaskPool
from fitformer.space import Architecture

FROM_POOL = torch.empty(64, 2048)
TOO_LARGE = torch.empty(POOL_ELEMENTS // 2 + 64, 1)
SMALL = torch.empty(4, 5)


def masks(pool: MaskPool, like: Tensor, p: float, count: int) -> Tensor:
    return torch.stack([pool.mask(like, p).flatten() for _ in range(count)])


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("like", [FROM_POOL, TOO_LARGE], ids=["from the pool", "drawn"])
def test_each_element_is_kept_with_probability_one_minus_p_and_scaled_to_mean_one(p: float, like: Tensor) -> None:
    pool, size = MaskPool(), like.numel()
    pool.start_update(1, 1)
    for _ in range(3):
        mask = pool.mask(like, p)
        assert mask.shape == like.shape
        dropped = int((mask == 0).sum())
        assert abs(dropped - size * p) <= 5 * (size * p * (1 - p)) ** 0.5
        torch.testing.assert_close(mask[mask != 0].unique(), torch.tensor([1 / (1 - p)]))
        assert mask.double().mean().item() == pytest.approx(1, abs=5 * (p / (1 - p) / size) ** 0.5)


def test_every_place_is_kept_equally_often() -> None:
    """Over many masks the share kept at each place is binomial: the sum of squared deviations is chi-squared."""
    pool, p, count = MaskPool(), 0.3, 400
    pool.start_update(2, 5)
    kept = (masks(pool, torch.empty(8192), p, count) != 0).double().sum(0)
    chi_squared = float(((kept - count * (1 - p)) ** 2 / (count * p * (1 - p))).sum())
    assert abs(chi_squared - 8192) <= 5 * (2 * 8192) ** 0.5


def test_masks_of_different_calls_updates_and_seeds_are_uncorrelated() -> None:
    pool, drawn = MaskPool(), []
    for seed, update in ((1, 1), (1, 2), (1, UPDATES_PER_POOL), (2, 1), (2, UPDATES_PER_POOL + 1)):
        pool.start_update(seed, update)
        drawn.append(masks(pool, FROM_POOL, 0.3, 6))
    together = torch.cat(drawn).double()
    correlations = torch.corrcoef(together)
    correlations.fill_diagonal_(0)
    assert correlations.abs().max().item() <= 5 / FROM_POOL.numel() ** 0.5


def test_rows_of_one_mask_are_uncorrelated() -> None:
    pool = MaskPool()
    pool.start_update(1, 1)
    correlations = torch.corrcoef(pool.mask(FROM_POOL, 0.3).double())
    correlations.fill_diagonal_(0)
    assert correlations.abs().max().item() <= 5.5 / FROM_POOL.size(1) ** 0.5  # 2016 pairs


def test_stretches_begin_all_over_the_pool() -> None:
    """Offsets are multiples of the alignment from the first to the last that fits, each about as often."""
    pool = MaskPool(elements=16 * ALIGNMENT)
    pool.start_update(1, 1)
    pool.mask(torch.empty(ALIGNMENT), 0.5)
    begins = [pool.mask(torch.empty(ALIGNMENT), 0.5).storage_offset() // ALIGNMENT for _ in range(1600)]
    counts = torch.bincount(torch.tensor(begins), minlength=16)
    assert len(counts) == 16
    assert (counts - 100).abs().max().item() <= 5 * 100**0.5


@pytest.mark.parametrize("like", [SMALL, FROM_POOL, TOO_LARGE], ids=["small", "from the pool", "drawn"])
def test_masks_are_a_function_of_seed_and_update_alone(like: Tensor) -> None:
    fresh, used = MaskPool(), MaskPool()
    for update in (1, 2, UPDATES_PER_POOL - 1, UPDATES_PER_POOL, 1000):
        for seed in (0, 1, 7):
            # Other updates, other probabilities and other shapes were asked for before.
            used.start_update(seed + 1, update + 3)
            used.mask(FROM_POOL, 0.2)
            used.start_update(seed, update)
            fresh = MaskPool()
            fresh.start_update(seed, update)
            for p in (0.1, 0.25):
                assert torch.equal(fresh.mask(like, p), used.mask(like, p))


def test_the_pool_is_drawn_anew_now_and_then() -> None:
    """A pool of two stretches has two masks for some updates, and two others after that."""
    pool, seen = MaskPool(elements=2 * ALIGNMENT), []
    for update in range(3 * UPDATES_PER_POOL):
        pool.start_update(1, update)
        seen.append(tuple(pool.mask(torch.empty(ALIGNMENT), 0.5).tolist()))
    per_pool = [set(seen[begin : begin + UPDATES_PER_POOL]) for begin in range(0, len(seen), UPDATES_PER_POOL)]
    assert [len(masks) for masks in per_pool] == [2, 2, 2]
    assert len(set(seen)) == 6


def test_updates_and_seeds_have_masks_of_their_own() -> None:
    pool, seen = MaskPool(), []
    for seed in (0, 1, 2**31):
        for update in range(3):
            pool.start_update(seed, update)
            seen.append(pool.mask(torch.empty(256), 0.5).clone())
    assert len({tuple(mask.tolist()) for mask in seen}) == len(seen)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    pool = MaskPool()
    pool.start_update(1, 1)
    pool.mask(FROM_POOL, 0.3)
    pool.mask(TOO_LARGE, 0.3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mask_has_the_number_format_of_its_input() -> None:
    pool = MaskPool()
    assert pool.mask(torch.empty(8, dtype=torch.bfloat16), 0.5).dtype == torch.bfloat16
    assert pool.mask(torch.empty(8), 0.5).dtype == torch.float32


@pytest.mark.parametrize(("width", "reference", "expected"), [(640, 640, 0.3), (512, 640, 0.24), (512, None, 0.3)])
def test_the_probability_scales_with_the_width(width: int, reference: int | None, expected: float) -> None:
    """HAT: 0.3 at a width of 640 is 0.24 at 512; attention weights, which have no width, are not scaled."""
    dropout = Dropout(0.3, MaskPool(), reference_dim=reference).train()
    dropped = dropout(torch.ones(200, width)) == 0
    size = dropped.numel()
    assert abs(int(dropped.sum()) - size * expected) <= 5 * (size * expected * (1 - expected)) ** 0.5


def test_nothing_is_dropped_in_evaluation_or_at_zero() -> None:
    x = torch.ones(4, 8)
    assert Dropout(0.5, MaskPool()).eval()(x) is x
    assert Dropout(0.0, MaskPool()).train()(x) is x


def test_the_gradient_passes_where_the_value_passed() -> None:
    x = torch.ones(32, 32, requires_grad=True)
    output = Dropout(0.5, MaskPool()).train()(x)
    output.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, output.detach())


def test_a_model_scales_residual_dropout_and_leaves_attention_dropout(
    make_super: Callable[..., SuperTransformer],
) -> None:
    model = make_super(dropout=0.3, attention_dropout=0.1)
    for stack, width in ((model.encoder, 32), (model.decoder, 24)):
        assert (stack.dropout.p, stack.dropout.reference_dim) == (0.3, width)
        for layer in stack.layers:
            assert (layer.dropout.p, layer.dropout.reference_dim) == (0.3, width)
            assert (layer.self_attn.dropout.p, layer.self_attn.dropout.reference_dim) == (0.1, None)
    assert {id(m.pool) for m in model.modules() if isinstance(m, Dropout)} == {id(model.mask_pool)}


def test_a_training_pass_is_a_function_of_seed_and_update(
    make_super: Callable[..., SuperTransformer],
    make_batch: Callable[..., tuple[Tensor, Tensor]],
    draw: Callable[[int], Architecture],
) -> None:
    supernet = make_super(dropout=0.3, attention_dropout=0.2).train()

    def run(model: Transformer, update: int) -> Tensor:
        model.mask_pool.start_update(7, update)
        return model(*make_batch()).detach()

    for number in range(5):
        supernet.set_active(draw(number))
        first, other, again = run(supernet, 1), run(supernet, 2), run(supernet, 1)
        assert torch.equal(first, again)
        assert not torch.allclose(first, other, atol=1e-3)
        extracted = supernet.extract(draw(number))  # the same masks, in the same order
        torch.testing.assert_close(run(extracted, 1), first, rtol=1e-4, atol=1e-5)
