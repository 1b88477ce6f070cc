"""How much memory is free, and how much a piece of work takes at its peak."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import torch

_PROC = Path("/proc")
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


class PeakMemory:
    """Bytes in use when the ``with`` block began (``before``) and at its peak (``peak``).

    On a processor that is the resident memory of this process, on a GPU what PyTorch has allocated there. Linux lets a
    process set its own high-water mark back; elsewhere the mark is that of the whole process so far, which may be too
    high, or unknown (then both are 0).
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.before, self.peak = device, 0, 0

    def __enter__(self) -> PeakMemory:
        give_back()
        if self.device == "cpu":
            with suppress(OSError):
                (_PROC / "self" / "clear_refs").write_text("5")
            self.before = _status("VmRSS") or _highest()
        else:
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.device == "cpu":
            self.peak = max(_status("VmHWM") or _highest(), self.before)
        else:
            self.peak = torch.cuda.max_memory_allocated()


def give_back() -> None:
    """Return freed memory to the system, so that the next model does not seem to need less than it does."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def free_bytes(device: str = "cpu") -> int | None:
    """Memory that could still be used; ``None`` where the system does not say."""
    if device != "cpu":
        return int(torch.cuda.mem_get_info()[0])
    free = _kilobytes(_PROC / "meminfo", "MemAvailable")
    for limit, usage in _CGROUPS:
        most, used = _number(limit), _number(usage)
        if most is not None and used is not None:
            left = max(most - used, 0)
            free = left if free is None else min(free, left)
    return free


def _status(name: str) -> int:
    return _kilobytes(_PROC / "self" / "status", name) or 0


def _kilobytes(path: Path, name: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):  # "max": no limit
        return int(path.read_text(encoding="utf-8"))
    return None


def _highest() -> int:
    """The process's high-water mark, in bytes; 0 where it is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
