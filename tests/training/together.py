"""One of the processes of test_two_processes: does the trainings that a file asks for, and says what it saw.

Usage: together.py PREPARED JOBS. A job has a folder, settings of ``SmallTraining`` and perhaps the update before which
all processes give up, as if killed. Each process adds its report to the folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitformer.training import loop
from fitformer.training.processes import SeveralProcesses


class GivenUp(BaseException):
    pass


def give_up_before(last: int | None) -> Callable[[int], None]:
    def on_select(update: int) -> None:
        if update == last:
            raise GivenUp

    return on_select


def load_small_training() -> Any:
    spec = importlib.util.spec_from_file_location("small_training", Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module.SmallTraining


def main() -> None:
    prepared, jobs = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    loop.UPDATES_PER_LOG_LINE, loop.SECONDS_BETWEEN_SAVES = 1, 0.0
    small_training, processes = load_small_training(), SeveralProcesses()
    for job in jobs:
        settings = dict(job["settings"])
        training = small_training(prepared, settings.pop("supernet", False), settings, processes=processes)

        training.on_select = give_up_before(job.get("give_up_before"))
        folder = Path(job["folder"])
        with contextlib.suppress(GivenUp):
            training.run(folder)
        report = {
            "selected": training.selected,
            "architectures": [arch.to_text() for arch in training.architectures],
        }
        (folder / f"process-{processes.rank}.json").write_text(json.dumps(report))
        processes.agree(0.0)  # nobody reads the folder of the next job while somebody writes to it
    if processes.is_main:
        processes.end(0)
    else:
        assert processes.wait() is None


if __name__ == "__main__":
    main()
