"""What came out for one target: the headline, the decision about int8, scores, samples and the check of the bundle."""

from __future__ import annotations

from fitformer.report.inputs import RunFiles, TargetFiles
from fitformer.report.markup import Child, Markup, details, facts, join, table, tag
from fitformer.report.reading import JsonMap, Reader, items, mapping, objects, pick, real, text
from fitformer.report.wording import DASH, count, factor, label, listing, milliseconds, number, percent, score, size

MOST_SAMPLES = 20


def headline(run: RunFiles, target: TargetFiles) -> Markup:
    """Verdict in a sentence, the figures that matter as tiles, what was kept and why, and how to use it."""
    tiles = [tile for tile in _tiles(run, target) if tile]
    reason = text(target.decision, "reason")
    kept = f"Kept: {target.precision}. " if target.precision else ""
    return join(
        tag("p", _verdict(target), class_="verdict"),
        tag("div", tiles, class_="tiles") if tiles else None,
        tag("p", kept, _sentence(reason)) if kept or reason else None,
        _conditions(target),
        _use(target),
    )


def _verdict(target: TargetFiles) -> Child:
    latency, limit = target.shipped_ms, target.limit_ms
    if latency is None:
        evaluated = len(target.history)
        return f"Not finished: {count(evaluated)} architectures evaluated so far." if evaluated else "Not finished yet."
    what = "The bundle takes" if target.bundle else "The found architecture takes"
    figure = tag("strong", milliseconds(latency))
    if limit is None:
        return join(what, " ", figure, " per sentence (no limit was set).")
    good = latency <= limit
    badge = tag("span", "within the limit" if good else "over the limit", class_="badge good" if good else "badge bad")
    return join(what, " ", figure, " per sentence, the limit is ", tag("strong", milliseconds(limit)), ". ", badge)


def _tiles(run: RunFiles, target: TargetFiles) -> list[Markup]:
    tiles = []
    for precision in ("fp32", "int8"):
        latency = target.latency_ms(precision)
        if latency is not None:
            note = "in the bundle" if precision == target.precision else "not kept"
            tiles.append(_tile(milliseconds(latency), f"latency {precision}", note))
    if not tiles and target.shipped_ms is not None:
        tiles.append(_tile(milliseconds(target.shipped_ms), "latency", "measured by the search"))
    if target.limit_ms is not None:
        largest = run.largest_ms(target.device)
        share = f"{percent(100 * target.limit_ms / largest)} of the largest, {milliseconds(largest)}" if largest else ""
        tiles.append(_tile(milliseconds(target.limit_ms), "limit", share))
    bleu = real(target.bundle, "scores", "bleu", "score")
    if bleu is not None:
        tiles.append(_tile(score(bleu), "BLEU", _interval(mapping(target.bundle, "scores", "bleu"))))
    if target.bundle_bytes is not None:
        tiles.append(_tile(size(target.bundle_bytes), "bundle", f"{len(mapping(target.bundle, 'files')) + 1} files"))
    return tiles


def _tile(value: str, name: str, note: str = "") -> Markup:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value"),
        tag("div", note, class_="note") if note else None,
        class_="tile",
    )


def _conditions(target: TargetFiles) -> Markup | None:
    """How latency and BLEU were taken: they differ, since a latency is timed greedily and a bundle may search wider."""
    record = next(iter(objects(target.bundle, "latency")), None)
    if record is None:
        return None
    names = {
        "source_length": "tokens in",
        "target_length": "tokens out",
        "threads": "threads",
        "batch_size": "batch",
        "beam": "beam",
    }
    timed = [f"{name} {value}" for key, name in names.items() if (value := text(record, key))]
    beam = text(target.bundle, "decoding", "beam")
    scored = f" BLEU is that of the bundle's own settings, beam {beam}." if beam and "scores" in target.bundle else ""
    return tag("p", f"Latency was timed with {', '.join(timed)}.{scored}", class_="aside") if timed else None


def _use(target: TargetFiles) -> Markup | None:
    if not target.bundle_path:
        return None
    command = f"fitformer translate {_shell_word(target.bundle_path)} -i FILE"
    return tag("p", "The bundle is ", tag("code", target.bundle_path), ". Try it: ", tag("code", command))


def _shell_word(path: str) -> str:
    plain = all(character.isalnum() or character in "/._-@%+=:," for character in path)
    return path if plain else "'" + path.replace("'", "'\\''") + "'"


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
        ("judged on", _judged_on(decision)),
    ]
    head = ("", "latency", "BLEU", "size of the graphs")
    return join(
        tag("p", _sentence(text(decision, "reason"))),
        table(head, rows, numbers=(1, 2, 3)) if rows else None,
        facts(pairs),
    )


def _ratio(first: JsonMap, second: JsonMap, key: str) -> float | None:
    above, below = real(first, key), real(second, key)
    return above / below if above is not None and below else None


def _judged_on(data: JsonMap) -> str | None:
    sentences, split = real(data, "sentences"), text(data, "split")
    if sentences is None:
        return f"the {split} set" if split else None
    return f"{count(sentences)} sentences" + (f" of the {split} set" if split else "")


def scores(run: RunFiles, target: TargetFiles) -> Markup | None:
    """BLEU and chrF of the bundle beside the two plain baselines, with signatures."""
    own = mapping(target.bundle, "scores")
    lines = [
        ("this model", own),
        ("copy the translation of the nearest training sentence", mapping(run.baselines, "nearest_translation")),
        ("copy the source", mapping(run.baselines, "copy_source")),
    ]
    lines = [(name, data) for name, data in lines if data]
    if not lines:
        return None
    most = max((real(data, "bleu", "score") or 0.0 for _, data in lines), default=0.0) or 1.0
    rows: list[list[Child]] = []
    for name, data in lines:
        bleu = real(data, "bleu", "score")
        meter = tag("meter", value=bleu or 0.0, max=most, aria_hidden="true")
        interval = _interval(mapping(data, "bleu"))
        rows.append([join(name, meter), score(bleu), interval, score(real(data, "chrf", "score"))])
    legacy = real(own, "legacy_bleu", "score")
    lower = (
        f"Lower-cased and tokenised, as older papers report it, the BLEU is {score(legacy)} "
        f"({_interval(mapping(own, 'legacy_bleu'))}). Compare it with such figures only."
    )
    return join(
        tag(
            "p",
            _scored_on(run, own),
            " Higher is better; the interval says how far other sentences of the same kind might move it.",
        ),
        table(("", "BLEU", "95 % interval", "chrF"), rows, numbers=(1, 2, 3), class_="scores"),
        tag("p", lower) if legacy is not None else None,
        _signatures(lines),
    )


def _scored_on(run: RunFiles, own: JsonMap) -> str:
    mine, theirs = _judged_on(own), _judged_on(run.baselines)
    pairs = real(run.baselines, "train_pairs")
    looked = f" The nearest sentence was looked for in {count(pairs)} training pairs." if pairs is not None else ""
    if mine and theirs and mine != theirs:
        return f"The model on {mine}, the baselines on {theirs}.{looked}"
    return f"Scored on {mine or theirs or 'an unnamed set'}.{looked}"


def _interval(data: JsonMap) -> str:
    low, high = real(data, "interval", 0), real(data, "interval", 1)
    return f"{low:.1f} to {high:.1f}" if low is not None and high is not None else DASH


def _signatures(lines: list[tuple[str, JsonMap]]) -> Markup | None:
    found = {
        f"{label(metric)} {signature}": (label(metric), signature)
        for _, data in lines
        for metric in ("bleu", "chrf", "legacy_bleu")
        if (signature := text(data, metric, "signature"))
    }
    if not found:
        return None
    return details("Signatures (how the scores were computed)", facts((m, tag("code", s)) for m, s in found.values()))


def samples(run: RunFiles, target: TargetFiles) -> Markup | None:
    """Source, reference and translation side by side."""
    chosen = objects(target.stages["export"].facts, "samples")
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
        work = f"batch {text(record, 'batch_size') or DASH}, beam {text(record, 'beam') or DASH}, threads {text(record, 'threads') or DASH}"
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


def _sentence(reason: str | None) -> str | None:
    """A reason as a sentence: with a capital and a full stop, whoever wrote it."""
    if not reason:
        return None
    return reason if reason.endswith((".", "!")) else f"{reason}."
