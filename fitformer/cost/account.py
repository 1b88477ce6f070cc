"""Device-hours, energy, CO2 and cloud price, with the formulas and constants of the papers.

Strubell, Ganesh and McCallum ("Energy and Policy Considerations for Deep Learning in NLP", ACL 2019), which the HAT
paper follows: energy in kWh = PUE x hours x (p_cpu + p_ram + g x p_gpu) / 1000 with the average power in watts of all
processors, all memory and each of g GPUs; CO2 = 0.954 lb per kWh (United States, EPA 2018); PUE 1.58 (power usage
effectiveness of data centres, 2018). Where the machine counts its energy, that takes the place of the watts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

KG_PER_LB = 0.45359237
JOULES_PER_KWH = 3.6e6
PARTS = ("cpu", "ram", "gpu")
ROUNDING_S = 1.0


@dataclass(frozen=True)
class Rates:
    """What turns hours into energy, CO2 and money; every one is a setting of a recipe's section ``cost``.

    Attributes:
        cpu_watts: all processors together; a round figure of fitformer's own, no paper's.
        ram_watts: all memory together; a round figure of fitformer's own, no paper's.
        gpu_watts: each GPU with its share of the rest. 190 follows from the published row of Evolved Transformer
            (6.3e5 lb of CO2 for 2.2e6 GPU-hours) by the formula above.
        pue: Strubell et al. 2019, of 2018.
        co2_kg_per_kwh: 0.954 lb, Strubell et al. 2019 after EPA 2018.
        cpu_price_per_hour: a small cloud machine; a round figure of fitformer's own of 2025, no paper's.
        gpu_price_per_hour: on demand; 2.50 is that of the published row of Evolved Transformer (5.5e6 US dollars for
            2.2e6 GPU-hours, 2019).
        currency: of both prices.
    """

    cpu_watts: float = 65.0
    ram_watts: float = 10.0
    gpu_watts: float = 190.0
    pue: float = 1.58
    co2_kg_per_kwh: float = round(0.954 * KG_PER_LB, 4)
    cpu_price_per_hour: float = 0.10
    gpu_price_per_hour: float = 2.50
    currency: str = "USD"

    @classmethod
    def from_settings(cls, settings: object) -> Rates:
        """Read a recipe's section ``cost`` as it stands in a file; what is missing or no number keeps its default."""
        given = settings if isinstance(settings, Mapping) else {}
        known: dict[str, Any] = {}
        for field in fields(cls):
            value, wanted = given.get(field.name), str if field.name == "currency" else (int, float)
            if isinstance(value, wanted) and not isinstance(value, bool):
                known[field.name] = value if isinstance(value, str) else _number(value)
        return cls(**known)


@dataclass(frozen=True)
class Cost:
    """What some work cost.

    Attributes:
        device_hours: hours times GPUs; without a GPU, hours of the machine.
        measured: parts (cpu, ram, gpu) whose energy was measured; the others' is watts times hours.
        estimated: parts whose energy was not.
    """

    device_hours: float = 0.0
    kwh: float = 0.0
    co2_kg: float = 0.0
    price: float = 0.0
    currency: str = "USD"
    measured: frozenset[str] = frozenset()
    estimated: frozenset[str] = frozenset()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.device_hours + other.device_hours,
            self.kwh + other.kwh,
            self.co2_kg + other.co2_kg,
            self.price + other.price,
            other.currency,
            self.measured | other.measured,
            self.estimated | other.estimated,
        )

    @property
    def basis(self) -> str:
        """``measured``, ``estimated`` or ``partly measured``."""
        if self.measured and self.estimated:
            return "partly measured"
        return "measured" if self.measured else "estimated"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "device_hours": _rounded(self.device_hours),
            "kwh": _rounded(self.kwh),
            "co2_kg": _rounded(self.co2_kg),
            "price": _rounded(self.price),
            "currency": self.currency,
            "basis": self.basis,
        }


def estimate(
    *, device_hours: float, gpus: int = 0, rates: Rates | None = None, joules: Mapping[str, float] | None = None
) -> Cost:
    """Account for ``device_hours`` (hours times GPUs; without a GPU, hours of the machine).

    Args:
        gpus: GPUs at work together.
        joules: measured energy by part (cpu, ram, gpu; the sum over GPUs), for those parts that were measured.
    """
    rates, joules = rates or Rates(), joules or {}
    hours = device_hours / max(gpus, 1)
    watts = {"cpu": rates.cpu_watts, "ram": rates.ram_watts, **({"gpu": gpus * rates.gpu_watts} if gpus else {})}
    measured = frozenset(part for part in watts if part in joules)
    raw = sum(joules[part] / JOULES_PER_KWH if part in measured else hours * watts[part] / 1000 for part in watts)
    kwh = rates.pue * raw
    price = device_hours * (rates.gpu_price_per_hour if gpus else rates.cpu_price_per_hour)
    estimated = frozenset(watts) - measured
    return Cost(device_hours, kwh, kwh * rates.co2_kg_per_kwh, price, rates.currency, measured, estimated)


def of_stage(record: Mapping[str, Any], rates: Rates) -> Cost:
    """Cost of a stage from its record (``done.json``, or the sessions of a stage under way).

    ``energy.sessions`` holds seconds, gpus and joules of each session, those that were killed, too: their energy was
    spent. Time that no session accounts for (older records have ``seconds`` alone) is estimated. What is not there or
    no number counts nothing.
    """
    energy = record.get("energy")
    sessions = energy.get("sessions") if isinstance(energy, Mapping) else None
    found = [item for item in sessions if isinstance(item, Mapping)] if isinstance(sessions, list) else []
    rest = _number(record.get("seconds")) - sum(_number(session.get("seconds")) for session in found)
    if rest > (ROUNDING_S if found else 0):
        found.append({"seconds": rest, "gpus": found[-1].get("gpus") if found else 0})
    cost = Cost(currency=rates.currency)
    for session in found:
        time, gpus = _number(session.get("seconds")), int(_number(session.get("gpus")))
        given = session.get("joules")
        joules = {part: _number(given[part]) for part in PARTS if part in given} if isinstance(given, Mapping) else {}
        if time > 0:
            cost += estimate(device_hours=time / 3600 * max(gpus, 1), gpus=gpus, rates=rates, joules=joules)
    return cost


def total(costs: Iterable[Cost], rates: Rates) -> Cost:
    """The sum."""
    return sum(costs, Cost(currency=rates.currency))


def basis_line(cost: Cost, rates: Rates) -> str:
    """One line that says what was measured, and by what the rest was estimated."""
    watts = {"cpu": f"{rates.cpu_watts:g} W for the processors", "ram": f"{rates.ram_watts:g} W for the memory"}
    watts["gpu"] = f"{rates.gpu_watts:g} W for each GPU"
    estimated = ", ".join(watts[part] for part in PARTS if part in cost.estimated)
    if not cost.measured:
        return f"energy estimated: {estimated}" if estimated else "no energy was spent yet"
    names = {"cpu": "processors", "ram": "memory", "gpu": "GPUs"}
    measured = ", ".join(names[part] for part in PARTS if part in cost.measured)
    rest = f"; the rest estimated: {estimated}" if estimated else ""
    return f"energy measured ({measured}; all programs on the machine){rest}"


def rates_line(rates: Rates) -> str:
    """The constants in one line."""
    return (
        f"PUE {rates.pue:g}, {rates.co2_kg_per_kwh:g} kg CO2 per kWh, {rates.cpu_price_per_hour:g} {rates.currency} an "
        f"hour of the machine or {rates.gpu_price_per_hour:g} {rates.currency} of a GPU (recipe section cost)"
    )


@dataclass(frozen=True)
class Published:
    """A row of the papers, for comparison: WMT'14 translation models with fewer than 4 million parameters counted.

    ``source`` says where the figures stand, and which of them are worked out from others.
    """

    name: str
    gpu_hours: float
    co2_lb: float
    price_usd: float
    source: str

    @property
    def co2_kg(self) -> float:
        """Kilograms of CO2."""
        return self.co2_lb * KG_PER_LB


_LITE = "Lite Transformer (ICLR 2020), comparison with Evolved Transformer"
_SEARCH_RATIO = 12_041  # HAT (ACL 2020), abstract: times less search cost than Evolved Transformer
PUBLISHED = (
    Published("Evolved Transformer, its search", 2.2e6, 6.3e5, 5.5e6, _LITE),
    Published(
        "HAT, its search",
        2.2e6 / _SEARCH_RATIO,
        6.3e5 / _SEARCH_RATIO,
        5.5e6 / _SEARCH_RATIO,
        "HAT (ACL 2020), abstract: 12,041 times less than Evolved Transformer; worked out from the row above",
    ),
    Published("Transformer, 2.8 M parameters, one training", 1.0e2, 2.6e1, 2.3e2, _LITE),
    Published("Lite Transformer, 2.9 M parameters, one training", 1.1e2, 3.2e1, 2.8e2, _LITE),
)


def _number(value: object) -> float:
    """A finite amount of at least 0; anything else is 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    return 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
