"""The translation task on a prepared corpus: batches, padding, validation loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fitformer.models import SuperTransformer, Transformer, TransformerConfig
from fitformer.space import Architecture, SearchSpace
from fitformer.tasks import TranslationTask, translation
from fitformer.tasks.translation import PairTensors

ARCH = Architecture.from_text("enc 16: 32/16/2 32/16/2 | dec 16: 32/16/2/2@1,0")


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(400, 400, max_positions=300, dropout=0.1, attention_dropout=0.1), ARCH)


@pytest.fixture
def task(prepared: Path) -> TranslationTask:
    return TranslationTask(prepared, batch_tokens=512, seed=3)


def test_loss_equals_cross_entropy_over_the_tokens_that_are_no_padding(
    task: TranslationTask, model: Transformer
) -> None:
    model.eval()
    for indices in task.epoch(0)[:5]:
        batch = task.batch(indices)
        loss = task.loss(model, batch)
        logits = model(batch.source, batch.decoder_input).flatten(0, 1)
        target = batch.target.flatten()
        expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=0.1, ignore_index=0)
        nll = F.cross_entropy(logits, target, reduction="sum", ignore_index=0)
        assert loss.num_tokens == int((target != 0).sum())
        assert loss.smoothed.item() == pytest.approx(expected.item(), rel=1e-5)
        assert loss.nll.item() == pytest.approx(nll.item(), rel=1e-5)


def test_padding_changes_neither_loss_nor_gradients(task: TranslationTask, model: Transformer) -> None:
    model.eval()
    batch = task.batch(task.epoch(0)[0])
    padded = PairTensors(*(F.pad(tensor, (0, 4)) for tensor in batch[:3]), batch.num_tokens)  # type: ignore[arg-type]
    results = []
    for variant in (batch, padded):
        model.zero_grad()
        loss = task.loss(model, variant).smoothed
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for plain, with_padding in zip(*results, strict=True):
        torch.testing.assert_close(with_padding, plain, rtol=1e-4, atol=1e-4)


def test_target_is_the_decoder_input_one_step_later(task: TranslationTask) -> None:
    for indices in task.epoch(1)[:5]:
        batch = task.batch(indices)
        assert (batch.decoder_input[:, 0] == 2).all()
        for given, wanted in zip(batch.decoder_input, batch.target, strict=True):
            length = int((wanted != 0).sum())
            assert wanted[length - 1] == 3
            assert torch.equal(given[1:length], wanted[: length - 1])
            assert not wanted[length:].any()


def test_an_epoch_covers_every_pair_once_and_is_a_function_of_seed_and_number(prepared: Path) -> None:
    task, again = (TranslationTask(prepared, batch_tokens=512, seed=3) for _ in range(2))
    other = TranslationTask(prepared, batch_tokens=512, seed=4)
    for number in (0, 5):
        epoch = task.epoch(number)
        assert sorted(np.concatenate(epoch)) == list(range(len(task.train_batches)))
        assert all((a == b).all() for a, b in zip(epoch, again.epoch(number), strict=True))
        assert [list(batch) for batch in epoch] != [list(batch) for batch in other.epoch(number)]
    assert [list(batch) for batch in task.epoch(0)] != [list(batch) for batch in task.epoch(1)]


def test_validation_loss_does_not_depend_on_the_batch_size(
    prepared: Path, model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    for tokens in (1, 300, 4096):  # a sentence at a time, a few, many
        monkeypatch.setattr(translation, "VALIDATION_TOKENS", tokens)
        losses.append(TranslationTask(prepared, batch_tokens=512).validation_loss(model))
    for loss in losses[1:]:
        assert loss == pytest.approx(losses[0], rel=1e-6)


def test_validation_loss_does_not_depend_on_training_batches_or_their_seed(prepared: Path, model: Transformer) -> None:
    expected = TranslationTask(prepared, batch_tokens=512, seed=1).validation_loss(model)
    assert TranslationTask(prepared, batch_tokens=99, seed=2).validation_loss(model) == expected


def test_validation_drops_nothing_and_leaves_the_mode_and_the_gradients(
    task: TranslationTask, model: Transformer
) -> None:
    for training in (True, False):
        model.train(training)
        assert task.validation_loss(model) == task.validation_loss(model)
        assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_validation_loss_is_the_mean_per_token_in_nats(task: TranslationTask, model: Transformer) -> None:
    with torch.no_grad():
        model.output_weight().zero_()  # uniform over the vocabulary
    assert task.validation_loss(model) == pytest.approx({"loss": np.log(400), "nll": np.log(400)}, rel=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-3)])
def test_validation_loss_of_a_slice_equals_that_of_the_extracted_model(
    prepared: Path, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(1)
    task = TranslationTask(prepared, dtype=dtype)
    space = SearchSpace(
        (24, 16), (16,), (2, 1), (2, 1), (32, 16), (16, 8), (2,), (32, 16), (16, 8), (2,), (2, 1), (1, 2)
    )
    supernet = SuperTransformer(TransformerConfig(400, 400, max_positions=300), space)
    for arch in (space.smallest(), space.largest(), ARCH):
        supernet.set_active(arch)
        expected = task.validation_loss(supernet)
        assert task.validation_loss(supernet.extract(arch)) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("sentences", [1, 7, 49, 50, 51, None])
def test_a_thinned_validation_set_has_the_asked_size_over_all_lengths(prepared: Path, sentences: int | None) -> None:
    task = TranslationTask(prepared, valid_sentences=sentences)
    kept = sum(len(batch.source) for batch in task._valid)
    assert kept == min(sentences or 50, 50)
    lengths = [int((row != 0).sum()) for batch in task._valid for row in batch.target]
    whole = [int((row != 0).sum()) for b in TranslationTask(prepared)._valid for row in b.target]
    if kept > 1:
        assert (min(lengths), max(lengths)) == (min(whole), max(whole))


def test_bfloat16_loss_is_close_to_float32(prepared: Path, model: Transformer) -> None:
    low = TranslationTask(prepared, batch_tokens=512, dtype=torch.bfloat16)
    high = TranslationTask(prepared, batch_tokens=512)
    assert low.validation_loss(model)["nll"] == pytest.approx(high.validation_loss(model)["nll"], rel=1e-2)
    batch = low.batch(low.epoch(0)[0])
    low.loss(model.eval(), batch).smoothed.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    high.loss(model, batch).smoothed.backward()
    for mine, parameter in zip(gradients, model.parameters(), strict=True):
        assert mine.dtype == torch.float32
        assert parameter.grad is not None
        assert ((mine - parameter.grad).norm() / parameter.grad.norm().clamp(min=1e-3)).item() <= 0.1
