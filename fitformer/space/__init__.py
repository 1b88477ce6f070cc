"""Architectures and the spaces they are drawn from."""

from fitformer.space.architecture import Architecture
from fitformer.space.search_space import SearchSpace

__all__ = ["Architecture", "SearchSpace"]
