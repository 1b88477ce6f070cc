"""How an update is dealt to processes; what one process alone costs. Real processes: test_two_processes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fitformer.errors import NotPossibleError
from fitformer.training import processes as module
from fitformer.training.processes import ALONE, LostProcess, Processes, SeveralProcesses

BATCHES = st.lists(st.integers(1, 9), min_size=1, max_size=9)


class Member(Processes):
    """One of several, who never meets the others."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count


def make_batches(sizes: Sequence[int]) -> list[Any]:
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@given(BATCHES, st.integers(1, 5))
def test_the_shares_are_the_update(sizes: list[int], count: int) -> None:
    batches = make_batches(sizes)
    dealt = [int(i) for rank in range(count) for share in Member(rank, count).deal(batches) for i in share]
    assert Counter(dealt) == Counter(range(sum(sizes)))


@given(BATCHES, st.integers(1, 5))
def test_nobody_gets_an_empty_batch_or_much_more_than_another(sizes: list[int], count: int) -> None:
    shares = [Member(rank, count).deal(make_batches(sizes)) for rank in range(count)]
    assert all(len(batch) for share in shares for batch in share)
    equal = [Member(rank, count).deal(make_batches([8 * count] * len(sizes))) for rank in range(count)]
    assert len({sum(map(len, share)) for share in equal}) == 1


def test_one_process_gets_the_batches_as_they_are() -> None:
    batches = make_batches([3, 1, 2])
    assert all(mine is batch for mine, batch in zip(ALONE.deal(batches), batches, strict=False))
    assert len(ALONE.deal(batches)) == 3


def test_whole_batches_are_dealt_as_long_as_there_is_one_for_everybody() -> None:
    assert [len(share) for share in Member(1, 2).deal(make_batches([4, 5, 7, 8, 6]))] == [5, 8, 3]


def test_processes_draw_other_dropout_masks_and_the_main_one_those_of_one_process() -> None:
    seeds = [Member(rank, 4).seed(17) for rank in range(4)]
    assert seeds[0] == 17 == ALONE.seed(17)
    assert len(set(seeds)) == 4


def test_one_process_alone_agrees_with_itself() -> None:
    assert ALONE.is_main
    assert ALONE.agree(1.25) == 1.25
    assert ALONE.sum_gradients([], 2.5) == 2.5
    ALONE.check_same("updates", 3)
    ALONE.call({})
    ALONE.end(1)


def test_training_in_one_process_loads_no_accelerate(repository: Path) -> None:
    script = "import sys, fitformer.pipeline; print('accelerate' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# -- a group of one, joined over gloo: everything but the meeting of two ------------------------------------------


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SeveralProcesses]:
    store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]

    class State:
        process_index, num_processes = 0, 1

        def __init__(self, *, cpu: bool, timeout: timedelta) -> None:
            dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)

    import accelerate

    monkeypatch.setattr(accelerate, "PartialState", State)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    processes = SeveralProcesses()
    yield processes
    if dist.is_initialized():
        dist.destroy_process_group()


def test_gradients_survive_the_journey_and_none_stays_none(joined: SeveralProcesses) -> None:
    parameters = [nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,), (2, 2, 2))]
    for parameter in (parameters[0], parameters[2]):
        parameter.grad = torch.randn_like(parameter)
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    assert joined.sum_gradients(parameters, 1.5) == 1.5
    assert parameters[1].grad is None
    for parameter, gradient in zip(parameters, before, strict=True):
        assert gradient is None or (parameter.grad is not None and torch.equal(parameter.grad, gradient))


def test_gradients_that_are_views_are_summed_too(joined: SeveralProcesses) -> None:
    parameter = nn.Parameter(torch.randn(3, 4))
    parameter.grad = torch.randn(4, 3).t()
    before = parameter.grad.clone()
    joined.sum_gradients([parameter], 0.0)
    assert torch.equal(parameter.grad, before)


def test_a_message_arrives_as_it_was(joined: SeveralProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []

    def broadcast(tensor: torch.Tensor, source: int, **_: Any) -> None:
        if receiving:
            tensor.copy_(sent.pop(0))
        else:
            sent.append(tensor.clone())

    monkeypatch.setattr(dist, "broadcast", broadcast)
    for message in ({"stage": "train", "target": "cpu@50%", "text": "für alle"}, {"end": 0}):
        receiving = False
        joined.call(message)
        receiving = True
        assert joined.wait() == (None if "end" in message else message)


def test_a_broken_connection_says_what_to_do(joined: SeveralProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:18305")

    monkeypatch.setattr(dist, "all_reduce", broken)
    parameter = nn.Parameter(torch.zeros(1))
    with pytest.raises(LostProcess, match="another process of this command has ended") as caught:
        joined.sum_gradients([parameter], 0.0)
    assert isinstance(caught.value, NotPossibleError)
    assert "\n" not in str(caught.value)


def test_processes_that_see_other_folders_say_so(joined: SeveralProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    joined.count = 2
    joined.check_same("updates done", 0)  # the other one, who is not there, counts as 0
    with pytest.raises(NotPossibleError, match=r"different updates done \(7, 0\); all machines must see the same run"):
        joined.check_same("updates done", 7)


def test_after_a_failure_the_exit_code_is_left_for_the_others(
    joined: SeveralProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: dict[str, str] = {}

    class Store:
        def set(self, key: str, value: str) -> None:
            left[key] = value

        def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
            assert keys[0] in left

        def get(self, key: str) -> bytes:
            return left[key].encode()

    monkeypatch.setattr(module, "_store", Store)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    joined.end(2)
    assert joined.leave() == 2


def test_more_processes_than_gpus_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--num_processes: 2 on this machine, which has 1 GPUs; start one per GPU"):
        SeveralProcesses()


ENVIRONMENTS: list[tuple[Mapping[str, str], int]] = [
    ({}, 1),
    ({"WORLD_SIZE": "1"}, 1),
    ({"WORLD_SIZE": "4", "RANK": "2"}, 4),
    ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
]


@pytest.mark.parametrize(("environment", "count"), ENVIRONMENTS)
def test_the_launcher_says_how_many_there_are(environment: Mapping[str, str], count: int) -> None:
    from fitformer.cli.launched import _started

    assert _started(environment) == count


@pytest.mark.parametrize("value", ["", "two", "0", "-1", "1.5"])
def test_a_number_of_processes_that_is_none_is_one_line(value: str) -> None:
    from fitformer.cli.launched import _started

    with pytest.raises(ValueError, match=r"WORLD_SIZE: '.*' in the environment must be the number of processes"):
        _started({"WORLD_SIZE": value})


def test_accelerate_that_started_one_process_only_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    from fitformer.cli.launched import _started

    assert _started({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_PORT": "29500"}) == 1
    assert capsys.readouterr().err == (
        "note: accelerate has started one process only; for several on processors, too, add --multi_gpu\n"
    )
