"""The recipe and its sections. Every field has its meaning as a string below it: that is the reference for users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fitformer.recipe.costs import Cost
from fitformer.recipe.learning import Model, Supernet, Train
from fitformer.recipe.section import (
    MOST,
    MOST_BEAM,
    MOST_PENALTY,
    MOST_SEED,
    MOST_THREADS,
    Count,
    FolderName,
    Positive,
    Section,
    Share,
    Whole,
)
from fitformer.recipe.text import Data, Prepare, Tokenizer
from fitformer.space import Architecture, SearchSpace

LEAST_SPACE = 5


class Measure(Section):
    """How latency is measured and predicted."""

    architectures: Annotated[int, Field(ge=8, le=MOST)] = 50
    """How many are timed; the smallest and the largest are among them."""
    warmup: Whole = 3
    """Untimed decodings before the timed ones."""
    repeats: Annotated[int, Field(ge=3, le=MOST)] = 20
    """Timed decodings per architecture; a tenth is trimmed at either end."""
    batch_size: Count = 1
    """Sentences decoded together."""
    beam: Annotated[int, Field(ge=1, le=MOST_BEAM)] = 1
    """1 = greedy."""
    source_length: Count | None = None
    """Tokens; the corpus's own median unless given."""
    target_length: Count | None = None
    """Tokens; the corpus's own median unless given."""
    reference_every: Annotated[int, Field(ge=1, le=5)] = 3
    """The fixed reference model is timed again after so many architectures."""
    drift_tolerance: Positive = 0.05
    """A block is repeated when the reference moved by more than this share."""


class Search(Section):
    """HAT's evolutionary search."""

    population_size: Annotated[int, Field(ge=2, le=MOST)] = 125
    """Architectures per generation: parents, mutations and crossovers together."""
    num_parents: Annotated[int, Field(ge=2, le=MOST)] = 25
    """Best architectures that live on and have children."""
    num_mutations: Whole = 50
    """Children that are mutated copies of a parent."""
    mutation_prob: Annotated[float, Field(gt=0.0, le=1.0)] = 0.3
    """Probability with which each choice of a mutant is drawn anew."""
    num_crossovers: Whole = 50
    """Children that take each choice from one of two parents."""
    num_generations: Count = 30
    """Generations, the first random one included."""
    finalists: Count = 5
    """Best candidates measured for real before one is chosen."""
    margin: Share = 0.03
    """Share of the limit kept free, so that the bundle keeps the limit on another day, too."""
    patience: Count | None = None
    """Stop after so many generations without a better architecture."""
    valid_sentences: Count | None = None
    """Sentences of the validation set that fitness is computed on; all unless given."""

    @model_validator(mode="after")
    def _parts_make_a_population(self) -> Search:
        parts = self.num_parents + self.num_mutations + self.num_crossovers
        if parts != self.population_size:
            raise ValueError(
                f"population_size: {self.population_size} must be num_parents + num_mutations + num_crossovers "
                f"({parts})"
            )
        return self


class Compress(Section):
    """8-bit weights, kept only if they pay."""

    int8: bool = True
    """Try 8-bit weights at all."""
    allowed_bleu_loss: Annotated[float, Field(ge=0.0)] = 0.3
    """BLEU points on the validation set that 8-bit weights may cost."""


class Export(Section):
    """The bundle's own defaults for translating, and its checks."""

    beam: Annotated[int, Field(ge=1, le=MOST_BEAM)] = 4
    """Hypotheses kept per sentence; 1 = greedy."""
    length_penalty: Annotated[float, Field(ge=-MOST_PENALTY, le=MOST_PENALTY)] = 1.0
    """Exponent of the length by which a hypothesis' log-probability is divided."""
    no_repeat_ngram: Whole = 0
    """No sequence of so many tokens occurs twice in an output; 0 = no such rule."""
    max_length_ratio: Annotated[float, Field(ge=0.0)] = 2.0
    """Longest output: this times the source tokens, plus ``max_length_offset``; 0 = the offset alone."""
    max_length_offset: Whole = 10
    """See ``max_length_ratio``."""
    check_sentences: Count = 200
    """Validation sentences that must decode to the same tokens in PyTorch and in the bundle."""

    @model_validator(mode="after")
    def _an_output_may_have_tokens(self) -> Export:
        if not self.max_length_ratio and not self.max_length_offset:
            raise ValueError("max_length_offset: 0 with max_length_ratio 0 leaves no output; raise one of them")
        return self


class Device(Section):
    """A machine that runs the bundle; ``cpu`` is this one."""

    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1
    """Processor threads of the bundle."""
    predictor: Path | None = None
    """A latency predictor made elsewhere, for a device that is not at hand: nothing is measured, search trusts it."""


class Target(Section):
    """A device with its limit: ``12ms``, or ``50%`` of the latency of the space's largest architecture."""

    device: str = "cpu"
    """A name under ``devices``."""
    latency: str
    """The limit per sentence."""

    @field_validator("latency", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        text = f"{value}ms" if isinstance(value, int | float) else str(value).replace(" ", "")
        if not re.fullmatch(r"\d+(\.\d+)?(ms|%)", text) or float(text.rstrip("ms%")) <= 0:
            raise ValueError(f"'{value}' must be a time such as '12ms' or a share of the largest such as '50%'")
        return text

    @property
    def name(self) -> str:
        """``cpu@12ms``: the folder's name, too."""
        return f"{self.device}@{self.latency}"

    def limit_ms(self, largest_ms: float) -> float:
        """The limit in milliseconds, given the latency of the largest architecture."""
        if self.latency.endswith("%"):
            return float(self.latency[:-1]) / 100 * largest_ms
        return float(self.latency[:-2])


class Recipe(Section):
    """The whole recipe."""

    name: FolderName
    """Names the run folder."""
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 1
    """All that is random follows from it."""
    data: Data
    prepare: Prepare = Prepare()
    model: Model = Model()
    space: str | dict[str, Any] | None = None
    """A preset's name or a mapping of choices."""
    architecture: str | dict[str, Any] | None = None
    """A fixed architecture instead of a space: supernet, measure and search are skipped."""
    bundle: Path | None = None
    """A bundle whose model learns on from new text (fine-tuning): architecture, subwords and weights are its own."""
    devices: dict[FolderName, Device] = Field(default={"cpu": Device()})
    """The machines to fit to."""
    targets: tuple[Target, ...] = ()
    """Devices with their limits; each ends in a bundle of its own."""
    supernet: Supernet = Supernet()
    measure: Measure = Measure()
    search: Search = Search()
    train: Train = Train()
    compress: Compress = Compress()
    export: Export = Export()
    cost: Cost = Cost()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if [self.space, self.architecture, self.bundle].count(None) != 2:
            raise ValueError(
                "give either 'space' (to search in) or 'architecture' (to train as it is) or 'bundle' (to train on)"
            )
        for name, section, default in (
            ("model", self.model, Model()),
            ("prepare.tokenizer", self.prepare.tokenizer, Tokenizer()),
        ):
            if self.bundle is not None and section != default:
                raise ValueError(f"{name}: comes from the bundle; leave this section out")
        if self.space is not None and not self.targets:
            raise ValueError("targets: give at least one, for example {device: cpu, latency: 50%}")
        for target in self.targets:
            if target.device not in self.devices:
                raise ValueError(f"targets: device '{target.device}' is not under devices ({', '.join(self.devices)})")
            if self.space is None and target.latency.endswith("%"):
                raise ValueError(
                    f"targets: '{target.latency}' is a share of the space's largest architecture, and this recipe has "
                    "no space; give a time such as '12ms'"
                )
        names = [target.name for target in self.targets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"targets: {name} is given {names.count(name)} times")
        longest = 2 * self.prepare.max_tokens  # what the model has positions for
        for side in ("source_length", "target_length"):
            length = getattr(self.measure, side)
            if length is not None and length > longest:
                raise ValueError(
                    f"measure.{side}: {length} is more than the model can hold, {longest} (twice prepare.max_tokens)"
                )
        space = self.search_space()  # both raise what is wrong with them
        self.fixed_architecture()
        if space is not None and space.size() < LEAST_SPACE:
            raise ValueError(
                f"space: holds {space.size()} architectures, and latencies are learned from at least {LEAST_SPACE}; "
                "add choices, or give one 'architecture' instead"
            )
        return self

    def search_space(self) -> SearchSpace | None:
        """The space, or ``None`` for a fixed architecture."""
        if self.space is None:
            return None
        return SearchSpace.preset(self.space) if isinstance(self.space, str) else SearchSpace.from_dict(self.space)

    def fixed_architecture(self) -> Architecture | None:
        """The given architecture, or ``None``."""
        if self.architecture is None:
            return None
        if isinstance(self.architecture, str):
            return Architecture.from_text(self.architecture)
        return Architecture.from_dict(self.architecture)
