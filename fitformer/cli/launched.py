"""Commands that several processes were started for, by ``accelerate launch`` or its like."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fitformer.cli.failures import exit_code
from fitformer.errors import InputError
from fitformer.progress import say

if TYPE_CHECKING:
    from fitformer.training.processes import Processes

SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # torchrun's and those of MPIs


@contextmanager
def processes() -> Iterator[Processes | None]:
    """The processes of this command, joined; ``None`` where there is but one, which then loads nothing for it.

    When the main process fails, the others end without a word, with its exit code.
    """
    if _started(os.environ) == 1:
        yield None
        return
    from fitformer.training.processes import SeveralProcesses

    joined = SeveralProcesses()
    try:
        yield joined
    except (Exception, KeyboardInterrupt) as error:
        if joined.is_main:
            joined.end(exit_code(error))
        elif (code := joined.leave()) is not None:
            raise typer.Exit(code) from None
        raise
    if joined.is_main:
        joined.end(0)


def _started(environment: Mapping[str, str]) -> int:
    """How many processes a launcher says it has started.

    Raises:
        InputError: it says something else than a number.
    """
    for name in SIZES:
        value = environment.get(name)
        if value is not None:
            if not value.isdecimal() or int(value) < 1:
                raise InputError(f"{name}: '{value}' in the environment must be the number of processes")
            return int(value)
    if "ACCELERATE_MIXED_PRECISION" in environment and "MASTER_PORT" in environment:
        # Without --multi_gpu, accelerate leaves it to MPI to start several processes on processors, and starts one.
        say("note: accelerate has started one process only; for several on processors, too, add --multi_gpu")
    return 1
