"""A PyTorch ``Transformer`` as the runtime's ``StepModel``, so that the same search code decodes both engines."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fitformer.models.transformer import DecodeState, Transformer
from fitformer.runtime.decoding import Floats, Ids


class TorchStepModel:
    """``StepModel`` of a plain model, which is put into evaluation mode."""

    def __init__(self, model: Transformer) -> None:
        self.model = model.eval()
        self.start_id = model.config.start_id

    @torch.no_grad()
    def encode(self, source: Ids) -> DecodeState:
        """Run the encoder on ``source`` [B, S]; see ``StepModel``."""
        return self.model.encode(torch.from_numpy(np.ascontiguousarray(source)))

    @torch.no_grad()
    def step(self, state: DecodeState, tokens: Ids, position: int) -> tuple[Floats, DecodeState]:
        """Run the decoder on one more token per row; see ``StepModel``."""
        hidden, state = self.model.decode(torch.from_numpy(np.ascontiguousarray(tokens))[:, None], state)
        logits: Floats = (hidden[:, -1] @ self.model.output_weight().t()).numpy()
        return logits, state

    def reorder(self, state: DecodeState, rows: Ids) -> DecodeState:
        """Take batch rows of every tensor; see ``StepModel``."""
        index = torch.from_numpy(np.ascontiguousarray(rows))

        def take(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return pair[0][index], pair[1][index]

        return DecodeState(
            cross=[take(pair) for pair in state.cross],
            masks=[None if mask is None else mask[index] for mask in state.masks],
            past=[None if pair is None else take(pair) for pair in state.past],
        )
