"""The device card: what a latency was measured on, recorded with every number."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fitformer


def device_card(threads: int) -> dict[str, Any]:
    """Describe this machine: processor, cores, ``threads`` used, governor, memory, system, versions, date."""
    return {
        "name": "cpu",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "governor": _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) or "unknown",
        "memory_gib": _memory_gib(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {"fitformer": fitformer.__version__, **{name: _version(name) for name in ("onnxruntime", "numpy")}},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def available_threads() -> int:
    """Number of processors this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _cpu_model() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
