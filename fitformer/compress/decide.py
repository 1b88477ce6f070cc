"""Is int8 worth it? Only a model that is measured faster, and loses little enough, replaces the float32 one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

INT8, FP32 = "int8", "fp32"


@dataclass(frozen=True)
class Decision:
    """Which precision is kept, and why in one sentence; the figures it rests on."""

    kept: str
    reason: str
    fp32_ms: float
    int8_ms: float
    fp32_bleu: float
    int8_bleu: float
    allowed_loss: float

    @property
    def speedup(self) -> float:
        """How many times faster int8 is; below 1 it is slower."""
        return self.fp32_ms / self.int8_ms

    @property
    def bleu_loss(self) -> float:
        """BLEU points that int8 loses; negative when it gains."""
        return self.fp32_bleu - self.int8_bleu

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self) | {"speedup": self.speedup, "bleu_loss": self.bleu_loss}


def decide(*, fp32_ms: float, int8_ms: float, fp32_bleu: float, int8_bleu: float, allowed_loss: float) -> Decision:
    """Keep int8 if it was measured faster and loses at most ``allowed_loss`` BLEU points, otherwise float32.

    Args:
        fp32_ms, int8_ms: latencies measured under the same conditions, in milliseconds.
        fp32_bleu, int8_bleu: BLEU of the same sentences decoded in the same way.
    """
    loss = round(fp32_bleu - int8_bleu, 9)  # so that 30.0 - 29.7 is not more than 0.3
    figures = f"{fp32_ms / int8_ms:.2f} times the speed ({int8_ms:.2f} against {fp32_ms:.2f} ms)"
    change = f"loses {loss:.2f} BLEU" if loss > 0 else f"gains {-loss:.2f} BLEU" if loss < 0 else "loses no BLEU"
    if not int8_ms < fp32_ms:
        kept, reason = FP32, f"fp32 is kept: int8 is not faster on this device, {figures}."
    elif loss > allowed_loss:
        kept, reason = FP32, f"fp32 is kept: int8 {change}, more than the allowed {allowed_loss:.2f}, at {figures}."
    else:
        kept, reason = INT8, f"int8 is kept: it runs at {figures} and {change} (allowed: {allowed_loss:.2f})."
    return Decision(kept, reason, fp32_ms, int8_ms, fp32_bleu, int8_bleu, allowed_loss)
