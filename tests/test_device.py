"""The device card, and the hint that error messages share."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fitformer import device
from fitformer.device import available_threads, device_card
from fitformer.errors import BundleError, DataError, InputError, NotPossibleError, RecipeError, nearest


def test_the_card_names_what_a_latency_depends_on() -> None:
    card = device_card(3)
    assert set(card) == {
        "name",
        "cpu",
        "cores",
        "threads",
        "governor",
        "memory_gib",
        "system",
        "machine",
        "python",
        "versions",
        "date",
    }
    assert card["threads"] == 3
    assert set(card["versions"]) == {"fitformer", "onnxruntime", "numpy"}
    assert json.loads(json.dumps(card)) == card
    assert card["cpu"]


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux only")
def test_memory_and_processor_are_read_from_the_system() -> None:
    card = device_card(1)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    assert card["memory_gib"] == pytest.approx(pages, rel=0.05, abs=0.2)


def test_a_system_without_proc_gives_a_card_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_read", lambda path: "")
    card = device_card(1)
    assert card["governor"] == "unknown"
    assert card["memory_gib"] is None
    assert card["cpu"]


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz: fast\n", "Some CPU @ 2 GHz: fast"),
        ("processor\t: 0\nBogoMIPS\t: 1\n\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n", "BCM2835"),
        ("processor\t: 0\nModel\t\t: Raspberry Pi 4 Model B\n", "Raspberry Pi 4 Model B"),
    ],
)
def test_the_processor_is_named_as_the_system_names_it(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str, name: str
) -> None:
    monkeypatch.setattr(device, "_read", lambda path: cpuinfo.strip())
    assert device_card(1)["cpu"] == name


def test_available_threads_follow_the_affinity() -> None:
    threads = available_threads()
    assert 1 <= threads <= (os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {min(before)})
            assert available_threads() == 1
        finally:
            os.sched_setaffinity(0, before)
        assert available_threads() == threads


def test_the_nearest_spelling_is_offered_only_when_it_is_near() -> None:
    assert nearest("serch", ["search", "report"]) == " (did you mean 'search'?)"
    assert nearest("xyz", ["search", "report"]) == ""
    assert nearest("", []) == ""


def test_users_mistakes_are_value_errors_and_the_rest_is_not() -> None:
    for kind in (RecipeError, DataError, BundleError):
        assert issubclass(kind, InputError)
    assert issubclass(InputError, ValueError)
    assert not issubclass(NotPossibleError, InputError)
