"""Several processes that train one model together, as ``accelerate launch`` starts them; one alone costs nothing.

Each process has the whole model and learns from its share of an update's sentences; the gradients are summed, so that
all make the same step. The main process (rank 0) performs the stages and alone writes files; the others wait until it
calls them to a training. Which sentences make an update, which architecture they train and how their loss is weighed
do not depend on the number of processes: the losses are those of one process, up to the order of sums (and, with
dropout, up to which elements are dropped, for every process draws masks of its own).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fitformer.data.arrays import IntArray
from fitformer.errors import InputError, NotPossibleError

WAIT = timedelta(days=365)  # how long a process waits for the others: stages between two trainings may take days
SECONDS_FOR_MAIN = 5.0  # how long an error of another process waits for the main one to report the same
END, ENDED = "end", "fitformer/ended"
PR_SET_PDEATHSIG = 1  # Linux: the signal that a process gets when its parent dies


class LostProcess(NotPossibleError):
    """Another process ended before its time."""


class Processes:
    """One process alone, and what is common to one and several."""

    rank, count = 0, 1
    count_here = 1  # on this machine

    @property
    def is_main(self) -> bool:
        """Whether this is the process that performs the stages and writes their files."""
        return self.rank == 0

    def deal(self, batches: Sequence[IntArray]) -> list[IntArray]:
        """This process's share of an update's batches, given as sentence indices.

        Whole batches are dealt in turn as long as there is one for everybody; of each of the rest, which are fewer
        than the processes, everybody gets every ``count``-th sentence (batches are sorted by length, so the shares
        are of one shape). All shares together are the update's sentences.
        """
        whole = len(batches) - len(batches) % self.count
        split = (indices[self.rank :: self.count] for indices in batches[whole:])
        return [*batches[self.rank : whole : self.count], *(share for share in split if len(share))]

    def seed(self, seed: int) -> int:
        """A seed for what must differ between processes; that of the main process is ``seed`` itself."""
        return seed + self.rank * 0x632BE59BD9B4E019

    def sum_gradients(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """Put the sum over all processes into every ``grad``; return the summed loss.

        A parameter that has no gradient anywhere (its layer is not in the active architecture) stays without.
        """
        return loss

    def agree(self, value: float) -> float:
        """The main process's value."""
        return value

    def check_same(self, name: str, value: int) -> None:
        """Raise ``NotPossibleError`` in all processes unless all have the same value."""

    def call(self, message: Mapping[str, Any]) -> None:
        """Main process: hand the others, which ``wait``, a message (JSON)."""

    def wait(self) -> dict[str, Any] | None:
        """Other processes: the next message, or ``None`` when the main process has finished."""
        raise AssertionError("one process alone waits for nobody")

    def end(self, code: int) -> None:
        """Main process: everything is done, or the command fails with exit code ``code``."""

    def leave(self) -> int | None:
        """Other processes, after an error: the exit code of the main process if it has failed, too."""
        return None


ALONE = Processes()


class SeveralProcesses(Processes):
    """The processes that ``accelerate launch`` (or ``torchrun``, or ``mpirun``) started, joined over PyTorch."""

    def __init__(self) -> None:
        """Join the others.

        Raises:
            InputError: more processes than GPUs.
        """
        from accelerate import PartialState  # here, so that one process alone needs no accelerate

        has_gpu, self.count_here = torch.cuda.is_available(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if has_gpu and self.count_here > torch.cuda.device_count():
            raise InputError(
                f"--num_processes: {self.count_here} on this machine, which has {torch.cuda.device_count()} GPUs; "
                "start one per GPU, or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on processors"
            )
        with _together():
            state = PartialState(cpu=not has_gpu, timeout=WAIT)
            # NCCL moves gradients between GPUs; everything else goes over gloo, which waits without working.
            self._gloo = dist.group.WORLD if not has_gpu else dist.new_group(backend="gloo", timeout=WAIT)
        self.rank, self.count = state.process_index, state.num_processes
        self._buffers: dict[torch.device, Tensor] = {}
        _end_with_launcher()
        if not self.is_main:  # an interrupt reaches all at once; the main process answers it and ends the others
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """As for one process; all gradients travel as one vector."""
        known = [float(parameter.grad is not None) for parameter in parameters]
        facts = torch.tensor([loss, *known], dtype=torch.float64)
        self._sum(facts)
        total, *users = facts.tolist()
        used = [parameter for parameter, count in zip(parameters, users, strict=True) if count]
        buffer = self._buffer(sum(parameter.numel() for parameter in used), used[0].device)
        pieces = buffer.split([parameter.numel() for parameter in used])
        for parameter, piece in zip(used, pieces, strict=True):
            piece.zero_() if parameter.grad is None else piece.copy_(parameter.grad.flatten())
        self._sum(buffer)
        for parameter, piece in zip(used, pieces, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(piece.view_as(parameter))
        return float(total)

    def _buffer(self, size: int, device: torch.device) -> Tensor:
        """A vector that lives as long as the training: allocating it anew costs as much as summing it."""
        buffer = self._buffers.get(device)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[device] = torch.empty(size, device=device)
        return buffer[:size]

    def _sum(self, values: Tensor) -> None:
        with _together():
            dist.all_reduce(values, group=self._gloo if values.device.type == "cpu" else None)

    def agree(self, value: float) -> float:
        """The main process's value; the others wait until it has one."""
        shared = torch.tensor(value, dtype=torch.float64)
        with _together():
            dist.broadcast(shared, 0, group=self._gloo)
        return float(shared)

    def check_same(self, name: str, value: int) -> None:
        """As for one process."""
        values = torch.zeros(self.count, dtype=torch.int64)
        values[self.rank] = value
        self._sum(values)
        if len(set(values.tolist())) > 1:
            raise NotPossibleError(
                f"the processes found different {name} ({', '.join(map(str, values.tolist()))}); "
                "all machines must see the same run folder"
            )

    def call(self, message: Mapping[str, Any]) -> None:
        """Hand the others a message."""
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        with _together():
            dist.broadcast(torch.tensor(len(data)), 0, group=self._gloo)
            dist.broadcast(data, 0, group=self._gloo)

    def wait(self) -> dict[str, Any] | None:
        """The main process's next message; ``None`` at the end."""
        size = torch.tensor(0)
        with _together():
            dist.broadcast(size, 0, group=self._gloo)
            data = torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(data, 0, group=self._gloo)
        message: dict[str, Any] = json.loads(data.numpy().tobytes())
        if END in message:
            dist.destroy_process_group()
            return None
        return message

    def end(self, code: int) -> None:
        """Send the others home. After a failure they may be in the middle of a sum: they find the line cut."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher may send a second one
        if code == 0:
            self.call({END: code})
        else:
            with suppress(RuntimeError):
                _store().set(ENDED, str(code))
        dist.destroy_process_group()

    def leave(self) -> int | None:
        """Close the connections; the main process's exit code if it fails within a few seconds."""
        code = None
        with suppress(RuntimeError):
            store = _store()
            store.wait([ENDED], timedelta(seconds=SECONDS_FOR_MAIN))
            code = int(store.get(ENDED))
        dist.destroy_process_group()
        return code


def _end_with_launcher() -> None:
    """Where torchrun is killed without a chance to end its processes, Linux does it."""
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _together() -> Iterator[None]:
    """What PyTorch says when a connection breaks is about sockets; say what it means."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcess(
            "another process of this command has ended or cannot be reached; run the same command again to continue"
        ) from error


def _store() -> Any:
    """What the launcher lets its processes exchange words through; it outlives the main process."""
    return dist.distributed_c10d._get_default_store()
