"""The bundle of a target: the decision about int8, the check before it was let out, and its own measurements."""

from __future__ import annotations

from collections.abc import Mapping

from fitformer.report.inputs import TargetFiles
from fitformer.report.markup import Child, Markup, facts, join, table, tag
from fitformer.report.reading import JsonMap, items, mapping, objects, pick, real, text
from fitformer.report.wording import (
    DASH,
    count,
    listing,
    milliseconds,
    number,
    score,
    sentence,
    size,
)


def compression(target: TargetFiles) -> Markup | None:
    """fp32 and int8 side by side, and why one was kept."""
    decision = target.decision
    if not decision:
        return None
    rows: list[list[Child]] = []
    for name in ("fp32", "int8"):
        latency, bleu = real(decision, f"{name}_ms"), real(decision, f"{name}_bleu")
        if latency is not None or bleu is not None:
            kept = tag("span", "kept", class_="badge good") if name == text(decision, "kept") else None
            rows.append(
                [join(name, " ", kept), milliseconds(latency), score(bleu), size(real(decision, "bytes", name))]
            )
    note = "The two were timed in turns; BLEU here is that of the validation set." if len(rows) > 1 else None
    return join(
        tag("p", sentence(text(decision, "reason"))),
        table(("", "latency", "BLEU", "size on disk"), rows, numbers=(1, 2, 3)) if rows else None,
        tag("p", note, class_="aside") if note else None,
    )


def export_check(target: TargetFiles) -> Markup | None:
    """What was checked before the bundle was let out, and what it holds."""
    if not target.bundle:
        return None
    bundle, decoding = target.bundle, mapping(target.bundle, "decoding")
    speed = real(target.scores, "sentences_per_s")
    pairs: list[tuple[Child, Child]] = [
        ("precision", text(bundle, "precision")),
        ("decoding", listing(decoding) if decoding else None),
        ("longest source", f"{tokens} tokens" if (tokens := text(bundle, "max_source_length")) else None),
        ("throughput", f"{number(speed)} lines per second in batches" if speed is not None else None),
        ("golden outputs", count(len(items(bundle, "golden")))),
        ("files", ", ".join(map(str, mapping(bundle, "files")))),
        ("bundle format", text(bundle, "format_version")),
        ("exporter version", text(bundle, "exporter_version")),
        ("licence of the training text", text(bundle, "licence")),
    ]
    return join(_comparison(target), facts(pairs), _latencies(objects(bundle, "latency")))


def _comparison(target: TargetFiles) -> Markup | None:
    """Tokens of the runtime against those of PyTorch, per precision."""
    checks = [check for check in mapping(target.facts, "check").values() if isinstance(check, Mapping)]
    rows: list[list[Child]] = []
    for check in checks:
        agreement = real(check, "next_token_agreement")
        rows.append(
            [
                text(check, "precision") or DASH,
                count(real(check, "sentences")),
                _compared(mapping(check, "greedy")),
                _compared(mapping(check, "beam")),
                DASH if agreement is None else f"{100 * agreement:.1f} %",
                number(real(check, "max_logit_difference"), 2),
            ]
        )
    if not rows:
        return None
    head = (
        "",
        "sentences",
        "greedy: same tokens",
        "beam: same tokens",
        "next token the same",
        "largest difference of a logit",
    )
    lead = (
        "Validation sentences were translated by PyTorch and by the bundle's runtime. In fp32 the tokens must be the "
        "same, but for ties that rounding explains, or there would be no bundle; in int8 they may differ."
    )
    return join(tag("p", lead), table(head, rows, numbers=(1, 4, 5)))


def _compared(found: JsonMap) -> Child:
    """Sentences with the same tokens, and what the others are."""
    equal, ties, different = (real(found, key) for key in ("equal", "ties", "different"))
    words = ((ties, "tie" if ties == 1 else "ties"), (different, "different"))
    rest = [f"{count(number_)} {word}" for number_, word in words if number_]
    if rest:
        return f"{count(equal)}, {', '.join(rest)}"
    return join(count(equal), " ", tag("span", "all", class_="badge good") if equal else None)


def _latencies(records: list[JsonMap]) -> Markup | None:
    """The bundle's own measurements with their conditions."""
    if not records:
        return None
    rows: list[list[Child]] = []
    for record in records:
        lengths = f"{text(record, 'source_length') or DASH}, {text(record, 'target_length') or DASH}"
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
