"""Translation: batches of sentence pairs, teacher-forced loss, validation loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fitformer.data.arrays import IntArray, TokenArrays
from fitformer.data.batches import BOS, BucketedBatches
from fitformer.models import Transformer
from fitformer.tasks.loss import Predictions, distilled_cross_entropy, projected_cross_entropy

VALIDATION_TOKENS = 4096


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor  # has the gradient
    nll: Tensor
    num_tokens: int


class PairTensors(NamedTuple):
    """A batch on the training device: ids, right-padded with 0."""

    source: Tensor  # [B, S]
    decoder_input: Tensor  # [B, T]
    target: Tensor  # [B, T]
    num_tokens: int


class TranslationTask:
    """The prepared corpus of a run, seen as a stream of batches and a loss.

    Matrix products run in ``dtype``; everything that needs the range or the digits stays in float32. The training
    pairs are those of the folder ``training_pairs`` where it is given.
    """

    def __init__(
        self,
        prepared: Path,
        *,
        batch_tokens: int = 1024,
        seed: int = 1,
        label_smoothing: float = 0.1,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        valid_sentences: int | None = None,
        start_id: int = BOS,
        training_pairs: Path | None = None,
    ) -> None:
        self.label_smoothing, self.device, self.dtype = label_smoothing, device, dtype
        train, valid = (
            BucketedBatches(*_split(folder, split), batch_tokens=tokens, seed=seed, start_id=start_id)
            for folder, split, tokens in (
                (training_pairs or prepared, "train", batch_tokens),
                (prepared, "valid", VALIDATION_TOKENS),
            )
        )
        self.train_batches = train
        self._valid = [self._tensors(valid, indices) for indices in _thinned(valid, valid_sentences)]

    def epoch(self, number: int) -> list[IntArray]:
        """The training batches of an epoch, as sentence indices."""
        return self.train_batches.epoch(number)

    def target_tokens(self, indices: IntArray) -> int:
        """Number of target tokens of a training batch, without reading it."""
        return int(self.train_batches.target.lengths[indices].sum()) + len(indices)  # each side ends with EOS

    def batch(self, indices: IntArray) -> PairTensors:
        """Read one training batch."""
        return self._tensors(self.train_batches, indices)

    def loss(self, model: Transformer, batch: PairTensors) -> Loss:
        """Teacher-forced label-smoothed loss of a batch, padding left out."""
        predicted, target = self.predict(model, batch)
        return self.loss_of(predicted, target)

    def predict(self, model: Transformer, batch: PairTensors) -> tuple[Predictions, Tensor]:
        """Teacher-forced predictions for the target tokens of a batch, padding left out, and those tokens ``[N]``."""
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            hidden = model.features(batch.source, batch.decoder_input)
        hidden, target = hidden.flatten(0, 1), batch.target.flatten()
        if batch.num_tokens < len(target):
            real = target.nonzero().squeeze(1)
            hidden, target = hidden[real], target[real]
        return Predictions(hidden, model.output_weight()), target

    def loss_of(
        self, predicted: Predictions, target: Tensor, *, teacher: Predictions | None = None, share: float = 0.0
    ) -> Loss:
        """Label-smoothed loss of predictions, ``share`` of it against a teacher's instead of the right words."""
        hidden, weight = predicted
        if teacher is None or share == 0.0:
            smoothed, nll = projected_cross_entropy(
                hidden, weight, target, smoothing=self.label_smoothing, dtype=self.dtype
            )
        else:
            smoothed, nll = distilled_cross_entropy(
                hidden, weight, target, teacher, share=share, smoothing=self.label_smoothing, dtype=self.dtype
            )
        return Loss(smoothed, nll, len(target))

    @torch.no_grad()
    def validation_loss(self, model: Transformer) -> dict[str, float]:
        """Mean loss per target token of the validation set, in nats: ``loss`` (label-smoothed) and ``nll``."""
        was_training = model.training
        model.eval()
        losses = [self.loss(model, batch) for batch in self._valid]
        model.train(was_training)
        tokens = sum(loss.num_tokens for loss in losses)
        return {
            "loss": float(sum(float(loss.smoothed) for loss in losses)) / tokens,
            "nll": float(sum(float(loss.nll) for loss in losses)) / tokens,
        }

    def _tensors(self, batches: BucketedBatches, indices: IntArray) -> PairTensors:
        pairs = batches.collate(indices)
        source, decoder_input, target = (
            torch.from_numpy(array).to(self.device) for array in (pairs.source, pairs.decoder_input, pairs.target)
        )
        return PairTensors(source, decoder_input, target, pairs.num_target_tokens)


def _split(prepared: Path, split: str) -> tuple[TokenArrays, TokenArrays]:
    return TokenArrays(prepared / f"{split}.source"), TokenArrays(prepared / f"{split}.target")


def _thinned(batches: BucketedBatches, sentences: int | None) -> Sequence[IntArray]:
    """All batches, or an even selection of about ``sentences`` sentences over all lengths."""
    everything = batches.in_order()
    if sentences is None or sentences >= len(batches):
        return everything
    keep = np.zeros(len(batches), dtype=bool)
    order = np.concatenate(everything)
    keep[order[np.linspace(0, len(order) - 1, sentences).round().astype(int)]] = True
    return [kept for indices in everything if len(kept := indices[keep[indices]])]
