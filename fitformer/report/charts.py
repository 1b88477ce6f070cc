"""Interactive charts: each a plotly figure as plain data, drawn by the page's script.

Colours are names of the page's CSS variables (``--signal``), which the script looks up, so that a chart follows the
light and dark scheme. Plotly reads tags in its texts, so every text from data passes ``plain`` first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fitformer.report.markup import Markup, escape, tag

Trace = dict[str, Any]
Numbers = Sequence[float | None]

LINE_COLOURS = ("--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6")
MOST_POINTS = 1500  # of a curve; longer logs are thinned evenly, since a screen shows no more


@dataclass(frozen=True)
class Chart:
    """A figure with what is said about it: ``label`` names it, ``caption`` says how to read it."""

    label: str
    caption: str
    traces: list[Trace]
    layout: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        """Whether there is no point to draw."""
        return not any(trace["x"] for trace in self.traces)

    def html(self) -> Markup:
        """Return the figure as HTML: the data as JSON, and a caption."""
        data = json.dumps({"data": self.traces, "layout": self.layout}, allow_nan=False, separators=(",", ":"))
        holder = tag(
            "div",
            tag("script", _json_markup(data), type="application/json"),
            tag("noscript", "This chart needs JavaScript."),
            class_="chart",
            role="img",
            aria_label=self.label,
        )
        return tag("figure", holder, tag("figcaption", tag("strong", self.label), " ", self.caption))


def plain(text: object) -> str:
    """Return text that plotly shows as it is."""
    return str(escape(text))


def hover_lines(*lines: object) -> str:
    """Return lines for a hover box."""
    return "<br>".join(plain(line) for line in lines if line)


def points(
    name: str,
    x: Numbers,
    y: Numbers,
    *,
    colour: str,
    hover: Sequence[str] | None = None,
    symbol: str = "circle",
    size: int = 7,
    opacity: float = 1.0,
) -> Trace:
    """Return a scatter of points; those without both coordinates are left out."""
    kept = [i for i, pair in enumerate(zip(x, y, strict=True)) if None not in pair]
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": [x[i] for i in kept],
        "y": [y[i] for i in kept],
        "marker": {"color": colour, "symbol": symbol, "size": size, "opacity": opacity},
    }
    if hover is not None:
        trace |= {"text": [hover[i] for i in kept], "hovertemplate": "%{text}<extra></extra>"}
    return trace


def curve(
    name: str,
    x: Numbers,
    y: Numbers,
    *,
    colour: str,
    dash: str = "solid",
    width: float = 2,
    step: bool = False,
    marks: bool = False,
    quiet: bool = False,
) -> Trace:
    """Return a line; ``quiet`` ones are left out of legend and hover."""
    kept = [i for i, pair in enumerate(zip(x, y, strict=True)) if None not in pair]
    stride = max(1, -(-len(kept) // MOST_POINTS))
    # From the end, so that the last value, which people look for, is always there.
    kept = kept[::-1][::stride][::-1]
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if marks else "lines",
        "name": plain(name),
        "x": [x[i] for i in kept],
        "y": [y[i] for i in kept],
        "line": {"color": colour, "width": width, "dash": dash, "shape": "hv" if step else "linear"},
    }
    if marks:
        trace["marker"] = {"size": 5}
    if quiet:
        trace |= {"hoverinfo": "skip", "showlegend": False}
    return trace


def segments(pairs: Iterable[tuple[tuple[float, float], tuple[float, float]]], *, colour: str) -> Trace:
    """Return thin lines, each between two points, without legend and hover."""
    x: list[float | None] = []
    y: list[float | None] = []
    for (x0, y0), (x1, y1) in pairs:
        x += [x0, x1, None]
        y += [y0, y1, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": colour, "width": 1},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def layout(x_title: str, y_title: str, *, x_log: bool = False, y_log: bool = False, **more: Any) -> dict[str, Any]:
    """Return a layout; fonts, grid and background are the script's business."""
    x_axis: dict[str, Any] = {"title": {"text": plain(x_title)}}
    y_axis: dict[str, Any] = {"title": {"text": plain(y_title)}}
    for axis, is_log in ((x_axis, x_log), (y_axis, y_log)):
        if is_log:
            axis |= {"type": "log", "dtick": "D2"}
    return {"xaxis": x_axis, "yaxis": y_axis} | more


def vertical(x: float, text: str, *, colour: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a shape and its note: a line from bottom to top at ``x``."""
    line = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
    note = {
        "x": x,
        "y": 1,
        "yref": "paper",
        "text": plain(text),
        "showarrow": False,
        "xanchor": "right",
        "yanchor": "top",
    }
    return (
        line | {"line": {"color": colour, "width": 2, "dash": "dash"}},
        note | {"font": {"color": colour}, "xshift": -5},
    )


def band(low: float, high: float, *, colour: str) -> dict[str, Any]:
    """Return a shape: a horizontal stripe from ``low`` to ``high`` over the whole width."""
    place = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "layer": "below"}
    return place | {"fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}


def _json_markup(data: str) -> Markup:
    """JSON that cannot leave its script element: ``<``, ``>``, ``&`` occur in strings only, where escapes may stand."""
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return Markup(data)
