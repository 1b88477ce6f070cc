"""How well a bundle translates: scores beside two plain baselines, and samples to judge for oneself."""

from __future__ import annotations

from fitformer.report.inputs import RunFiles, TargetFiles
from fitformer.report.markup import Child, Markup, details, facts, join, table, tag
from fitformer.report.reading import JsonMap, Reader, mapping, objects, real, text
from fitformer.report.wording import DASH, count, interval, judged_on, label, score

MOST_SAMPLES = 20
OTHER_CONVENTIONS = {
    "legacy_bleu": "Tokenised and with compounds split, as HAT reports it,",
    "lowercase_bleu": "Lower-cased and tokenised, as Multi30k papers report it,",
}


def scores(target: TargetFiles) -> Markup | None:
    """BLEU and chrF of the bundle beside the two plain baselines, with signatures."""
    own, baselines = target.scores, mapping(target.facts, "baselines")
    lines = [
        ("this model", own),
        ("copy the translation of the nearest training sentence", mapping(baselines, "nearest_translation")),
        ("copy the source", mapping(baselines, "copy_source")),
    ]
    lines = [(name, data) for name, data in lines if data]
    if not lines:
        return None
    most = max((real(data, "bleu", "score") or 0.0 for _, data in lines), default=0.0) or 1.0
    rows: list[list[Child]] = []
    for name, data in lines:
        bleu = real(data, "bleu", "score")
        meter = tag("meter", value=bleu or 0.0, max=most, aria_hidden="true")
        rows.append(
            [join(name, meter), score(bleu), interval(mapping(data, "bleu")), score(real(data, "chrf", "score"))]
        )
    others = [
        f"{convention} the BLEU is {score(found)} ({interval(mapping(own, name))}). Compare it with such figures only."
        for name, convention in OTHER_CONVENTIONS.items()
        if (found := real(own, name, "score")) is not None
    ]
    return join(
        tag(
            "p",
            _scored_on(own, baselines),
            " Higher is better; the interval says how far other sentences of the same kind might move it.",
        ),
        table(("", "BLEU", "95 % interval", "chrF"), rows, numbers=(1, 2, 3), class_="scores"),
        *(tag("p", sentence) for sentence in others),
        _signatures(lines),
    )


def _scored_on(own: JsonMap, baselines: JsonMap) -> str:
    mine, theirs = judged_on(own), judged_on(baselines)
    pairs = real(baselines, "train_pairs")
    looked = f" The nearest sentence was looked for in {count(pairs)} training pairs." if pairs is not None else ""
    if mine and theirs and mine != theirs:
        return f"The model on {mine}, the baselines on {theirs}.{looked}"
    return f"Scored on {mine or theirs or 'an unnamed set'}.{looked}"


def _signatures(lines: list[tuple[str, JsonMap]]) -> Markup | None:
    found = {
        f"{label(metric)} {signature}": (label(metric), signature)
        for _, data in lines
        for metric in ("bleu", "chrf", *OTHER_CONVENTIONS)
        if (signature := text(data, metric, "signature"))
    }
    if not found:
        return None
    return details("Signatures (how the scores were computed)", facts((m, tag("code", s)) for m, s in found.values()))


def samples(run: RunFiles, target: TargetFiles) -> Markup | None:
    """Source, reference and translation side by side."""
    chosen = objects(target.facts, "samples")
    if not chosen:
        references = _references(run)
        chosen = [
            {
                "source": entry.get("source"),
                "translation": entry.get("text"),
                "reference": references.get(str(entry.get("source"))),
            }
            for entry in objects(target.bundle, "golden")
        ]
    if not chosen:
        return None
    source, aim = run.languages or ("source", "target")
    cards = []
    for sample in chosen[:MOST_SAMPLES]:
        lines = (("source", source), ("reference", aim), ("translation", aim))
        cards.append(
            [
                join(tag("dt", name), tag("dd", text(sample, name) or DASH, lang=language, dir="auto", class_=name))
                for name, language in lines
            ]
        )
    return tag("div", [tag("dl", card) for card in cards], class_="samples")


def _references(run: RunFiles) -> dict[str, str]:
    reader = Reader(run.path)
    found: dict[str, str] = {}
    for split in ("valid", "test"):
        sides = (reader.lines("prepare", f"{split}.{side}.txt") for side in ("source", "target"))
        found.update(zip(*sides, strict=False))
    return found
