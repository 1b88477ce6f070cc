"""Does a bundle still do here what it did where it was made? ``fitformer verify``: files, golden outputs, latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fitformer.device import device_card
from fitformer.errors import BundleError, NotPossibleError
from fitformer.rundir import sha256
from fitformer.runtime.bundle import COPY_AGAIN, FACTS_FILE, Bundle
from fitformer.runtime.decoding import EOS, DecodeSettings, StepModel, greedy
from fitformer.runtime.lines import one_line
from fitformer.runtime.timing import Timing, time_model
from fitformer.runtime.translator import pad_batch

LATENCY_TRIES = 3
# What each record must hold for a check.
Kinds = dict[str, type | tuple[type, ...]]
GOLDEN: Kinds = {"source": str, "source_ids": list, "target_ids": list, "text": str}
LATENCY: Kinds = {"latency_ms": (int, float), "source_length": int, "target_length": int}


def golden_target(
    model: StepModel[Any], source_ids: Sequence[int], settings: DecodeSettings, *, limit: int
) -> list[int]:
    """The greedy output that a golden entry records: one sentence alone, the bundle's length cap, no other rule.

    Args:
        source_ids: ids without eos, or with it as the last.
        limit: most target tokens the model has positions for (``Bundle.max_target_length``).
    """
    ids = _without_eos(source_ids)
    cap = settings.length_cap(len(ids), limit=limit)
    return greedy(model, pad_batch([ids]), max_lengths=[cap])[0]


def verify(
    bundle: Bundle, *, threads: int | None = None, time_it: Callable[..., Timing] = time_model
) -> dict[str, Any]:
    """Check every file's checksum, run the golden inputs and measure the recorded latencies again.

    A latency record is held to its ``limit_ms`` only on the processor it was measured on; elsewhere it is
    measured and told. As other work on the machine only ever slows a run down, a record that is over its
    limit is measured up to three times.

    Args:
        threads: None for those of each record.
        time_it: another stopwatch, for tests.
    Returns:
        ``files`` (number checked), ``golden`` (number of identical outputs), ``latency`` (per record
        ``recorded_ms``, ``measured_ms``, ``limit_ms``, ``same_device``, ``kept``: None where there is no
        limit to keep), ``device``.
    Raises:
        NotPossibleError: something differs; the message lists it.
        BundleError: a record cannot be read.
    """
    golden, latency_records = _records(bundle, "golden", GOLDEN), _records(bundle, "latency", LATENCY)
    problems = _changed_files(bundle)
    if problems:
        raise NotPossibleError(f"{bundle.path}: " + "; ".join(problems) + f"; {COPY_AGAIN}")
    problems += _golden_problems(bundle, golden, threads or 1)
    latency = []
    for record in latency_records:
        facts = _measure_again(bundle, record, threads, time_it)
        latency.append(facts)
        if facts["kept"] is False:
            problems.append(
                f"latency {facts['measured_ms']:.2f} ms is over the limit of {facts['limit_ms']:g} ms "
                f"(recorded: {facts['recorded_ms']:.2f} ms)"
            )
    if problems:
        raise NotPossibleError(f"{bundle.path}: " + "; ".join(problems))
    return {
        "files": len(bundle.facts["files"]),
        "golden": len(golden),
        "latency": latency,
        "device": device_card(threads or 1),
    }


def _records(bundle: Bundle, key: str, kinds: Kinds) -> list[dict[str, Any]]:
    where, records = bundle.path / FACTS_FILE, bundle.facts.get(key, [])
    if not isinstance(records, list):
        raise BundleError(f"{where}: the key '{key}' is not of the type list; {COPY_AGAIN}")
    for number, record in enumerate(records, start=1):
        values = record if isinstance(record, dict) else {}
        for name, kind in kinds.items():
            if not isinstance(values.get(name), kind):
                raise BundleError(f"{where}: {key} {number}: '{name}' is missing or of the wrong type; {COPY_AGAIN}")
    return records


def _changed_files(bundle: Bundle) -> list[str]:
    problems = []
    for name, checksum in bundle.facts["files"].items():
        file = bundle.file(name)
        if not file.is_file():
            problems.append(f"{name} is missing")
        elif sha256(file) != checksum:
            problems.append(f"the checksum of {name} differs")
    return problems


def _golden_problems(bundle: Bundle, golden: list[dict[str, Any]], threads: int) -> list[str]:
    source, target = bundle.tokenizers()
    model = bundle.step_model(threads)
    settings, limit = bundle.decode_settings, bundle.max_target_length
    problems = []
    for number, entry in enumerate(golden, start=1):
        ids = source.encode([one_line(entry["source"])])[0]
        output = golden_target(model, entry["source_ids"], settings, limit=limit)
        if ids != _without_eos(entry["source_ids"]):
            problems.append(f"golden input {number} is tokenized differently here")
        elif output != _without_eos(entry["target_ids"]):
            problems.append(f"golden output {number} differs: '{target.decode(output)}' instead of '{entry['text']}'")
        elif one_line(target.decode(output)) != one_line(entry["text"]):
            problems.append(f"golden output {number} has the right tokens but reads differently")
    return problems


def _measure_again(
    bundle: Bundle, record: dict[str, Any], threads: int | None, time_it: Callable[..., Timing]
) -> dict[str, Any]:
    used = threads or int(record.get("threads", 1))
    model = bundle.step_model(used)
    limit = record.get("limit_ms")
    same_device = record.get("device", {}).get("cpu") == device_card(used)["cpu"]
    measured: list[float] = []
    while not measured or (
        limit is not None and same_device and len(measured) < LATENCY_TRIES and min(measured) > limit
    ):
        timing = time_it(
            model,
            source_length=record["source_length"],
            target_length=record["target_length"],
            batch_size=record.get("batch_size", 1),
            beam=record.get("beam", 1),
            vocab_size=bundle.facts["model"]["source_vocab_size"],
            warmup=record.get("warmup", 5),
            repeats=record.get("repeats", 50),
        )
        measured.append(timing.latency_ms)
    return {
        "recorded_ms": record["latency_ms"],
        "measured_ms": min(measured),
        "limit_ms": limit,
        "same_device": same_device,
        "kept": min(measured) <= limit if limit is not None and same_device else None,
    }


def _without_eos(ids: Sequence[int]) -> list[int]:
    return list(ids[:-1]) if ids and ids[-1] == EOS else list(ids)
