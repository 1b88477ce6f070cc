"""Energy counters, on trees of files that look like the kernel's: sums, counters that turn, and what is not there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fitformer.cost import power
from fitformer.cost.power import Meter, NvidiaSmi, Rapl, parse_watts

MakeDomain = Callable[..., Path]


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    folder = tmp_path / "powercap"
    folder.mkdir()
    return folder


@pytest.fixture
def domain(powercap: Path) -> MakeDomain:
    def make(number: str, name: str, energy: int | str, largest: int | str = 1_000_000_000) -> Path:
        folder = powercap / number
        folder.mkdir()
        for file, content in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", largest)):
            (folder / file).write_text(f"{content}\n")
        return folder

    return make


def count(folder: Path, energy: int) -> None:
    (folder / "energy_uj").write_text(f"{energy}\n")


def test_packages_and_memory_are_summed_and_what_lies_within_them_is_not(powercap: Path, domain: MakeDomain) -> None:
    packages = [domain("intel-rapl:0", "package-0", 5_000_000), domain("intel-rapl:1", "package-1", 0)]
    cores = domain("intel-rapl:0:0", "core", 0)
    memory = domain("intel-rapl:0:1", "dram", 100)
    again = domain("intel-rapl-mmio:0", "package-0", 0)  # the same package by another way
    platform = domain("intel-rapl:2", "psys", 0)
    rapl = Rapl(powercap)
    assert rapl() == {"cpu": 0, "ram": 0}
    for folder in (*packages, cores, again, platform):
        count(folder, 8_000_000)
    count(memory, 1_000_100)
    assert rapl() == {"cpu": pytest.approx(3 + 8), "ram": pytest.approx(1)}
    assert rapl() == {"cpu": pytest.approx(11), "ram": pytest.approx(1)}


def test_a_counter_that_starts_again_is_counted_on(powercap: Path, domain: MakeDomain) -> None:
    package = domain("intel-rapl:0", "package-0", 9_000_000, largest=10_000_000)
    rapl = Rapl(powercap)
    for energy, joules in ((9_500_000, 0.5), (500_000, 1.5), (9_900_000, 10.9), (100_000, 11.1)):
        count(package, energy)
        assert rapl()["cpu"] == pytest.approx(joules)


def test_without_a_known_largest_value_a_turn_counts_what_is_certain(powercap: Path, domain: MakeDomain) -> None:
    package = domain("intel-rapl:0", "package-0", 9_000_000, largest="unknown")
    rapl = Rapl(powercap)
    count(package, 2_000_000)
    assert rapl()["cpu"] == pytest.approx(2)


def test_nothing_is_measured_where_there_is_nothing(tmp_path: Path, powercap: Path) -> None:
    assert Rapl(powercap)() == Rapl(tmp_path / "no")() == {}


@pytest.mark.parametrize("content", ["", "x", "12.5"])
def test_a_counter_that_is_no_number_is_left_out(powercap: Path, domain: MakeDomain, content: str) -> None:
    domain("intel-rapl:0", "package-0", content)
    assert Rapl(powercap)() == {}
    assert Rapl.is_hidden(powercap)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_a_counter_for_root_only_is_left_out(powercap: Path, domain: MakeDomain) -> None:
    package = domain("intel-rapl:0", "package-0", 1)
    (package / "energy_uj").chmod(0)
    assert Rapl(powercap)() == {} and Rapl.is_hidden(powercap)


def test_what_can_be_measured_is_said_and_why_no_more(powercap: Path, domain: MakeDomain) -> None:
    assert "no counters" in power.available(0, powercap)["note"]
    package = domain("intel-rapl:0", "package-0", "hidden")
    assert "only root may read them" in power.available(0, powercap)["note"]
    count(package, 5)
    assert power.available(0, powercap) == {"measured": ["cpu"], "note": ""}


def test_a_counter_that_goes_away_keeps_what_it_counted(powercap: Path, domain: MakeDomain) -> None:
    package = domain("intel-rapl:0", "package-0", 0)
    rapl = Rapl(powercap)
    count(package, 4_000_000)
    rapl()
    (package / "energy_uj").unlink()
    assert rapl()["cpu"] == pytest.approx(4)


def test_the_power_of_gpus_is_summed_over_time() -> None:
    now, watts = [0.0], [100.0]
    source = NvidiaSmi(1, read_watts=lambda: watts[0], clock=lambda: now[0])
    now[0], watts[0] = 10.0, 300.0
    assert source() == {"gpu": pytest.approx(2000)}
    now[0] = 11.0
    assert source() == {"gpu": pytest.approx(2300)}


def test_gpus_that_do_not_tell_their_power_are_not_measured() -> None:
    assert NvidiaSmi(1, read_watts=lambda: None)() == {}
    assert power.gpu_watts(0) is None


@pytest.mark.parametrize(
    ("visible", "gpus", "watts"),
    [(None, 1, 100.5), (None, 2, 300.5), ("1", 1, 200), ("1,0", 2, 300.5), ("GPU-b", 1, 200), ("7", 1, None)],
)
def test_only_the_gpus_in_use_are_counted(visible: str | None, gpus: int, watts: float | None) -> None:
    assert parse_watts("0, GPU-aa, 100.5\n1, GPU-bb, 200\n", visible, gpus) == watts


@pytest.mark.parametrize("output", ["", "0, GPU-aa, [N/A]\n", "NVIDIA-SMI has failed\n"])
def test_an_answer_without_power_is_none(output: str) -> None:
    assert parse_watts(output, None, 1) is None


@pytest.mark.parametrize("script", ["exit 9", "echo '0, GPU-aa, 50'", "echo nonsense"])
def test_a_program_that_fails_is_no_failure_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert power.gpu_watts(1) == (50 if "50" in script else None)


def test_a_meter_counts_time_and_the_energy_of_its_sources() -> None:
    joules = iter(range(1, 1000))
    with Meter(gpus=2, sources=[lambda: {"cpu": float(next(joules))}]) as meter:
        pass
    assert meter.facts["gpus"] == 2
    assert meter.facts["joules"] == {"cpu": 1.0}
    assert meter.facts["seconds"] >= 0


def test_a_meter_saves_now_and_then_so_that_a_kill_loses_little() -> None:
    saved: list[dict[str, object]] = []
    with Meter(save=saved.append, sources=[], interval_s=0.01):
        deadline = time.monotonic() + 30
        while len(saved) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
    assert len(saved) >= 2


def test_a_meter_ends_with_the_work_that_fails() -> None:
    meter = Meter(sources=[])
    with pytest.raises(KeyError), meter:
        raise KeyError
    assert meter.facts["seconds"] >= 0
