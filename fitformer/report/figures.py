"""The charts of a run: trade-off, course of the search, predictor, drift of the device, training curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from fitformer.report.charts import (
    LINE_COLOURS,
    Chart,
    Trace,
    band,
    curve,
    hover_lines,
    layout,
    points,
    segments,
    vertical,
)
from fitformer.report.inputs import DeviceFiles, TargetFiles
from fitformer.report.reading import JsonMap, items, mapping, real, text
from fitformer.report.wording import milliseconds, number, percent

LATENCY = "latency, milliseconds"
LOSS = "validation loss per token"
LAYERS_PER_LINE = 2  # in a hover box
USUAL_TOLERANCE = 0.05  # of the reference, where the recipe's own is not recorded


def tradeoff(target: TargetFiles) -> Chart:
    """Loss against latency of every evaluated architecture, with the front, the limit and what was measured."""
    history, front, finalists = target.history, target.front, _measured(target)
    limit = target.limit_ms
    traces = [
        points(
            f"evaluated ({len(history)})",
            [real(line, "predicted_ms") for line in history],
            [real(line, "valid_loss") for line in history],
            colour="--muted",
            hover=[_architecture_hover(line) for line in history],
            size=6,
            opacity=0.55,
        ),
        curve(
            "best at each latency",
            [real(line, "predicted_ms") for line in front],
            [real(line, "valid_loss") for line in front],
            colour="--line-1",
            step=True,
        )
        | {"hoverinfo": "skip"},
        segments(_moves(finalists), colour="--muted"),
        points(
            "measured finalists",
            [real(line, "measured_ms") for line in finalists],
            [real(line, "valid_loss") for line in finalists],
            colour="--line-2",
            hover=[_architecture_hover(line) for line in finalists],
            symbol="diamond",
            size=9,
        ),
        points(
            "chosen",
            [real(target.best, "predicted_ms" if target.not_measured else "measured_ms")],
            [real(target.best, "valid_loss")],
            colour="--signal",
            hover=[_architecture_hover({**target.best, "architecture": target.best.get("text")})],
            symbol="star",
            size=17,
        ),
    ]
    shapes, notes = [], []
    if limit is not None:
        shape, note = vertical(limit, f"limit {milliseconds(limit)}", colour="--signal")
        shapes, notes = [shape], [note]
    caption = (
        "Each point is one architecture: further left is faster, further down is better. Grey points stand at their "
        "predicted latency; diamonds and the star were timed for real, and a thin line leads to them from what had "
        "been predicted. Tap or point at one to see its layers."
    )
    return Chart("Latency against loss.", caption, traces, layout(LATENCY, LOSS, shapes=shapes, annotations=notes))


def search_course(target: TargetFiles) -> Chart:
    """The lowest loss within the limit so far, over the architectures in the order of evaluation."""
    limit = target.search_limit_ms if target.search_limit_ms is not None else math.inf
    losses = [
        loss
        if (loss := real(line, "valid_loss")) is not None and (real(line, "predicted_ms") or 0.0) <= limit
        else math.inf
        for line in target.history
    ]
    best = [None if math.isinf(value) else value for value in accumulate(losses, min)]
    numbers = list(range(1, len(best) + 1))
    caption = (
        "The lowest loss found so far among architectures predicted to keep the limit with the recipe's margin. "
        "A long flat end means that more search would hardly have helped."
    )
    traces = [curve("best so far", numbers, best, colour="--line-1", step=True)]
    return Chart("Course of the search.", caption, traces, layout("architectures evaluated", LOSS, showlegend=False))


def predictor_quality(device: DeviceFiles) -> Chart:
    """Held-out predictions against measurements, with the diagonal and 5 % to either side."""
    measured = [real(value) for value in items(device.quality, "measured_ms")]
    predicted = [real(value) for value in items(device.quality, "predicted_ms")]
    count = min(len(measured), len(predicted))
    measured, predicted = measured[:count], predicted[:count]
    records = device.records if len(device.records) == count else ({},) * count
    hover = [
        hover_lines(
            *_layers(text(record, "architecture")),
            f"measured {milliseconds(x)}, predicted {milliseconds(y)}",
            None if not x or y is None else f"off by {percent(100 * (y / x - 1))}",
        )
        for record, x, y in zip(records, measured, predicted, strict=True)
    ]
    values = [value for value in [*measured, *predicted] if value is not None]
    ends = [min(values, default=0.0), max(values, default=0.0)]
    traces = [
        curve("exact", ends, ends, colour="--muted", width=1, quiet=True),
        *(
            curve("", ends, [share * end for end in ends], colour="--muted", width=1, dash="dot", quiet=True)
            for share in (0.95, 1.05)
        ),
        points("architectures", measured, predicted, colour="--line-1", hover=hover),
    ]
    caption = (
        "Each point is an architecture that the predictor had not seen when it predicted it. On the solid line the "
        "prediction is exact; between the dotted ones it is off by less than 5 %."
    )
    shape = layout("measured, milliseconds", "predicted, milliseconds", showlegend=False)
    return Chart("Predicted against measured latency.", caption, traces if values else [], shape)


def drift(device: DeviceFiles) -> Chart:
    """The fixed reference model over the measurements, as a share of its usual time."""
    usual = usual_reference(device)
    tolerance = real(device.stage.inputs, "measure", "drift_tolerance") or USUAL_TOLERANCE
    numbers, steady, flagged, hover = [], [], [], []
    for place, record in enumerate(device.records, start=1):
        around = [real(record, key) for key in ("reference_before_ms", "reference_after_ms")]
        known = [value for value in around if value is not None]
        if not known or not usual:
            continue
        mean = sum(known) / len(known)
        share, drifted = 100 * mean / usual, text(record, "drifted") == "1"
        numbers.append(float(place))
        steady.append(None if drifted else share)
        flagged.append(share if drifted else None)
        hover.append(hover_lines(f"reference {milliseconds(mean)}", text(record, "timestamp"), drifted and "flagged"))
    shares = [a if a is not None else b for a, b in zip(steady, flagged, strict=True)]
    traces = [
        curve("reference", numbers, shares, colour="--muted", width=1, quiet=True),
        points("steady", numbers, steady, colour="--line-1", hover=hover, size=6),
        points("flagged as drifted", numbers, flagged, colour="--signal", hover=hover, size=6),
    ]
    caption = (
        "The same reference model is timed again and again between the others, in the order of measuring. It should "
        f"stay inside the stripe (within {percent(100 * tolerance)} of its usual {milliseconds(usual)}); a block of "
        "measurements during which it did not was repeated."
    )
    stripe = [band(100 * (1 - tolerance), 100 * (1 + tolerance), colour="--line-1")]
    shape = layout("measurement", "reference model, % of usual", shapes=stripe, showlegend=any(flagged))
    return Chart("Did the device keep its speed?", caption, traces, shape)


def usual_reference(device: DeviceFiles) -> float | None:
    """The usual time of the reference model in milliseconds: as recorded, else what the corrections refer to."""
    recorded = real(device.stage.facts, "reference_ms")
    if recorded is not None:
        return recorded
    for record in device.records:
        before, after = real(record, "reference_before_ms"), real(record, "reference_after_ms")
        correction = real(record, "correction")
        if None not in (before, after, correction) and correction != 1:
            assert before is not None and after is not None and correction is not None
            return correction * (before + after) / 2
    times = sorted(t for record in device.records if (t := real(record, "reference_before_ms")) is not None)
    return times[len(times) // 2] if times else None


def losses(log: Sequence[JsonMap]) -> Chart:
    """Training loss and each followed validation loss over the updates."""
    updates = [real(line, "update") for line in log]
    traces = [curve("training", updates, [real(line, "loss") for line in log], colour="--muted", width=1.5)]
    names = dict.fromkeys(str(name) for line in log for name in mapping(line, "valid"))
    for name, colour in zip(names, LINE_COLOURS * len(names), strict=False):
        values = [real(line, "valid", name) for line in log]
        traces.append(curve(_validation_name(name), updates, values, colour=colour, marks=True))
    several = len(names) > 2
    caption = (
        "The training loss is the mean over all architectures drawn (with dropout); the other lines follow single ones "
        "on the validation set: the largest, the smallest, and some that were drawn beforehand."
        if several
        else "Loss per target token on the training text (with dropout) and on the validation set."
    )
    axes = layout("update", "loss per token")
    axes["yaxis"] |= _without_start(traces)
    return Chart("Loss.", caption, traces, axes)


def _without_start(traces: Sequence[Trace]) -> JsonMap:
    """Range of the y axis that leaves out the first steep fall, beside which nothing else could be told apart."""
    last = max((trace["x"][-1] for trace in traces if trace["x"]), default=0.0)
    values = [y for trace in traces for x, y in zip(trace["x"], trace["y"], strict=True) if x >= 0.05 * last]
    if not values or min(values) == max(values):
        return {}
    margin = 0.05 * (max(values) - min(values))
    return {"range": [min(values) - margin, max(values) + margin]}


def rates(log: Sequence[JsonMap]) -> list[Chart]:
    """Learning rate and training speed over the updates."""
    updates = [real(line, "update") for line in log]
    charts = []
    for key, label, caption, title in (
        (
            "learning_rate",
            "Learning rate.",
            "It rises during the warm-up and then follows the schedule.",
            "learning rate",
        ),
        (
            "tokens_per_s",
            "Training speed.",
            "Target tokens per second, averaged since the start.",
            "target tokens per second",
        ),
    ):
        traces: list[Trace] = [curve(title, updates, [real(line, key) for line in log], colour="--line-1")]
        charts.append(Chart(label, caption, traces, layout("update", title, showlegend=False)))
    return charts


def _validation_name(name: str) -> str:
    return {"loss": "validation", "nll": "validation, no smoothing"}.get(name, f"validation, {name}")


def _measured(target: TargetFiles) -> list[JsonMap]:
    """Finalists with loss and prediction; a resumed search leaves some as bare measurements, found in the history."""
    known = {text(line, "architecture"): line for line in target.history}
    return [{**known.get(text(line, "architecture"), {}), **line} for line in target.finalists]


def _moves(finalists: Sequence[JsonMap]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    moves = []
    for line in finalists:
        loss, predicted, measured = (real(line, key) for key in ("valid_loss", "predicted_ms", "measured_ms"))
        if loss is not None and predicted is not None and measured is not None:
            moves.append(((predicted, loss), (measured, loss)))
    return moves


def _architecture_hover(line: JsonMap) -> str:
    measured, generation = real(line, "measured_ms"), real(line, "generation")
    return hover_lines(
        *_layers(text(line, "architecture")),
        f"loss {number(real(line, 'valid_loss'), 4)}",
        f"predicted {milliseconds(real(line, 'predicted_ms'))}",
        None if measured is None else f"measured {milliseconds(measured)}",
        None if generation is None else f"generation {generation:.0f}",
    )


def _layers(architecture: str | None) -> list[str]:
    """An architecture's line of text in pieces that fit a hover box on a phone."""
    lines = []
    for stack in (architecture or "").split("|"):
        words = stack.split()
        head, layers = words[:2], words[2:]
        pieces = [layers[i : i + LAYERS_PER_LINE] for i in range(0, len(layers), LAYERS_PER_LINE)] or [[]]
        lines += [" ".join([*head, *pieces[0]]), *(" ".join(piece) for piece in pieces[1:])]
    return lines
