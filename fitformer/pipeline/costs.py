"""The account of a run: what its stages cost together and one by one."""

from __future__ import annotations

from typing import Any

from fitformer.cost.account import Cost, Rates, basis_line, of_stage, total
from fitformer.stages import Stage, record_of


def rates(settings: Any) -> Rates:
    """The rates of a recipe's section ``cost``."""
    return Rates(**settings.model_dump())


def account(stages: list[Stage], rates: Rates) -> dict[str, Any]:
    """Device-hours, energy, CO2 and price of the stages, and the line that says how they are known."""
    costs: list[tuple[Stage, Cost]] = [
        (stage, of_stage(record_of(stage.run, stage.name, stage.part), rates)) for stage in stages
    ]
    together = total((cost for _, cost in costs), rates)
    entries = [{"stage": stage.title, **cost.to_dict()} for stage, cost in costs if cost.device_hours]
    return {**together.to_dict(), "basis_line": basis_line(together, rates), "stages": entries}
