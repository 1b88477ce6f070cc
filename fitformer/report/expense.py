"""What the run cost: device-hours, energy, CO2 and cloud price of each stage, beside what the papers publish."""

from __future__ import annotations

from fitformer.cost.account import PUBLISHED, Cost, Rates, basis_line, of_stage, rates_line, total
from fitformer.report.inputs import RunFiles
from fitformer.report.markup import Child, Markup, join, table, tag
from fitformer.report.wording import number, sentence

LEAD = (
    "Device-hours are hours times GPUs, or hours of the machine where there is none; energy is that of the machine "
    "times the power usage effectiveness of where it stands. Sessions that were killed count."
)
COMPARISON = (
    "Published searches and trainings were done on other machines for other tasks: the orders of magnitude can be "
    "compared, the digits cannot."
)


def cost_spent(run: RunFiles) -> Markup | None:
    """The account per stage and for the run, how it is known, and the published rows."""
    rates = Rates.from_settings(run.recipe.get("cost"))
    costs = [(stage.title, of_stage(stage.record, rates)) for stage in run.stages]
    together = total((cost for _, cost in costs), rates)
    if not together.device_hours:
        return None
    rows: list[list[Child]] = [[title, *_cells(cost)] for title, cost in costs if cost.device_hours]
    rows.append([tag("strong", "together"), *(tag("strong", cell) for cell in _cells(together))])
    header = ("stage", "device-hours", "kWh", "kg CO2", f"cloud price, {rates.currency}")
    return join(
        tag("p", LEAD),
        table(header, rows, numbers=(1, 2, 3, 4)),
        tag("p", sentence(_capital(basis_line(together, rates))), " ", sentence(rates_line(rates)), class_="aside"),
        tag("h3", "Beside published searches"),
        tag("p", COMPARISON),
        _published(run.name, together, rates),
    )


def _published(name: str, cost: Cost, rates: Rates) -> Markup:
    rows: list[list[Child]] = [[tag("strong", f"this run, {name}"), *_three(cost), f"{cost.basis}, see above"]]
    for row in PUBLISHED:
        rows.append([row.name, *map(number, (row.gpu_hours, row.co2_kg, row.price_usd)), row.source])
    price = "price" if rates.currency == "USD" else f"price (this run in {rates.currency})"
    return table(("", "device-hours", "kg CO2", f"cloud {price}, USD", "source"), rows, numbers=(1, 2, 3))


def _cells(cost: Cost) -> list[Child]:
    return [_amount(value) for value in (cost.device_hours, cost.kwh, cost.co2_kg, cost.price)]


def _three(cost: Cost) -> list[Child]:
    return [_amount(value) for value in (cost.device_hours, cost.co2_kg, cost.price)]


def _amount(value: float) -> str:
    return "<0.001" if 0 < value < 0.001 else number(value)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
