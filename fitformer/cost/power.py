"""Measures the energy of this machine where it counts it: RAPL for processors and memory, ``nvidia-smi`` for GPUs.

RAPL (Intel's and AMD's "running average power limit") counts microjoules per package under ``/sys/class/powercap``.
The counters start again at zero after some minutes of full load, so they are read every half minute by a thread. Newer
kernels let only root read them; then nothing is measured and the account estimates. What is counted is the whole
machine: other programs at work at the same time are in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

POWERCAP = Path("/sys/class/powercap")
INTERVAL_S, FIRST_S = 30.0, 1.0
_NVIDIA_QUERY = ["--query-gpu=index,uuid,power.draw", "--format=csv,noheader,nounits"]

Source = Callable[[], dict[str, float]]  # joules by part since the source was made


class Rapl:
    """Energy of processors and memory since it was made, counters that start again taken into account.

    Domains that lie within others (cores within a package) are left out; ``dram`` is memory. ``psys``, the whole
    platform, is left out, too: it holds the packages. ``intel-rapl-mmio`` counts the same packages once more.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self.joules: dict[str, float] = {}
        self._counters: dict[Path, tuple[str, int, int]] = {}
        for domain in sorted(root.glob("intel-rapl:*")) if root.is_dir() else []:
            part = _part(domain)
            energy, largest = _integer(domain / "energy_uj"), _integer(domain / "max_energy_range_uj")
            if part is not None and energy is not None:
                self._counters[domain] = (part, energy, largest or 0)
                self.joules[part] = 0.0

    @staticmethod
    def is_hidden(root: Path = POWERCAP) -> bool:
        """Whether there are counters that this user may not read."""
        return any(
            _part(domain) == "cpu" and _integer(domain / "energy_uj") is None for domain in root.glob("intel-rapl:*")
        )

    def __call__(self) -> dict[str, float]:
        """Joules by part so far; to be called at least once per turn of the counters."""
        for domain, (part, before, largest) in self._counters.items():
            now = _integer(domain / "energy_uj")
            if now is None:  # went away in between: what was counted stays
                continue
            turned = now < before
            gained = now - before if not turned else largest - before + now if largest else now
            self.joules[part] += max(gained, 0) / 1e6
            self._counters[domain] = (part, now, largest)
        return dict(self.joules)


class NvidiaSmi:
    """Energy of the GPUs in use since it was made: their power, as ``nvidia-smi`` tells it, times the time between.

    Args:
        read_watts: power of all GPUs in use together, or ``None``; given by tests.
    """

    def __init__(
        self,
        gpus: int,
        *,
        read_watts: Callable[[], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read_watts or (lambda: gpu_watts(gpus))
        self._clock = clock
        self._watts, self._at, self._joules = self._read(), clock(), 0.0

    def __call__(self) -> dict[str, float]:
        """Joules so far, or nothing where ``nvidia-smi`` says nothing."""
        if self._watts is None:
            return {}
        now, watts = self._clock(), self._read()
        last = self._watts
        self._joules += (now - self._at) * (last + (watts if watts is not None else last)) / 2
        self._at, self._watts = now, watts if watts is not None else last
        return {"gpu": self._joules}


def gpu_watts(gpus: int) -> float | None:
    """Power of the GPUs that this process may use, or ``None`` where it cannot be told."""
    program = shutil.which("nvidia-smi")
    if program is None or gpus < 1:
        return None
    try:
        done = subprocess.run([program, *_NVIDIA_QUERY], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_watts(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES"), gpus)


def parse_watts(output: str, visible: str | None, gpus: int) -> float | None:
    """The power in the lines ``index, uuid, watts`` of the first ``gpus`` GPUs that are visible to the process."""
    found = {}
    for line in output.splitlines():
        index, _, rest = line.partition(",")
        uuid, _, watts = rest.partition(",")
        try:
            found[index.strip()] = (uuid.strip(), float(watts))
        except ValueError:  # "[N/A]"
            return None
    chosen = [name.strip() for name in visible.split(",")] if visible else list(found)
    powers = [
        next((watts for index, (uuid, watts) in found.items() if name == index or uuid.startswith(name)), None)
        for name in chosen[:gpus]
        if name
    ]
    known = [watts for watts in powers if watts is not None]
    return sum(known) if known and len(known) == len(powers) else None


def available(gpus: int = 1, root: Path = POWERCAP) -> dict[str, Any]:
    """What of this machine's energy can be measured (``cpu``, ``ram``, ``gpu``), and why no more."""
    measured = sorted(Rapl(root)())
    if gpu_watts(gpus) is not None:
        measured.append("gpu")
    note = ""
    if "cpu" not in measured:
        why = "there are counters (RAPL), but only root may read them" if Rapl.is_hidden(root) else "no counters (RAPL)"
        note = f"{why}; the recipe's section cost states watts instead"
    return {"measured": measured, "note": note}


class Meter:
    """Counts time and energy while it is entered; ``save`` is called now and then, so that a kill loses little.

    Args:
        gpus: GPUs at work; 0 asks for none.
        save: called with ``facts`` after a second, two, four, ... and then every half minute.
        sources: what counts the energy; by default RAPL and, with GPUs, nvidia-smi.
    """

    def __init__(
        self,
        *,
        gpus: int = 0,
        save: Callable[[dict[str, Any]], None] | None = None,
        sources: list[Source] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.gpus, self._save, self._interval = gpus, save, interval_s
        self._given = sources
        self._sources: list[Source] = []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._began, self._seconds = 0.0, 0.0
        self._joules: dict[str, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True, name="energy")

    def __enter__(self) -> Meter:
        self._began = time.monotonic()
        if self._given is not None:
            self._sources = self._given
        else:
            self._sources = [Rapl(), *([NvidiaSmi(self.gpus)] if self.gpus else [])]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    @property
    def facts(self) -> dict[str, Any]:
        """``seconds``, ``gpus`` and ``joules`` by part so far; ``joules`` holds the parts that are measured."""
        with self._lock:
            joules = {part: round(amount, 3) for part, amount in self._joules.items()}
            return {"seconds": round(self._seconds, 3), "gpus": self.gpus, "joules": joules}

    def _watch(self) -> None:
        # First soon, then ever more rarely: a kill loses half of a session at most, and never more than an interval.
        while not self._stop.wait(min(self._interval, max(FIRST_S, self._seconds))):
            self._read()
            if self._save is not None:
                self._save(self.facts)

    def _read(self) -> None:
        with self._lock:
            self._seconds = time.monotonic() - self._began
            for source in self._sources:
                self._joules |= source()


def _part(domain: Path) -> str | None:
    """``cpu`` for a package, ``ram`` for its memory, ``None`` for what lies within another domain or holds it."""
    try:
        name = (domain / "name").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return "cpu" if name.startswith("package") else "ram" if name == "dram" else None


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError):
        return None
