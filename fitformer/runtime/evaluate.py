"""Scores and speed of a bundle on a test set: ``fitformer evaluate``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fitformer.device import device_card
from fitformer.errors import InputError
from fitformer.runtime.bundle import Bundle
from fitformer.runtime.decoding import DecodeSettings
from fitformer.runtime.hat_bleu import hat_bleu, tokenise_for_bleu
from fitformer.runtime.scores import lowercase_tokenise, lowercase_tokenised_bleu, score_translations
from fitformer.runtime.translator import Translator

LATENCY_LINES = 100
WARMUP_LINES = 5


def evaluate(
    bundle: Bundle,
    source_lines: Sequence[str],
    reference_lines: Sequence[str],
    *,
    settings: DecodeSettings | None = None,
    threads: int = 1,
    batch_size: int | None = None,
    legacy_bleu: bool = False,
    lowercase_bleu: bool = False,
    latency_lines: int = LATENCY_LINES,
    keep_translations: bool = False,
) -> dict[str, Any]:
    """Translate ``source_lines``, score them against ``reference_lines`` and time it.

    Args:
        settings: how to search; None for the bundle's own.
        batch_size: as in ``Translator``.
        legacy_bleu: also the BLEU of tokens with compounds split, as HAT reports it (see ``hat_bleu``).
        lowercase_bleu: also the BLEU of lower-cased, normalised, tokenised text, as Multi30k papers report it.
        latency_lines: how many of the first lines with text are timed one by one.
    Returns:
        JSON-able facts: ``sentences``; ``bleu`` and ``chrf`` (see ``score_translations``); ``legacy_bleu``
        and ``lowercase_bleu`` if asked for; ``sentences_per_s`` and ``seconds`` of translating everything in batches;
        ``batch_size``;
        ``latency_ms`` {``mean``, ``median``, ``sentences``} of one sentence at a time, tokenization included;
        ``decoding``; ``device``; ``translations`` if asked for (with ``legacy_bleu`` also ``tokenised``, what it
        scored, no JSON).
    Raises:
        InputError: no lines, or not as many references as sources.
    """
    if len(source_lines) != len(reference_lines):
        raise InputError(
            f"the source has {len(source_lines)} lines but the reference {len(reference_lines)}; they must pair up"
        )
    if not source_lines:
        raise InputError("the source has no lines")
    settings = settings or bundle.decode_settings
    translator = Translator(bundle, threads=threads, batch_size=batch_size)
    begin = time.perf_counter()
    translations = list(translator.translate(source_lines, settings))
    seconds = time.perf_counter() - begin
    hypotheses = [translation.text for translation in translations]
    facts: dict[str, Any] = {"sentences": len(hypotheses), **score_translations(hypotheses, reference_lines)}
    tokenised = tokenise_for_bleu(bundle, translations, reference_lines) if legacy_bleu else None
    if tokenised is not None:
        facts["legacy_bleu"] = hat_bleu(tokenised)
    if lowercase_bleu:
        language = str(bundle.facts.get("target_language", "en"))
        lowercase = (lowercase_tokenise(lines, language) for lines in (hypotheses, reference_lines))
        facts["lowercase_bleu"] = lowercase_tokenised_bleu(*lowercase)
    facts |= {
        "sentences_per_s": len(hypotheses) / seconds,
        "seconds": seconds,
        "batch_size": translator.batch_size,
        "latency_ms": _latency(bundle, source_lines, settings, threads=threads, lines=latency_lines),
        "decoding": asdict(settings),
        "device": device_card(threads),
    }
    if keep_translations:
        facts |= {"translations": hypotheses, **({"tokenised": tokenised} if tokenised else {})}
    return facts


def _latency(
    bundle: Bundle, source_lines: Sequence[str], settings: DecodeSettings, *, threads: int, lines: int
) -> dict[str, Any]:
    """Milliseconds per sentence, one at a time, over the first ``lines`` lines that hold text."""
    single = Translator(bundle, threads=threads, batch_size=1, warn=lambda _: None)
    texts = [line for line in source_lines if line.strip()][:lines]
    if not texts:
        return {"mean": None, "median": None, "sentences": 0}
    for _ in single.translate(texts[:WARMUP_LINES], settings):
        pass
    times = []
    for text in texts:
        begin = time.perf_counter()
        next(single.translate([text], settings))
        times.append(1e3 * (time.perf_counter() - begin))
    return {"mean": statistics.fmean(times), "median": statistics.median(times), "sentences": len(times)}
