"""What stands behind the result: devices and predictors, training, the text, time spent, versions."""

from __future__ import annotations

from collections.abc import Sequence

from fitformer.progress import duration
from fitformer.report import figures
from fitformer.report.inputs import DeviceFiles, RunFiles, StageState
from fitformer.report.markup import Child, Markup, details, facts, join, table, tag
from fitformer.report.reading import JsonMap, items, mapping, real, text
from fitformer.report.wording import DASH, count, date, label, listing, milliseconds, number, percent

TRAINING_SETTINGS = (
    "updates",
    "batch_tokens",
    "learning_rate",
    "dropout",
    "label_smoothing",
    "average_last",
    "start",
    "precision",
)
REASONS = {
    "empty": "a side is empty",
    "too_long": "a side is too long",
    "ratio": "one side is far longer than the other",
    "too_many_tokens": "too many tokens",
    "in_evaluation": "the source is in the validation or test set",
    "repeated": "the pair occurred before",
}


def predictor(device: DeviceFiles) -> Markup | None:
    """How well latency is predicted: figures and the two charts."""
    quality = device.quality
    if not quality and not device.records:
        return _given_predictor(device.stage.facts)
    correlation = "1 = every pair of architectures in the right order, 0 = chance"
    rows: list[list[Child]] = [
        [
            "mean error (MAPE)",
            percent(real(quality, "mape")),
            f"one number for all: {percent(real(quality, 'baseline_mape'))}",
        ],
        ["root mean square error", milliseconds(real(quality, "rmse_ms")), "large errors count more"],
        ["R\u00b2", number(real(quality, "r2")), "share of the differences that is explained"],
        [
            "R\u00b2 within equal depth",
            number(real(quality, "r2_within_depth")),
            "the same where depth alone explains nothing",
        ],
        ["rank correlation (Kendall)", number(real(quality, "kendall_tau")), correlation],
        ["within 5 %", percent(real(quality, "within_5")), "of the predictions"],
        ["within 10 %", percent(real(quality, "within_10")), "of the predictions"],
    ]
    samples = real(quality, "num_samples")
    lead = f"Judged on {count(samples)} architectures, each predicted without having been seen." if quality else None
    charts = [
        chart.html() for chart in (figures.predictor_quality(device), figures.drift(device)) if not chart.is_empty
    ]
    return join(
        tag("p", lead) if lead else None,
        table(("", "", "meaning"), rows, numbers=(1,)) if quality else None,
        tag("div", charts, class_="charts"),
        _measured_facts(device),
    )


def _given_predictor(found: JsonMap) -> Markup | None:
    """What is known of a predictor that was made elsewhere."""
    file = text(found, "predictor")
    if file is None:
        return None
    conditions, outside = mapping(found, "conditions"), real(found, "outside")
    features = ", ".join(map(str, items(found, "outside_features")))
    return join(
        tag("p", "This device is not at hand: nothing was measured, and the search trusts a predictor made elsewhere."),
        facts(
            [
                ("predictor", tag("code", file.replace("\\", "/").rpartition("/")[2])),
                ("the space's smallest architecture", milliseconds(real(found, "smallest_ms"))),
                ("its largest", milliseconds(real(found, "largest_ms"))),
                ("conditions", listing(conditions) if conditions else None),
                ("to be known", text(found, "conditions_note")),
                ("of the space outside what it was fitted to", f"{percent(outside)} ({features})" if outside else None),
            ]
        ),
    )


def _measured_facts(device: DeviceFiles) -> Markup:
    found, records = device.stage.facts, device.records
    latencies = [ms for record in records if (ms := real(record, "latency_ms")) is not None]
    drifted = real(found, "drifted")
    flagged = sum(text(record, "drifted") == "1" for record in records) if drifted is None else drifted
    conditions = mapping(device.predictor, "conditions") or {
        key: value
        for key in ("threads", "batch_size", "beam", "source_length", "target_length", "exporter_version")
        if records and (value := text(records[0], key))
    }
    return facts(
        [
            ("architectures measured", count(len(records)) if records else None),
            (
                "fastest and slowest",
                f"{milliseconds(min(latencies))}, {milliseconds(max(latencies))}" if latencies else None,
            ),
            ("repeats each", text(records[0], "repeats") if records else None),
            ("flagged as drifted", count(flagged) if records else None),
            ("blocks repeated", text(found, "repeated")),
            ("conditions", listing(conditions) if conditions else None),
        ]
    )


def search_facts(stage: StageState) -> Markup:
    """How much was searched and how far the predictor was off in the end."""
    found = stage.facts
    error, margin = real(found, "predictor_error"), real(stage.inputs, "search", "margin")
    return facts(
        [
            ("architectures evaluated", text(found, "evaluations")),
            ("generations", text(found, "generations")),
            ("of them without a better one, at the end", text(found, "generations_without_gain")),
            ("architectures measured", text(found, "measured")),
            ("rounds of measuring", text(found, "rounds")),
            ("prediction was off by", f"{percent(error)} for those of the last round" if error is not None else None),
            ("margin kept to the limit", percent(100 * margin) if margin is not None else None),
        ]
    )


def device_card(device: DeviceFiles) -> Markup | None:
    """The machine that the latencies hold for."""
    card = device.card
    if not card:
        return None
    memory = real(card, "memory_gib")
    versions = mapping(card, "versions")
    return facts(
        [
            ("processor", text(card, "cpu")),
            ("cores, threads used", f"{text(card, 'cores') or DASH}, {text(card, 'threads') or DASH}"),
            ("governor", text(card, "governor")),
            ("memory", None if memory is None else f"{number(memory)} GiB"),
            ("system", text(card, "system")),
            ("Python", text(card, "python")),
            ("versions", listing(versions) if versions else None),
            ("date", date(text(card, "date"))),
        ]
    )


def training(log: Sequence[JsonMap], stage: StageState, section: str) -> Markup | None:
    """Curves, final figures and the settings of one training; ``section`` is the recipe's."""
    if not log and not stage.facts:
        return None
    last: dict[str, object] = {}
    for line in log:
        last.update(line)
    settings = mapping(stage.inputs, section)
    valid = mapping(stage.facts, "valid") or mapping(last, "valid")
    updates = real(stage.facts, "updates") or real(last, "update")
    wanted, tokens = real(settings, "updates"), real(stage.facts, "target_tokens") or real(last, "target_tokens")
    charts = [chart.html() for chart in (figures.losses(log), *figures.rates(log)) if not chart.is_empty]
    speed = real(last, "tokens_per_s")
    shown = {key: settings[key] for key in TRAINING_SETTINGS if key in settings}
    averaged = real(stage.facts, "averaged")
    return join(
        tag("div", charts, class_="charts"),
        facts(
            [
                ("updates", _of(updates, wanted)),
                ("target tokens seen", count(tokens) if tokens is not None else None),
                ("epochs", text(stage.facts, "epochs") or text(last, "epoch")),
                ("speed", f"{count(speed)} target tokens per second" if speed is not None else None),
                (
                    "validation loss",
                    ", ".join(f"{label(str(k))} {number(real(v), 4)}" for k, v in valid.items()) or None,
                ),
                ("weights", f"mean of {averaged:.0f} snapshots" if averaged is not None and averaged > 1 else None),
                *_other_models(stage.facts),
                ("settings", listing(shown) if shown else None),
            ]
        ),
    )


def _other_models(found: JsonMap) -> list[tuple[str, Child]]:
    """The bundle that a training went on from, and its teacher."""
    rows: list[tuple[str, Child]] = []
    if (name := text(found, "began_with", "name")) is not None:
        weights = "its 8-bit weights made float again" if mapping(found, "began_with").get("dequantised") else "fp32"
        rows.append(("began with the bundle", f"{name} ({weights})"))
    taught = mapping(found, "distillation")
    if (name := text(found, "teacher", "name")) is not None:
        kind, beam = text(found, "teacher", "kind"), text(found, "teacher", "beam")
        rows.append(("teacher", f"{name} ({kind}, beam {beam})"))
        also = ", beside those of the text" if text(taught, "targets") == "beside" else ""
        used, lines = real(taught, "translated"), real(taught, "lines")
        rows.append(("learned in the teacher's translation", f"{_of(used, lines)} lines{also}" if lines else None))
    return rows


def _of(done: float | None, wanted: float | None) -> str | None:
    if done is None:
        return None
    return f"{count(done)} of {count(wanted)}" if wanted is not None and done < wanted else count(done)


def data(run: RunFiles) -> Markup | None:
    """Which text the model learned from: kept and dropped pairs, tokens, vocabulary, licence, files."""
    stats = run.stats
    if not stats:
        return None
    splits = [(name, mapping(stats, name)) for name in ("train", "valid", "test") if mapping(stats, name)]
    rows: list[list[Child]] = [
        [
            name,
            count(real(split, "read")),
            count(real(split, "pairs")),
            count(real(split, "tokens", "source")),
            count(real(split, "tokens", "target")),
            ", ".join(number(real(split, "median_lengths", side), 2) for side in ("source", "target")),
        ]
        for name, split in splits
    ]
    dropped = [
        (name, REASONS.get(str(reason), label(str(reason))), count(real(amount)))
        for name, split in splits
        for reason, amount in mapping(split, "dropped").items()
        if real(amount)
    ]
    vocabulary = mapping(stats, "vocab_size")
    sizes = f"{count(real(vocabulary, 'source'))} source, {count(real(vocabulary, 'target'))} target"
    kept_whole = [str(item) for item in items(stats, "tokenizer", "kept_whole")]
    held_out = real(stats, "train", "held_out")
    files = [(split, name, checksum) for split, name, checksum in _input_files(stats)]
    return join(
        table(
            ("", "pairs read", "kept", "source tokens", "target tokens", "median lengths"),
            rows,
            numbers=(1, 2, 3, 4, 5),
        ),
        tag("h4", "Pairs left out, by reason"),
        table(("set", "reason", "pairs"), dropped, numbers=(2,)) if dropped else tag("p", "None."),
        facts(
            [
                ("licence, as stated", text(stats, "licence")),
                ("held out of the training text", count(held_out) if held_out else None),
                ("subword vocabulary", f"{sizes} ({text(stats, 'tokenizer', 'kind') or DASH})" if vocabulary else None),
                ("kept whole", tag("code", "  ".join(kept_whole[:30])) if kept_whole else None),
            ]
        ),
        details("Files and checksums", table(("set", "file", "SHA-256"), files, class_="small")) if files else None,
    )


def _input_files(stats: JsonMap) -> list[tuple[str, str, Child]]:
    found: list[tuple[str, str, Child]] = []
    for split, files in mapping(stats, "inputs").items():
        for name, checksum in mapping(files).items():
            shown = str(name).replace("\\", "/").rpartition("/")[2]  # the name says enough
            found.append((str(split), shown, tag("code", str(checksum)[:64])))
    return found


def time_spent(run: RunFiles) -> Markup:
    """A bar per stage."""
    longest = max((stage.seconds or 0.0 for stage in run.stages), default=0.0) or 1.0
    total = sum(stage.seconds or 0.0 for stage in run.stages)
    rows: list[list[Child]] = []
    for stage in run.stages:
        bar = tag("meter", value=stage.seconds, max=longest, aria_hidden="true") if stage.seconds is not None else None
        again = f", {stage.sessions} sessions" if stage.sessions > 1 else ""
        state = date(stage.finished) if stage.state == "done" else {"begun": "under way"}.get(stage.state, stage.state)
        took = duration(stage.seconds) if stage.seconds is not None else DASH
        rows.append([join(stage.title, bar), took, f"{state}{again}"])
    rows.append([tag("strong", "together"), tag("strong", duration(total)), ""])
    return table(("stage", "time", "finished"), rows, numbers=(1,), class_="times")


def provenance(run: RunFiles) -> Markup:
    """Versions, seed and recipe: what it takes to do it again."""
    bundles = [target.bundle for target in run.targets if target.bundle]
    cards = [device.card for device in run.devices if device.card]
    versions = next((text(bundle, "fitformer_version") for bundle in bundles), None)
    seed = run.recipe.get("seed")
    if seed is None:
        seed = next((real(stage.inputs, "seed") for stage in run.stages if "seed" in stage.inputs), None)
    exporters = {text(bundle, "exporter_version") for bundle in bundles} - {None}
    return join(
        facts(
            [
                ("seed", f"{seed:g}" if isinstance(seed, int | float) else None),
                ("fitformer", versions or next((text(card, "versions", "fitformer") for card in cards), None)),
                ("exporter version", ", ".join(sorted(map(str, exporters)))),
                ("architectures in the space", _about(space.size()) if (space := run.space) else None),
            ]
        ),
        details("The recipe, with every setting", tag("pre", tag("code", run.recipe_text)))
        if run.recipe_text.strip()
        else None,
    )


def _about(size: int) -> Child:
    """A number of any size: in full while it can be read, else as a power of ten."""
    if size < 1_000_000:
        return count(size)
    power = len(str(size)) - 1
    return join(f"about {size // 10 ** (power - 1) / 10:g} \u00d7 10", tag("sup", power))
