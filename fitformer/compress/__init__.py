"""Techniques that make a trained model smaller and faster, applied from outside, and the decision whether they pay."""

from fitformer.compress.decide import Decision, decide
from fitformer.compress.quantize import BlockwiseInt8, int8_graphs

__all__ = ["BlockwiseInt8", "Decision", "decide", "int8_graphs"]
