"""Two real processes, started by accelerate, learn what one learns from the same global batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fitformer.training import loop
from fitformer.training.checkpoint import WEIGHTS, read_tensors
from fitformer.training.logs import read_log

MakeTraining = Callable[..., Any]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
LAUNCH += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
EXACT = {"dropout": 0.0, "attention_dropout": 0.0, "updates": 8, "batch_tokens": 512}
VARIANTS: dict[str, dict[str, Any]] = {
    "batches split between them": {},
    "batches dealt whole": {"accumulate": 2},
    "both, and an architecture per update": {"accumulate": 3, "supernet": True},
    "one sentence, so that one has nothing": {"batch_tokens": 8},
    "averaged": {"average_last": 2, "validate_every": 2},
    "stopped early, for it learns nothing": {
        "patience": 1,
        "validate_every": 2,
        "learning_rate": 1e-30,
        "schedule": "constant",
    },
    "with dropout": {"dropout": 0.2},
}
MOVED = "one process, then two, then one"
pytestmark = [pytest.mark.slow]


class Killed(BaseException):
    pass


def give_up_before(update: int) -> Callable[[int], None]:
    def on_select(now: int) -> None:
        if now == update:
            raise Killed

    return on_select


@pytest.fixture(autouse=True)
def _a_log_line_per_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "UPDATES_PER_LOG_LINE", 1)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.fixture(scope="module")
def by_two(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of all variants, trained by two processes in one go; one of them begun by one process."""
    folder = tmp_path_factory.mktemp("by-two")
    jobs: list[dict[str, Any]] = [
        {"folder": str(folder / name), "settings": {**EXACT, **settings}} for name, settings in VARIANTS.items()
    ]
    begin_alone(prepared, folder / MOVED)
    jobs.append({"folder": str(folder / MOVED), "settings": {**EXACT, "supernet": True}, "give_up_before": 6})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    worker = Path(__file__).with_name("together.py")
    result = subprocess.run(
        [*LAUNCH, str(worker), str(prepared), str(folder / "jobs.json")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def begin_alone(prepared: Path, folder: Path) -> None:
    """Three updates by one process, in a process of its own: the fixture has no monkeypatch."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from together import GivenUp, load_small_training\n"
        "from fitformer.training import loop\n"
        "loop.UPDATES_PER_LOG_LINE, loop.SECONDS_BETWEEN_SAVES = 1, 0.0\n"
        f"training = load_small_training()(Path({str(prepared)!r}), True, {EXACT!r})\n"
        "def stop(update):\n"
        "    if update == 4: raise GivenUp\n"
        "training.on_select = stop\n"
        "try:\n"
        f"    training.run(Path({str(folder)!r}))\n"
        "except GivenUp: pass\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def losses(folder: Path) -> dict[str, float]:
    """Every loss in the log by name."""
    found = {}
    for line in read_log(folder):
        named = line.get("valid") or {"train": line["loss"]}
        found |= {f"{line['update']} {name}": value for name, value in named.items()}
    return found


def assert_learnt_the_same(folder: Path, alone: Path) -> None:
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-4)
    weights, expected = read_tensors(folder / WEIGHTS)[0], read_tensors(alone / WEIGHTS)[0]
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        if name.endswith("proj.bias"):
            continue  # keys: softmax does not see their bias, so its gradient is rounding that Adam makes large
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "with dropout"])
def test_two_processes_learn_what_one_learns(
    make_training: MakeTraining, by_two: Path, tmp_path: Path, variant: str
) -> None:
    make_training(**{**EXACT, **VARIANTS[variant]}).run(tmp_path)
    assert_learnt_the_same(by_two / variant, tmp_path)
    last = read_log(tmp_path)[-1]["update"]
    assert last == (4 if variant.startswith("stopped early") else 8)
    tokens = [[line.get("target_tokens") for line in read_log(folder)] for folder in (by_two / variant, tmp_path)]
    assert tokens[0] == tokens[1]


def test_every_process_samples_the_same_architectures_as_one(
    make_training: MakeTraining, by_two: Path, tmp_path: Path
) -> None:
    variant = "both, and an architecture per update"
    alone = make_training(**{**EXACT, **VARIANTS[variant]})
    alone.run(tmp_path)
    expected = {"selected": alone.selected, "architectures": [arch.to_text() for arch in alone.architectures]}
    assert len(set(expected["architectures"])) > 1
    for rank in (0, 1):
        assert json.loads((by_two / variant / f"process-{rank}.json").read_text()) == expected


def test_a_training_moves_from_one_process_to_two_and_back(
    make_training: MakeTraining, by_two: Path, tmp_path: Path
) -> None:
    for rank in (0, 1):  # two processes went on where one had stopped, and stopped themselves
        assert json.loads((by_two / MOVED / f"process-{rank}.json").read_text())["selected"] == [4, 5]
    resumed = make_training(**EXACT, supernet=True)
    resumed.run(by_two / MOVED)
    assert resumed.selected == [6, 7, 8]
    make_training(**EXACT, supernet=True).run(tmp_path)
    assert_learnt_the_same(by_two / MOVED, tmp_path)


def test_with_dropout_the_processes_drop_other_elements(
    make_training: MakeTraining, by_two: Path, tmp_path: Path
) -> None:
    """Were the masks the same for both, or as for one, a regularly trained model would depend on it by accident."""
    make_training(**{**EXACT, **VARIANTS["with dropout"]}).run(tmp_path)
    two, one = losses(by_two / "with dropout"), losses(tmp_path)
    assert two.keys() == one.keys()
    assert two["1 train"] != one["1 train"]
    assert two == pytest.approx(one, rel=0.2)


def test_only_the_main_process_writes(by_two: Path) -> None:
    names = {path.name for path in (by_two / "batches dealt whole").iterdir()}
    assert names == {WEIGHTS, "state.safetensors", "log.jsonl", "tensorboard", "process-0.json", "process-1.json"}
    assert len(list((by_two / "batches dealt whole" / "tensorboard").iterdir())) == 1
