"""What commands print: tables for people, one JSON document as stdout's last line for programs."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_FILE = 200


def print_json(document: dict[str, Any]) -> None:
    """Print one line of JSON; ASCII only, so that any terminal and any locale carries it whole."""
    sys.stdout.write(json.dumps(_plain(document), allow_nan=False) + "\n")
    sys.stdout.flush()


def program() -> str:
    """How this program is called from the present folder: by its name where the shell finds it, else by its path."""
    beside = Path(sys.executable).with_name("fitformer")
    if shutil.which("fitformer") or not beside.exists():
        return "fitformer"
    inside = beside.is_relative_to(Path.cwd())
    return shlex.quote(str(beside.relative_to(Path.cwd()) if inside else beside))


def print_table(rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), figures: bool = True) -> None:
    """Print aligned columns: the first to the left, the others to the right if they hold ``figures``."""
    table = Table(box=None, pad_edge=False, show_header=bool(header), header_style="")
    columns = len(header or rows[0]) if header or rows else 0
    for index in range(columns):
        title = Text(header[index]) if header else ""
        table.add_column(title, justify="right" if index and figures else "left", no_wrap=index > 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    # A file or pipe gets wide lines instead of broken ones.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    with console.capture() as text:
        console.print(table)
    for line in text.get().splitlines():
        print(line.rstrip())


def size(count: float) -> str:
    """Bytes as a person reads them: ``512 B``, ``13.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def milliseconds(value: float | None) -> str:
    """``12.3 ms``, or a dash when there is none."""
    return "-" if value is None else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def score(entry: dict[str, Any]) -> str:
    """A score with its interval: ``33.2 [31.5, 34.9]``."""
    text = f"{entry['score']:.1f}"
    interval = entry.get("interval")
    return f"{text} [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else text


def amount(value: float) -> str:
    """An amount with three digits that count: ``0.0123``, ``12.3``, ``1,230``."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cost_line(cost: dict[str, Any]) -> str:
    """``1.2 device-hours, 0.14 kWh, 0.06 kg CO2, 0.12 USD (estimated)``."""
    return (
        f"{amount(cost['device_hours'])} device-hours, {amount(cost['kwh'])} kWh, {amount(cost['co2_kg'])} kg CO2, "
        f"{amount(cost['price'])} {cost['currency']} ({cost['basis']})"
    )


def _plain(value: Any) -> Any:
    """JSON has no paths and no NaN: paths become text, numbers that are none become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
