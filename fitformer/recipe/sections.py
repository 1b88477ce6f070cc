"""The sections of a recipe. Every field has its meaning as a string below it: that is the reference for users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fitformer.space import Architecture, SearchSpace

LEAST_SPACE = 5
MOST = 2**31 - 1  # what every library below takes as a whole number
MOST_SEED = 2**63 - 1
MOST_THREADS = 1024
MOST_BEAM = 1000
MOST_PENALTY = 10.0

Count = Annotated[int, Field(ge=1, le=MOST)]
Whole = Annotated[int, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Section(BaseModel):
    """Common behaviour: unknown keys are errors, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Corpus(Section):
    """Text pairs: ``source`` and ``target`` files of parallel lines, or ``files`` that hold both sides."""

    source: tuple[Path, ...] = ()
    """Files of source lines, plain or .gz; one or a list."""
    target: tuple[Path, ...] = ()
    """Files of target lines, in the order of ``source``."""
    files: tuple[Path, ...] = ()
    """Files with both sides: .tsv, .jsonl, .po or .tmx, plain or .gz."""
    source_field: str | None = None
    """Key (JSONL) or column (TSV) of the source."""
    target_field: str | None = None
    """Key (JSONL) or column (TSV) of the target."""

    @field_validator("source", "target", "files", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _one_form(self) -> Corpus:
        if bool(self.files) == bool(self.source or self.target):
            raise ValueError("give either source and target files, or files that hold both")
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source files and {len(self.target)} target files must be as many")
        return self

    @property
    def format(self) -> str:
        """``parallel``, ``tsv``, ``jsonl``, ``po`` or ``tmx``, by the file's ending."""
        if not self.files:
            return "parallel"
        return self.files[0].name.removesuffix(".gz").rpartition(".")[2].lower()


class Data(Section):
    """What is translated, and from which text the model learns."""

    task: Literal["translation"] = "translation"
    """What the model does."""
    source_language: str
    """Code of the language that is read, such as ``en``."""
    target_language: str
    """Code of the language that is written, such as ``de``."""
    builtin: Literal["homeassistant", "numbers"] | None = None
    """A corpus that fitformer knows how to get, instead of ``train``."""
    builtin_pairs: Count = 20_000
    """Size of the generated corpus ``numbers``."""
    train: Corpus | None = None
    """Your training pairs."""
    valid: Corpus | None = None
    """Without it, ``held_out_pairs`` are held out of the training pairs."""
    test: Corpus | None = None
    """Without it, ``held_out_pairs`` are held out of the training pairs."""
    held_out_pairs: Count | None = None
    """By default a twentieth of the training pairs, at most 1000."""
    licence: str = "not stated"
    """Licence of the training text, written into the bundle."""

    @model_validator(mode="after")
    def _one_origin(self) -> Data:
        if (self.builtin is None) == (self.train is None):
            raise ValueError("give either 'train' (your files) or 'builtin' (a corpus by name)")
        return self


class Tokenizer(Section):
    """The subword model (SentencePiece)."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """How subwords are chosen."""
    joint: bool = True
    """One model and vocabulary for both languages."""
    vocab_size: Annotated[int, Field(ge=8, le=MOST)] | None = None
    """Chosen from the size of the corpus unless given."""
    byte_fallback: bool = True
    """Spell characters that are not in the vocabulary as bytes, so that every script passes through."""
    character_coverage: Annotated[float, Field(ge=0.9, le=1.0)] = 0.9995
    """Share of the characters of the text that get a piece of their own."""
    user_defined_symbols: tuple[str, ...] = ()
    """Strings that are always one piece."""
    placeholders: bool = True
    """Keep ``{name}``, ``%s``, ``<b>`` and their like whole."""


class Cleaning(Section):
    """Which training pairs are left out."""

    max_words: Count = 200
    """Longest side of a pair, in words."""
    max_characters: Count = 1500
    """Longest side of a pair, in characters."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 3.0
    """Largest ratio of the lengths of the two sides."""
    drop_duplicates: bool = True
    """Keep the first of equal pairs only."""
    drop_evaluation_sources: bool = True
    """Drop a training pair whose source is in the validation or test set."""


class Prepare(Section):
    """Cleaning and subwords."""

    tokenizer: Tokenizer = Tokenizer()
    """The subword model."""
    cleaning: Cleaning = Cleaning()
    """Which pairs are left out."""
    max_tokens: Count = 256
    """Longest side of a training pair, in tokens; also the longest piece translated at once."""


class Model(Section):
    """What is the same for every architecture."""

    pre_norm: bool = True
    """Normalise before each sublayer (trains more easily) instead of after it (HAT)."""
    share_embeddings: Literal["all", "decoder", "none"] | None = None
    """Which tables are one; by default ``all`` with a joint vocabulary, else ``decoder`` (target and output)."""


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
    """0 = all processors."""


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


class Train(Training):
    """Training of the found (or given) architecture."""

    start: Literal["inherited", "scratch"] = "inherited"
    """From the SuperTransformer's weights, or from new ones."""


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
    max_length_ratio: Positive = 2.0
    """Longest output: this times the source tokens, plus ``max_length_offset``."""
    max_length_offset: Whole = 10
    """See ``max_length_ratio``."""
    check_sentences: Count = 200
    """Validation sentences that must decode to the same tokens in PyTorch and in the bundle."""


class Device(Section):
    """A machine that runs the bundle; ``cpu`` is this one."""

    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1
    """Processor threads of the bundle."""


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
    devices: dict[FolderName, Device] = {"cpu": Device()}
    """The machines to fit to."""
    targets: tuple[Target, ...] = ()
    """Devices with their limits; each ends in a bundle of its own."""
    supernet: Training = Training()
    measure: Measure = Measure()
    search: Search = Search()
    train: Train = Train()
    compress: Compress = Compress()
    export: Export = Export()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if (self.space is None) == (self.architecture is None):
            raise ValueError("give either 'space' (to search in) or 'architecture' (to train as it is)")
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
