"""The headline of a target: the verdict, the figures that matter, what was kept and why, and how to use it."""

from __future__ import annotations

from fitformer.report.inputs import RunFiles, TargetFiles
from fitformer.report.markup import Child, Markup, join, tag
from fitformer.report.reading import mapping, objects, real, text
from fitformer.report.wording import count, interval, milliseconds, percent, score, sentence, size


def headline(run: RunFiles, target: TargetFiles) -> Markup:
    """Verdict in a sentence, the figures that matter as tiles, what was kept and why, and how to use it."""
    tiles = [tile for tile in _tiles(run, target) if tile]
    reason = text(target.decision, "reason")
    unmeasured = target.not_measured
    return join(
        tag("p", _verdict(target), class_="verdict"),
        tag("div", tiles, class_="tiles") if tiles else None,
        tag("p", sentence(f"Not measured: {unmeasured}. Other latencies here are this machine's"))
        if unmeasured
        else None,
        tag("p", sentence(reason)) if reason else None,
        _conditions(target),
        _use(target),
    )


def _verdict(target: TargetFiles) -> Child:
    latency, limit = target.shipped_ms, target.limit_ms
    if latency is None:
        evaluated = len(target.history)
        return f"Not finished: {count(evaluated)} architectures evaluated so far." if evaluated else "Not finished yet."
    what = "The bundle takes" if target.bundle else "The found architecture takes"
    if target.not_measured:
        what = what.replace("takes", f"is predicted to take on {target.device}")
    batch = real(target.bundle, "latency", 0, "batch_size") or 1
    figure = join(
        tag("strong", milliseconds(latency)), " per sentence" if batch == 1 else f" per batch of {count(batch)}"
    )
    if limit is None:
        return join(what, " ", figure, " (no limit was set).")
    good = latency <= limit
    badge = tag("span", "within the limit" if good else "over the limit", class_="badge good" if good else "badge bad")
    return join(what, " ", figure, ", the limit is ", tag("strong", milliseconds(limit)), ". ", badge)


def _tiles(run: RunFiles, target: TargetFiles) -> list[Markup]:
    tiles = []
    for precision in ("fp32", "int8"):
        latency = target.latency_ms(precision)
        if latency is not None:
            note = "kept" if precision == target.precision else "not kept"
            note += ", on this machine" if target.not_measured else ""
            tiles.append(_tile(milliseconds(latency), f"latency {precision}", note))
    if (not tiles or target.not_measured) and target.shipped_ms is not None:
        known = "predicted" if target.not_measured else "measured by the search"
        tiles.insert(0, _tile(milliseconds(target.shipped_ms), "latency", known))
    if target.limit_ms is not None:
        largest = run.largest_ms(target.device)
        share = f"{percent(100 * target.limit_ms / largest)} of the largest, {milliseconds(largest)}" if largest else ""
        tiles.append(_tile(milliseconds(target.limit_ms), "limit", share))
    bleu = mapping(target.scores, "bleu")
    if (value := real(bleu, "score")) is not None:
        tiles.append(_tile(score(value), "BLEU", f"95 %: {interval(bleu)}"))
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
    words = {"source_length": "{} tokens in", "target_length": "{} tokens out", "batch_size": "batch {}"}
    words |= {"beam": "beam {}", "threads": "threads: {}"}
    timed = [form.format(value) for key, form in words.items() if (value := text(record, key))]
    beam = text(target.bundle, "decoding", "beam")
    scored = f" BLEU is that of the bundle's own settings, beam {beam}" if beam and target.scores else ""
    median = real(target.scores, "latency_ms", "median")
    line = f"a line of the {text(target.scores, 'split')} set takes {milliseconds(median)}"
    spent = f"; with them {line}, tokenization included" if median is not None else ""
    end = f"{scored}{spent}." if scored else ""
    return tag("p", f"Latency was timed with {', '.join(timed)}.{end}", class_="aside") if timed else None


def _use(target: TargetFiles) -> Markup | None:
    if not target.bundle_path:
        return None
    command = f"fitformer translate {_shell_word(target.bundle_path)} -i FILE"
    where = f". In the folder that holds {target.bundle_path.partition('/')[0]}, try "
    return tag("p", "The bundle is ", tag("code", target.bundle_path), where, tag("code", command))


def _shell_word(path: str) -> str:
    plain = all(character.isalnum() or character in "/._-@%+=:," for character in path)
    return path if plain else "'" + path.replace("'", "'\\''") + "'"
