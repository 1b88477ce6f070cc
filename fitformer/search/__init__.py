"""Search: the best architecture within a limit, from a loss, a predicted and a measured latency; knows no model."""

from fitformer.search.evolution import Evolution, EvolutionSettings
from fitformer.search.finalists import Finalist, Settled, settle
from fitformer.search.find import Found, find_architecture
from fitformer.search.front import front
from fitformer.search.history import Candidate, History
from fitformer.search.reachable import cheapest, check_reachable

__all__ = [
    "Candidate",
    "Evolution",
    "EvolutionSettings",
    "Finalist",
    "Found",
    "History",
    "Settled",
    "cheapest",
    "check_reachable",
    "find_architecture",
    "front",
    "settle",
]
