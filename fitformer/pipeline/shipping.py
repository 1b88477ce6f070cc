"""The stages that ship: compress, export, report."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fitformer.compress.decide import decide
from fitformer.compress.quantize import BlockwiseInt8
from fitformer.data.arrays import IntArray, TokenArrays
from fitformer.data.tokenizer_files import bundle_kind
from fitformer.device import available_threads, device_card
from fitformer.errors import NotPossibleError
from fitformer.export.bundle import TokenizerFiles, add_facts, write_bundle
from fitformer.export.check import check_export
from fitformer.export.graphs import EXPORTER_VERSION, FLOAT32
from fitformer.export.matrices import Matrices
from fitformer.models import Transformer
from fitformer.pipeline.elsewhere import is_at_hand, predicted_latency, predictor_inputs
from fitformer.pipeline.run import (
    Run,
    device_of,
    evaluation_texts,
    load_trained,
    part_of,
)
from fitformer.pipeline.timing import LATENCY_TRIES, conditions_of, limit_of, time_against, time_session
from fitformer.progress import say
from fitformer.recipe import Target
from fitformer.report import render_report
from fitformer.rundir import folder_bytes, publish, read_json, write_json, write_text
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.evaluate import evaluate
from fitformer.runtime.scores import score_translations
from fitformer.runtime.translator import Translator
from fitformer.tasks.baselines import baseline_scores

GOLDEN_SENTENCES = 8
LATENCY_ROUNDS = 3
SAMPLES = 10


def compress(run: Run, target: Target | None) -> dict[str, Any]:
    """Try 8-bit weights; keep them if they are measured faster and lose little enough on the validation set."""
    section, part, device = run.recipe.compress, part_of(target), device_of(target)

    def work(folder: Path) -> dict[str, Any]:
        model = load_trained(run, part)
        forms: dict[str, Matrices] = {"fp32": FLOAT32, **({"int8": BlockwiseInt8()} if section.int8 else {})}
        bundles = {name: _write_bundle(run, part, folder / name, model, form) for name, form in forms.items()}
        latency = _paired_latency(run, bundles, device)
        bleu = {name: _bleu(run, bundle, "valid") for name, bundle in bundles.items()}
        if not section.int8:
            decision = {
                "kept": "fp32",
                "reason": "fp32 is kept: the recipe asks for no int8.",
                "fp32_ms": latency["fp32"],
            }
        else:
            decision = decide(
                fp32_ms=latency["fp32"],
                int8_ms=latency["int8"],
                fp32_bleu=bleu["fp32"],
                int8_bleu=bleu["int8"],
                allowed_loss=section.allowed_bleu_loss,
            ).to_dict()
        if not is_at_hand(run, device):
            decision["reason"] = f"{decision['reason']} That was timed on this machine: {device} is not at hand."
        say(f"compress: {decision['reason']}")
        decision["bytes"] = {name: folder_bytes(folder / name) for name in bundles}
        write_json(folder / "decision.json", decision)
        return decision

    decoding = run.recipe.export.model_dump(exclude={"check_sentences"})  # checked by the next stage only
    timed_on = run.recipe.devices[device].model_dump(exclude={"predictor"})
    inputs = {
        **run.section("compress"),
        "export": decoding,
        "timing": {**run.recipe.measure.model_dump(), "device": timed_on},
        "exporter_version": EXPORTER_VERSION,
        "train": run.stage("train", part).identity,
    }
    return run.stage("compress", part).perform(inputs, work, later=("timing",))


def _paired_latency(run: Run, bundles: dict[str, Bundle], device: str) -> dict[str, float]:
    """Median latency of each bundle in milliseconds, timed in turns so that drift touches all alike."""
    conditions = conditions_of(run, device)
    sessions = {name: bundle.step_model(conditions.threads) for name, bundle in bundles.items()}
    rounds: dict[str, list[float]] = {name: [] for name in bundles}
    for _ in range(LATENCY_ROUNDS):
        for name, session in sessions.items():
            rounds[name].append(time_session(run, session, conditions, repeats_factor=1).latency_ms)
    return {name: statistics.median(values) for name, values in rounds.items()}


def _bleu(run: Run, bundle: Bundle, split: str) -> float:
    sources, references = evaluation_texts(run, split)
    translator = Translator(bundle, threads=available_threads())
    outputs = [translation.text for translation in translator.translate(sources)]
    return float(score_translations(outputs, references, samples=1)["bleu"]["score"])


def _tokenizer_files(prepared: Path, facts: dict[str, Any]) -> TokenizerFiles:
    """Tokenizer of a prepared corpus, as its ``stats.json`` describes it."""
    source, target = (prepared / facts["models"][side] for side in ("source", "target"))
    codes = prepared / facts["codes"] if facts.get("codes") else None
    return TokenizerFiles(bundle_kind(facts), source, target, codes, facts.get("options", {}))


def _write_bundle(run: Run, part: str, folder: Path, model: Transformer, form: Matrices) -> Bundle:
    data, section, stats = run.recipe.data, run.recipe.export, read_json(run.prepared / "stats.json")
    trained = run.stage("train", part).facts
    return write_bundle(
        folder,
        model=model,
        tokenizer=_tokenizer_files(run.prepared, stats["tokenizer"]),
        source_language=data.source_language,
        target_language=data.target_language,
        decoding=DecodeSettings(**section.model_dump(exclude={"check_sentences"})),
        golden_sources=evaluation_texts(run, "valid")[0][:GOLDEN_SENTENCES],
        max_source_length=run.recipe.prepare.max_tokens,
        matrices=form,
        licence=stats["licence"],
        training={
            "seed": run.recipe.seed,
            "recipe": run.recipe.name,
            "torch": torch.__version__,
            **_other_models(trained),
        },
    )


def _other_models(trained: dict[str, Any]) -> dict[str, Any]:
    """The teacher and the bundle that a model was trained with, without the places where they were."""
    facts: dict[str, Any] = {
        key: {name: value for name, value in trained[key].items() if name != "folder"}
        for key in ("teacher", "distillation", "began_with")
        if key in trained
    }
    return facts


def export(run: Run, target: Target | None) -> dict[str, Any]:
    """Write the bundle, check it token for token against PyTorch, measure it again and score it on the test set."""
    part, device = part_of(target), device_of(target)
    compressed = run.stage("compress", part)

    def work(folder: Path) -> dict[str, Any]:
        model, kept = load_trained(run, part), compressed.facts["kept"]
        unchecked = folder.with_name(f".{folder.name}.unchecked")
        bundle = _write_bundle(run, part, unchecked, model, BlockwiseInt8() if kept == "int8" else FLOAT32)
        ids = [list(map(int, ids)) for ids in _check_sentences(run)]
        checks = {"fp32": check_export(model, Bundle.load(compressed.folder / "fp32"), ids)}
        if run.recipe.compress.int8:
            checks["int8"] = check_export(model, Bundle.load(compressed.folder / "int8"), ids)
        elsewhere = predicted_latency(run, target, model.arch) if target and not is_at_hand(run, device) else None
        record = _final_latency(run, bundle, target, device)
        sources, references = evaluation_texts(run, "test")
        facts = evaluate(
            bundle,
            sources,
            references,
            threads=conditions_of(run, device).threads,
            legacy_bleu=bundle.facts["tokenizer"]["kind"] == "subword-nmt",  # as published recipes report it
            keep_translations=True,
        )
        outputs = facts.pop("translations")
        facts.pop("tokenised", None)
        write_text(unchecked / "test.translations.txt", "".join(f"{line}\n" for line in outputs))
        kept_scores = ("bleu", "chrf", "legacy_bleu", "sentences")
        scores = {"test": {name: facts[name] for name in kept_scores if name in facts}}
        prediction = {"predicted_latency": elsewhere} if elsewhere else {}
        add_facts(unchecked, scores=scores, latency=[record], **prediction)
        publish(unchecked, folder)
        return {
            "check": checks,
            "latency": record,
            "limit_ms": elsewhere["limit_ms"] if elsewhere else record["limit_ms"],
            **prediction,
            "precision": kept,
            "scores": facts,
            "baselines": baseline_scores(run.prepared),
            "samples": _samples(sources, references, outputs),
            "bundle_bytes": folder_bytes(folder),
        }

    inputs = {
        **run.section("export", "measure"),
        "device": run.recipe.devices[device].model_dump(exclude={"predictor"}),
        **predictor_inputs(run, device),
        "compress": compressed.identity,
    }
    return run.stage("export", part).perform(inputs, work, later=("device",))


def _check_sentences(run: Run) -> list[IntArray]:
    """An even selection of encoded validation sentences."""
    arrays = TokenArrays(run.prepared / "valid.source")
    count = min(run.recipe.export.check_sentences, len(arrays))
    return [arrays[len(arrays) * i // count] for i in range(count)]


def _final_latency(run: Run, bundle: Bundle, target: Target | None, device: str) -> dict[str, Any]:
    """Measure the finished bundle; other work on the machine only slows it down, so it has three tries at its limit.

    A limit on a device that is not at hand is not this machine's.

    Raises:
        NotPossibleError: it keeps the limit in none of them.
    """
    conditions = conditions_of(run, device)
    limit_ms = limit_of(run, target) if target and is_at_hand(run, device) else None
    session = bundle.step_model(conditions.threads)
    timing = time_against(limit_ms, lambda: time_session(run, session, conditions, repeats_factor=3))
    if limit_ms is not None and timing.latency_ms > limit_ms:
        raise NotPossibleError(
            f"export: the finished bundle takes {timing.latency_ms:.3g} ms, over the limit of {limit_ms:.3g} ms, in "
            f"{LATENCY_TRIES} measurements; is something else running? Try again, or raise the limit or search.margin"
        )
    return {
        "latency_ms": timing.latency_ms,
        "encoder_ms": timing.encoder.mean,
        "decoder_ms": timing.decoder.mean,
        "std_ms": timing.total.std,
        "limit_ms": limit_ms,
        "precision": bundle.precision,
        **conditions.to_dict(),
        "warmup": timing.warmup,
        "repeats": timing.repeats,
        "device": device_card(conditions.threads),
    }


def _samples(sources: Sequence[str], references: Sequence[str], outputs: Sequence[str]) -> list[dict[str, str]]:
    """Lines spread over the test set with their references and translations."""
    count = min(SAMPLES, len(sources))
    rows = [len(sources) * i // count for i in range(count)]
    return [{"source": sources[i], "reference": references[i], "translation": outputs[i]} for i in rows]


def report(run: Run) -> dict[str, Any]:
    """Write one HTML page about everything in the run folder."""
    return {"report": str(render_report(run.path))}
