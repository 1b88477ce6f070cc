"""What the report expects in the files of a run folder: one description per file, under the stage that writes it.

Every key may be missing: the report then shows a dash or leaves the part out. So these are descriptions for the writers
and for readers of the code; the values are read with the tolerant functions of ``reading``. Latencies are milliseconds
per batch, losses nats per target token, sizes bytes, shares percent (0 to 100) unless a key says otherwise.
"""

from __future__ import annotations

from typing import Any, TypedDict


class StageRecord(TypedDict, total=False):
    """``<stage>[/<part>]/done.json``; ``started.json`` holds ``inputs`` and ``sessions`` of an unfinished stage."""

    inputs: dict[str, Any]
    facts: dict[str, Any]
    seconds: float
    sessions: list[str]
    finished: str
    energy: StageEnergy


class StageEnergy(TypedDict, total=False):
    """Time and energy of a stage; while it is under way in ``.<stage>-<part>.energy.json`` of the run folder."""

    sessions: list[SessionEnergy]


class SessionEnergy(TypedDict, total=False):
    """One session: ``joules`` holds the parts (cpu, ram, gpu) whose energy the machine measured."""

    started: str
    seconds: float
    gpus: int
    joules: dict[str, float]


class LogLine(TypedDict, total=False):
    """A line of ``supernet/log.jsonl`` or ``train/<target>/log.jsonl``: training figures, or validation losses."""

    update: int
    loss: float
    learning_rate: float
    epoch: int
    target_tokens: int
    tokens_per_s: float
    seconds: float
    valid: dict[str, float]


class ModelFile(TypedDict, total=False):
    """``model.json``: ``config``, and ``space`` in ``supernet/`` or ``architecture`` in ``train/<target>/``."""

    config: dict[str, Any]
    space: dict[str, list[int]]
    architecture: dict[str, Any]


class HistoryLine(TypedDict, total=False):
    """A line of ``search/<target>/history.jsonl``, and an entry of the list in ``front.json``."""

    architecture: str
    valid_loss: float | None
    predicted_ms: float
    generation: int


class FinalistEntry(TypedDict, total=False):
    """An entry of the list in ``search/<target>/candidates.json``."""

    architecture: str
    valid_loss: float
    predicted_ms: float
    measured_ms: float
    round: int


class BestFile(TypedDict, total=False):
    """``search/<target>/best.json``; ``measured_ms`` is null where ``not_measured`` says why."""

    architecture: dict[str, Any]
    text: str
    valid_loss: float
    predicted_ms: float
    measured_ms: float | None
    limit_ms: float
    not_measured: str


class QualityFile(TypedDict, total=False):
    """``measure/<device>/quality.json``: held-out predictions, in the order of ``records.csv`` by ``index``."""

    num_samples: int
    mape: float
    rmse_ms: float
    r2: float
    r2_within_depth: float | None
    kendall_tau: float
    spearman: float
    chance: float
    within_5: float
    within_10: float
    baseline_mape: float
    measured_ms: list[float]
    predicted_ms: list[float]


class DecisionFile(TypedDict, total=False):
    """``compress/<target>/decision.json``: which precision is kept, and why in a sentence for people.

    BLEU is that of the validation set. What concerns int8 is missing if it was not tried.
    """

    kept: str
    reason: str
    fp32_ms: float
    int8_ms: float
    fp32_bleu: float
    int8_bleu: float
    allowed_loss: float
    speedup: float
    bleu_loss: float
    bytes: dict[str, int]


class Score(TypedDict, total=False):
    """As ``runtime.scores`` returns it."""

    score: float
    interval: list[float]
    signature: str


class SplitScores(TypedDict, total=False):
    """An entry of ``scores`` in ``export/<target>/fitformer.json``, under the name of the split."""

    sentences: int
    bleu: Score
    chrf: Score
    legacy_bleu: Score
    lowercase_bleu: Score


class BundleLatency(TypedDict, total=False):
    """An entry of ``latency`` in ``fitformer.json``: one measurement of the bundle in the runtime that ships."""

    precision: str
    latency_ms: float
    encoder_ms: float
    decoder_ms: float
    std_ms: float
    limit_ms: float | None
    threads: int
    batch_size: int
    beam: int
    source_length: int
    target_length: int
    exporter_version: int
    warmup: int
    repeats: int
    device: dict[str, Any]


class Compared(TypedDict, total=False):
    """Numbers of sentences: same tokens as PyTorch, differences that rounding explains, other differences."""

    equal: int
    ties: int
    different: int
    size: int


class ExportCheck(TypedDict, total=False):
    """An entry of ``facts.check`` in ``export/<target>/done.json``, under the precision it is about.

    ``next_token_agreement`` is a share from 0 to 1.
    """

    sentences: int
    left_out: int
    precision: str
    greedy: Compared
    beam: Compared
    max_logit_difference: float
    next_token_agreement: float


class Evaluation(TypedDict, total=False):
    """``facts.scores`` in ``export/<target>/done.json``: scores and speed of the bundle with its own settings."""

    sentences: int
    bleu: Score
    chrf: Score
    sentences_per_s: float
    seconds: float
    batch_size: int
    latency_ms: dict[str, float]
    decoding: dict[str, Any]
    device: dict[str, Any]


class Sample(TypedDict, total=False):
    """An entry of ``facts.samples`` in ``export/<target>/done.json``; without them golden outputs are shown."""

    source: str
    reference: str
    translation: str


class Baselines(TypedDict, total=False):
    """``facts.baselines`` in ``export/<target>/done.json``: what ``tasks.baselines.baseline_scores`` returns."""

    split: str
    sentences: int
    train_pairs: int
    copy_source: dict[str, Score]
    nearest_translation: dict[str, Score]


class PredictedLatency(TypedDict, total=False):
    """``predicted_latency`` of a bundle for a device that was not at hand; ``latency`` then is this machine's."""

    device: str
    predicted_ms: float
    limit_ms: float
    not_measured: str


class ExportFacts(TypedDict, total=False):
    """``facts`` in ``export/<target>/done.json``."""

    check: dict[str, ExportCheck]
    latency: BundleLatency
    limit_ms: float | None
    precision: str
    scores: Evaluation
    baselines: Baselines
    samples: list[Sample]
    bundle_bytes: int
    predicted_latency: PredictedLatency


class SearchFacts(TypedDict, total=False):
    """``facts`` in ``search/<target>/done.json``, beside those of ``best.json``; ``predictor_error`` in percent."""

    evaluations: int
    generations: int
    generations_without_gain: int
    rounds: int
    measured: int
    predictor_error: float


class MeasureFacts(TypedDict, total=False):
    """``facts`` in ``measure/<device>/done.json``; ``predictor`` and what follows only where one was given."""

    conditions: dict[str, int] | None
    predictor: str
    smallest_ms: float
    conditions_note: str | None
    outside: float
    outside_features: list[str]
    largest_ms: float
    reference_ms: float
    drifted: int
    repeated: int
