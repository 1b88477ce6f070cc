"""What training runs on, and in which number format its matrix products."""

from __future__ import annotations

from pathlib import Path

import torch

from fitformer.errors import InputError


def compute_device(setting: str) -> str:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device of this process.

    Raises:
        InputError: there is no such device here.
    """
    has_gpu = torch.cuda.is_available()
    if setting == "cuda" and not has_gpu:
        raise InputError("device: 'cuda' is not available here; give auto or cpu")
    return "cuda" if has_gpu and setting != "cpu" else "cpu"


def compute_dtype(precision: str, device: str) -> torch.dtype:
    """Turn ``auto``, ``fp32`` or ``bf16`` into a dtype for ``device``.

    ``auto`` is bfloat16 where the hardware multiplies it natively (there it makes training two to three times faster;
    weights, sums, norms, softmax and the optimizer stay in float32), else float32.
    """
    if precision == "fp32":
        return torch.float32
    if precision == "bf16":
        return torch.bfloat16
    if precision != "auto":
        raise InputError(f"precision: '{precision}' must be auto, fp32 or bf16")
    if device == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if _cpu_multiplies_bf16() else torch.float32


def _cpu_multiplies_bf16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(f" {flag}" in flags for flag in ("avx512_bf16", "amx_bf16", "bf16\n", "bf16 "))
