"""Recipe sections about learning: what all models share, and how the SuperTransformer and the found model train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fitformer.recipe.section import MOST_BEAM, MOST_OFFSET, MOST_THREADS, Count, Positive, Section, Share, Whole


class Model(Section):
    """What is the same for every architecture."""

    pre_norm: bool = True
    """Normalise before each sublayer (trains more easily) instead of after it (HAT)."""
    share_embeddings: Literal["all", "decoder", "none"] | None = None
    """Which tables are one; by default ``all`` with a joint vocabulary, else ``decoder`` (target and output)."""
    start: Literal["bos", "eos"] = "bos"
    """What the decoder starts from: begin or end of sentence (fairseq, and so models imported from HAT)."""
    position_offset: Annotated[int, Field(ge=0, le=MOST_OFFSET)] = 0
    """Row of the sinusoid table that the first token has; 2 in models imported from HAT."""
    norm_every_memory: bool = True
    """With ``pre_norm``: normalise every encoder output attended to; HAT does so with the last layer's only."""


class Training(Section):
    """How a model is trained; the same loop serves the SuperTransformer and single models."""

    updates: Count = 5000
    """Optimizer steps."""
    batch_tokens: Count = 1024
    """Padded tokens of the longer side per batch. Small batches learn most per second on a CPU."""
    accumulate: Count = 1
    """Batches per update."""
    learning_rate: Positive = 2.0e-3
    """The highest rate, reached after the warm-up."""
    warmup: Whole = 400
    """Updates in which the rate rises linearly."""
    initial_learning_rate: Annotated[float, Field(ge=0.0)] = 0.0
    """Where the warm-up starts; 1e-7 in HAT."""
    schedule: Literal["cosine", "inverse_sqrt", "linear", "constant"] = "cosine"
    """How the rate falls after the warm-up."""
    final_learning_rate: Annotated[float, Field(ge=0.0)] = 1.0e-6
    """Where the cosine and linear schedules end."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    """Adam's decay of the gradient's mean and square."""
    epsilon: Positive = 1.0e-8
    """Adam's guard against division by zero."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled."""
    clip_norm: Annotated[float, Field(ge=0.0)] = 1.0
    """Largest norm of the whole gradient; 0 = never clipped."""
    dropout: Share = 0.1
    """At the SuperTransformer's width; narrower models drop less in proportion."""
    attention_dropout: Share = 0.0
    """On attention weights, not scaled with the width; above 0 it costs the fused kernel on a CPU."""
    label_smoothing: Share = 0.1
    """Share of the probability spread over the whole vocabulary."""
    validate_every: Count = 500
    """Updates between two validations."""
    average_last: Count = 1
    """Weights averaged at the end: snapshots of the last validations."""
    patience: Whole = 0
    """Stop after so many validations without a better loss; 0 = never."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bfloat16 products where the processor has them, else float32."""
    threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Per process; 0 = all processors, shared among the processes of ``accelerate launch``."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it trains; ``auto``: on the GPU if there is one. Latency is measured on the target's processor anyway."""

    @model_validator(mode="after")
    def _warm_up_rises(self) -> Self:
        if self.initial_learning_rate > self.learning_rate:
            raise ValueError(
                f"initial_learning_rate: {self.initial_learning_rate} must not exceed learning_rate "
                f"({self.learning_rate}), which the warm-up rises to"
            )
        return self


class Supernet(Training):
    """Training of the SuperTransformer: which architectures of the space learn at an update, and from what."""

    sampling: Literal["uniform", "sandwich"] = "uniform"
    """``uniform``: one random architecture per update (HAT); ``sandwich``: largest, smallest and random ones on it."""
    random_architectures: Whole = 1
    """Random ones per update beside the largest and the smallest (``sandwich``)."""
    distillation: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the others' loss against the largest's predictions instead of the labels (``sandwich``)."""
    largest_first: Whole = 0
    """Updates at the beginning in which only the largest architecture learns."""
    importance_sorting: bool = False
    """After ``largest_first``, put the most important channels and heads where every slice keeps them."""

    @model_validator(mode="after")
    def _phases_fit(self) -> Supernet:
        if self.importance_sorting and not self.largest_first:
            raise ValueError(
                "importance_sorting: needs largest_first, the updates after which it is known what is important "
                "(a fifth of updates is a good start)"
            )
        if self.largest_first >= self.updates:
            raise ValueError(f"largest_first: {self.largest_first} must be less than updates ({self.updates})")
        if self.largest_first and self.patience:
            raise ValueError(
                f"patience: {self.patience} must be 0 with largest_first: the other architectures get worse meanwhile"
            )
        return self


class Train(Training):
    """Training of the found (or given) architecture."""

    start: Literal["inherited", "scratch"] = "inherited"
    """From the SuperTransformer's weights (or those of the recipe's ``bundle``), or from new ones."""
    teacher: Path | None = None
    """A bundle, or the folder of a Hugging Face sequence-to-sequence model, whose translations the model learns."""
    teacher_targets: Literal["replace", "beside"] = "replace"
    """The teacher's translations instead of the text's own (Kim & Rush 2016), or each source with both."""
    teacher_beam: Annotated[int, Field(ge=1, le=MOST_BEAM)] = 5
    """Hypotheses the teacher keeps per line; 1 = greedy, which is several times faster."""
    teacher_batch: Count = 32
    """Lines the teacher translates together."""
    teacher_prefix: str = ""
    """Written before every line, for teachers that want it: ``translate English to German: `` (T5), ``>>deu<< ``."""
    teacher_languages: tuple[str, str] | None = None
    """Source and target as a multilingual Hugging Face teacher calls them, such as ``[eng_Latn, deu_Latn]``."""
