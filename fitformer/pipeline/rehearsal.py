"""The rehearsal of ``fit --dry-run``: the recipe's models at full size learn for two updates from generated text.

Text that is not there yet needs no tokenizer: sentences are random ids, as long as the recipe says or, where nothing
says it, as those that HAT counts with. An update learns from one batch instead of all ``accumulate``, and from a part
of it where memory is short or the machine slow. What follows for the whole training is worked out in ``forecast``.
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fitformer.data.arrays import ArrayWriter, IntArray
from fitformer.errors import NotPossibleError
from fitformer.export.read_weights import read_config
from fitformer.models import SuperTransformer, Transformer
from fitformer.pipeline import forecast
from fitformer.pipeline.costs import rates
from fitformer.pipeline.forecast import Forecast, Lengths, Memory, Rehearsed, Work
from fitformer.pipeline.memory import PeakMemory, free_bytes, give_back
from fitformer.pipeline.run import Run, model_config, part_of, training_task
from fitformer.progress import Progress, say
from fitformer.recipe import Supernet, Training
from fitformer.rundir import read_json, write_json
from fitformer.space import Architecture
from fitformer.space.counting import HAT_LENGTH
from fitformer.stages import STAGES
from fitformer.training.loop import Step, plain_step
from fitformer.training.optimizer import make_optimizer, optimize
from fitformer.training.precision import compute_device, compute_dtype
from fitformer.training.sandwich import Sampling

UPDATES = 2
ASSUMED_VOCAB_SIZE = 8000
LEAST_VOCAB_SIZE = 16
SPREAD = 0.2  # generated sentences are up to so much shorter or longer than the mean
USED_SHARE = 0.8  # of the free memory
LEAST_BATCH_TOKENS = 64
LONGEST_PASS_S = 60.0  # for one batch: of what would take longer, a part is rehearsed
WARM_UP_PART = 16  # of a batch


@dataclass(frozen=True)
class Sizes:
    """Both vocabularies, and where their sizes are from: ``bundle``, ``run``, ``recipe`` or ``assumed``."""

    source: int
    target: int
    origin: str


@dataclass(frozen=True)
class Job:
    """A training of the recipe that is still to be done, ``times`` times; ``arch`` is what is rehearsed."""

    stage: str
    settings: Training
    arch: Architecture
    work: Work
    memory: Memory
    times: int = 1


def rehearse(run: Run, *, until: str = "report", updates: int = UPDATES) -> dict[str, Any]:
    """Build the models of all trainings up to stage ``until`` that are not done, train each for some updates on
    generated text, and estimate what the recipe's trainings cost. Nothing is left behind.

    Raises:
        NotPossibleError: the memory was not enough after all, or the loss is not a number.
    """
    sizes, lengths, account = expected_vocab_sizes(run), expected_lengths(run), rates(run.recipe.cost)
    models, forecasts = [], []
    for job in _jobs(run, sizes, lengths):
        if STAGES.index(job.stage) <= STAGES.index(until):
            found = _rehearse(run, job, sizes, lengths, updates)
            forecasts.append(_forecast(run, job, found, lengths))
            models.append(_facts(job, found, lengths) | forecasts[-1].to_dict())
    return {
        "updates": updates,
        "lengths": lengths.to_dict(),
        "vocab_size": {"source": sizes.source, "target": sizes.target, "from": sizes.origin},
        "models": models,
        **forecast.together(forecasts, account).to_dict(),
        "gpu_assumed": forecast.GPU,
    }


def expected_vocab_sizes(run: Run) -> Sizes:
    """Those of the bundle to train on, of the prepared text, of the recipe, or assumed."""
    if run.origin is not None:
        config, _ = read_config(run.origin)
        return Sizes(config.source_vocab_size, config.target_vocab_size, "bundle")
    stats, given = run.prepared / "stats.json", run.recipe.prepare.tokenizer.vocab_size
    if stats.exists():
        known = read_json(stats)["vocab_size"]
        return Sizes(known["source"], known["target"], "run")
    size = max(given or ASSUMED_VOCAB_SIZE, LEAST_VOCAB_SIZE)
    return Sizes(size, size, "recipe" if given else "assumed")


def expected_lengths(run: Run) -> Lengths:
    """Those of the recipe's section measure, of the prepared text, or those at which HAT counts."""
    measure, stats, most = run.recipe.measure, run.prepared / "stats.json", run.recipe.prepare.max_tokens
    lengths = {"source": HAT_LENGTH, "target": HAT_LENGTH}
    origin = "assumed"
    if stats.exists():
        medians, origin = read_json(stats)["median_lengths"], "run"
        lengths = {side: round(medians[side]) + 1 for side in lengths}
    if measure.source_length and measure.target_length:
        lengths, origin = {"source": measure.source_length, "target": measure.target_length}, "recipe"
    return Lengths(min(lengths["source"], most), min(lengths["target"], most), origin)


def _jobs(run: Run, sizes: Sizes, lengths: Lengths) -> list[Job]:
    recipe, jobs = run.recipe, []
    fixed, space = run.fixed_architecture(), recipe.search_space()
    share: str = recipe.model.share_embeddings or ("all" if recipe.prepare.tokenizer.joint else "decoder")
    pre_norm = recipe.model.pre_norm
    if run.origin is not None:
        config, _ = read_config(run.origin)
        share, pre_norm = config.share_embeddings, config.pre_norm
    count = forecast.counts_of((sizes.source, sizes.target), lengths, share_embeddings=share, pre_norm=pre_norm)

    def macs(arch: Architecture) -> int:
        return count(arch).macs.total

    def memory(arch: Architecture, settings: Training) -> Memory:
        tables = settings.attention_dropout > 0
        per_token = forecast.activation_bytes(arch, lengths, keeps_attention=tables)
        return Memory(count(arch).parameters.total, per_token)

    if space is not None and not run.stage("supernet").is_done:
        arch, work = space.largest(), forecast.work_of_supernet(space, recipe.supernet, macs)
        jobs.append(Job("supernet", recipe.supernet, arch, work, memory(arch, recipe.supernet)))
    left = sum(not run.stage("train", part_of(target)).is_done for target in recipe.targets or (None,))
    if left:
        arch = fixed or run.space.largest()  # what will be found is not known; nothing is dearer than the largest
        work = forecast.work_of_one(arch, macs)
        jobs.append(Job("train", recipe.train, arch, work, memory(arch, recipe.train), left))
    return jobs


def _rehearse(run: Run, job: Job, sizes: Sizes, lengths: Lengths, updates: int) -> Rehearsed:
    device = compute_device(job.settings.device)
    precision = "bf16" if compute_dtype(job.settings.precision, device) is torch.bfloat16 else "fp32"
    give_back()
    tokens, free = job.settings.batch_tokens, free_bytes(device)
    while free is not None and tokens > LEAST_BATCH_TOKENS and job.memory.at(tokens) > USED_SHARE * free:
        tokens = max(tokens // 2, LEAST_BATCH_TOKENS)
    if free is not None and job.memory.at(tokens) > free:
        return Rehearsed(device, precision, 0, job.memory.params)
    smaller = replace(job, settings=job.settings.model_copy(update={"batch_tokens": tokens}))
    found = Rehearsed(device, precision, tokens, job.memory.params)
    with tempfile.TemporaryDirectory(prefix="fitformer-") as folder:
        generated = replace(run, path=Path(folder))
        _write_text(generated, sizes, lengths, pairs=(updates + 1) * (tokens // lengths.longest + 1))
        try:
            return _Rehearsal(generated, smaller, found, updates).run()
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error) and not isinstance(error, MemoryError):
                raise
            raise NotPossibleError(
                f"dry run: the memory is not enough for {job.stage} with batches of {tokens} tokens; halve its "
                "batch_tokens and double its accumulate, which is the same training"
            ) from None


def _write_text(run: Run, sizes: Sizes, lengths: Lengths, *, pairs: int) -> None:
    """A prepared corpus of random ids, none of them special."""
    rng = random.Random(run.recipe.seed)
    folder = run.prepared
    folder.mkdir(parents=True)
    sides = {"source": (sizes.source, lengths.source), "target": (sizes.target, lengths.target)}
    for split, count in (("train", pairs), ("valid", 1)):
        for side, (size, mean) in sides.items():
            with ArrayWriter(folder / f"{split}.{side}", vocab_size=size) as writer:
                for _ in range(count):
                    length = max(1, round(mean * rng.uniform(1 - SPREAD, 1 + SPREAD)) - 1)
                    writer.add([rng.randrange(4, size) for _ in range(length)])
    vocab_size = {"source": sizes.source, "target": sizes.target}
    medians = {"source": lengths.source - 1, "target": lengths.target - 1}
    write_json(folder / "stats.json", {"vocab_size": vocab_size, "median_lengths": medians})


@dataclass
class _Rehearsal:
    """One model and its few updates, in a run folder that holds generated text."""

    at: Run
    job: Job
    found: Rehearsed
    updates: int

    def run(self) -> Rehearsed:
        settings = self.job.settings
        with PeakMemory(self.found.device) as memory:
            say(f"dry run: builds the model of {self.job.stage}")
            torch.manual_seed(self.at.recipe.seed)
            self.task = training_task(self.at, settings)
            self.model = self._build().to(self.found.device).train()
            params = sum(parameter.numel() for parameter in self.model.parameters())
            optimizer = make_optimizer(self.model, settings)
            losses, passes, steps = [], [], []
            batches = self._batches()
            with Progress(f"dry run: {self.job.stage}", self.updates, unit="updates") as progress:
                for update in range(1, self.updates + 1):
                    began = time.perf_counter()
                    losses.append(self._backward(update, batches[update % len(batches)]))
                    passes.append(time.perf_counter() - began)
                    optimize(self.model, optimizer, settings, update)
                    self._wait()
                    steps.append(time.perf_counter() - began - passes[-1])
                    progress.update(update, loss=losses[-1])
        return replace(
            self.found,
            params=params,
            losses=tuple(losses),
            pass_seconds=min(passes),
            optimizer_seconds=min(steps),
            memory_before=memory.before,
            memory_peak=memory.peak,
        )

    def _batches(self) -> list[IntArray]:
        """Full batches for the updates, or as much of them as is learned in ``LONGEST_PASS_S``.

        A small part of one comes first, as a warm-up that also tells how fast this machine is.
        """
        fullest = sorted(self.task.epoch(0), key=self.task.target_tokens)[-self.updates :]
        first = fullest[-1][: max(1, len(fullest[-1]) // WARM_UP_PART)]
        began = time.perf_counter()
        self._backward(0, first)
        per_sentence = (time.perf_counter() - began) / len(first)
        self.model.zero_grad(set_to_none=True)
        most = min(len(indices) for indices in fullest)
        kept = min(most, max(1, int(LONGEST_PASS_S / per_sentence)))
        self.found = replace(self.found, batch_tokens=round(self.found.batch_tokens * kept / most))
        return [indices if kept == most else indices[:kept] for indices in fullest]

    def _build(self) -> Transformer:
        config = model_config(self.at, self.job.settings)
        if self.job.stage == "train":
            return Transformer(config, self.job.arch)
        return SuperTransformer(config, self.at.space)

    def _backward(self, update: int, indices: IntArray) -> float:
        """Gradients of one batch; returns the mean loss per target token."""
        step = self._choose(update)
        tokens = self.task.target_tokens(indices)
        self.model.mask_pool.start_update(self.at.recipe.seed, update)
        mean = step([self.task.batch(indices)], tokens) / tokens
        self._wait()
        if not mean < float("inf"):
            raise NotPossibleError(f"dry run: the loss of {self.job.stage} is not a number; precision: fp32 is safer")
        return mean

    def _choose(self, update: int) -> Step:
        """Activate what learns at an update, and return how."""
        if isinstance(self.model, SuperTransformer):
            settings = self.job.settings
            assert isinstance(settings, Supernet)
            if settings.sampling == "sandwich":
                sampling = Sampling(self.model, self.task, settings, self.at.recipe.seed)
                sampling.select(settings.largest_first + update)
                return sampling.step
            self.model.set_active(self.job.arch)
        return plain_step(self.task, self.model)

    def _wait(self) -> None:
        """For a GPU, whose work goes on while the program does."""
        if self.found.device != "cpu":
            torch.cuda.synchronize()


def _forecast(run: Run, job: Job, found: Rehearsed, lengths: Lengths) -> Forecast:
    return forecast.forecast(
        forecast.seconds_per_update(job.settings, job.work, found),
        forecast.operations_per_update(job.settings, job.work, lengths),
        job.settings.updates * job.times,
        bits=32 if job.settings.precision == "fp32" else 16,
        gpus=0 if found.device == "cpu" else 1,
        rates=rates(run.recipe.cost),
    )


def _facts(job: Job, found: Rehearsed, lengths: Lengths) -> dict[str, Any]:
    settings = job.settings
    return {
        "stage": job.stage,
        "architecture": job.arch.to_text(),
        "params": found.params,
        "memory": forecast.memory_of(job.memory, settings, found),
        "device": found.device,
        "precision": found.precision,
        "rehearsed_tokens": found.batch_tokens,
        "losses": list(found.losses),
        "pass_seconds": found.pass_seconds or None,
        "optimizer_seconds": found.optimizer_seconds or None,
        "batch_tokens": settings.batch_tokens,
        "accumulate": settings.accumulate,
        "updates": settings.updates,
        "trainings": job.times,
        "average_share": job.work.average / job.work.rehearsed,
        "flops_per_update": forecast.operations_per_update(settings, job.work, lengths),
        "seconds_per_update": forecast.seconds_per_update(settings, job.work, found),
    }
