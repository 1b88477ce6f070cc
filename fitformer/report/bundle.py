"""The bundle of a target: the decision about int8, the check before it was let out, and its own measurements."""

from __future__ import annotations

from fitformer.report.inputs import TargetFiles
from fitformer.report.markup import Child, Markup, facts, join, table, tag
from fitformer.report.reading import JsonMap, items, mapping, objects, pick, real, text
from fitformer.report.wording import (
    DASH,
    count,
    factor,
    judged_on,
    listing,
    milliseconds,
    number,
    percent,
    score,
    sentence,
    size,
)


def compression(target: TargetFiles) -> Markup | None:
    """fp32 and int8 side by side, and why one was kept."""
    decision = target.decision
    fp32, int8 = mapping(decision, "fp32"), mapping(decision, "int8")
    if not decision:
        return None
    rows: list[list[Child]] = []
    for name, side in (("fp32", fp32), ("int8", int8)):
        if side:
            kept = tag("span", "kept", class_="badge good") if name == text(decision, "kept") else None
            figures = milliseconds(real(side, "latency_ms")), score(real(side, "bleu")), size(real(side, "size_bytes"))
            rows.append([join(name, " ", kept), *figures])
    speed, change = _ratio(fp32, int8, "latency_ms"), None
    if (before := real(fp32, "bleu")) is not None and (after := real(int8, "bleu")) is not None:
        change = f"{after - before:+.2f} (allowed loss: {text(decision, 'allowed_bleu_loss') or DASH})"
    agreement = real(decision, "agreement")
    pairs: list[tuple[Child, Child]] = [
        ("speed of int8", f"{factor(speed)} that of fp32" if speed is not None else None),
        ("BLEU of int8 over fp32", change),
        ("same tokens as fp32", None if agreement is None else f"{percent(agreement)} of sentences"),
        ("judged on", judged_on(decision)),
    ]
    head = ("", "latency", "BLEU", "size of the graphs")
    return join(
        tag("p", sentence(text(decision, "reason"))),
        table(head, rows, numbers=(1, 2, 3)) if rows else None,
        facts(pairs),
    )


def _ratio(first: JsonMap, second: JsonMap, key: str) -> float | None:
    above, below = real(first, key), real(second, key)
    return above / below if above is not None and below else None


def export_check(target: TargetFiles) -> Markup | None:
    """What was checked before the bundle was let out, and what it holds."""
    if not target.bundle:
        return None
    stage, bundle = target.stages["export"], target.bundle
    check = mapping(stage.facts, "check")
    sentences, identical = real(check, "sentences"), real(check, "identical")
    said: Child = None
    if sentences is not None and identical is not None:
        good = identical == sentences
        badge = tag(
            "span",
            "all the same" if good else f"{count(sentences - identical)} differ",
            class_=f"badge {'good' if good else 'bad'}",
        )
        precision = text(check, "precision") or "fp32"
        where = f" of the {split} set" if (split := text(check, "split")) else ""
        said = join(
            f"PyTorch and the bundle's runtime ({precision}) translated {count(sentences)} sentences{where}; "
            f"{count(identical)} came out with the same tokens. ",
            badge,
        )
    decoding = mapping(bundle, "decoding")
    pairs: list[tuple[Child, Child]] = [
        ("precision", text(bundle, "precision")),
        ("decoding", listing(decoding) if decoding else None),
        ("longest source", f"{tokens} tokens" if (tokens := text(bundle, "max_source_length")) else None),
        ("golden outputs", count(len(items(bundle, "golden")))),
        ("files", tag("span", ", ".join(map(str, mapping(bundle, "files"))))),
        (
            "bundle format, exporter",
            f"{text(bundle, 'format_version') or DASH}, {text(bundle, 'exporter_version') or DASH}",
        ),
        ("licence of the training text", text(bundle, "licence")),
    ]
    return join(tag("p", said) if said else None, facts(pairs), _latencies(objects(bundle, "latency")))


def _latencies(records: list[JsonMap]) -> Markup | None:
    """The bundle's own measurements with their conditions."""
    if not records:
        return None
    rows: list[list[Child]] = []
    for record in records:
        lengths = f"{text(record, 'source_length') or DASH} to {text(record, 'target_length') or DASH}"
        names = {"batch_size": "batch", "beam": "beam", "threads": "threads"}
        work = ", ".join(f"{name} {text(record, key) or DASH}" for key, name in names.items())
        spread = real(record, "std_ms")
        rows.append(
            [
                join(
                    milliseconds(real(record, "latency_ms")),
                    f" \u00b1 {number(spread, 2)}" if spread is not None else None,
                ),
                milliseconds(real(record, "encoder_ms")),
                milliseconds(real(record, "decoder_ms")),
                lengths,
                work,
                text(pick(record, "device"), "cpu") or DASH,
            ]
        )
    head = ("latency", "encoder", "decode loop", "tokens in, out", "work", "processor")
    return table(head, rows, numbers=(0, 1, 2))
