"""Recipe section ``cost``: what turns hours of work into energy, CO2 and money, in the report and ``status``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fitformer.cost.account import Rates
from fitformer.recipe.section import Section

Amount = Annotated[float, Field(ge=0.0)]


class Cost(Section):
    """Constants of the cost account; changing them never makes a stage run again."""

    cpu_watts: Amount = Rates.cpu_watts
    """Power of all processors where the machine does not measure it; a round figure, no paper's: give your own."""
    ram_watts: Amount = Rates.ram_watts
    """The same for the memory."""
    gpu_watts: Amount = Rates.gpu_watts
    """The same for each GPU; 190 follows from the published row of Evolved Transformer (Lite Transformer, 2020)."""
    pue: Annotated[float, Field(ge=1.0)] = Rates.pue
    """Power drawn per power used (Strubell et al. 2019: 1.58, data centres of 2018); a laptop on a desk has 1."""
    co2_kg_per_kwh: Amount = Rates.co2_kg_per_kwh
    """0.954 lb per kWh (Strubell et al. 2019 after EPA 2018, United States); give that of your grid."""
    cpu_price_per_hour: Amount = Rates.cpu_price_per_hour
    """A small cloud machine on demand, a round figure of 2025, no paper's."""
    gpu_price_per_hour: Amount = Rates.gpu_price_per_hour
    """One GPU on demand; 2.50 dollars in the published row of Evolved Transformer (2019)."""
    currency: Annotated[str, Field(min_length=1, max_length=8)] = Rates.currency
    """Of both prices."""
