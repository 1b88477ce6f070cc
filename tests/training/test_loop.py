"""The training loop: what an update does, when it stops, what it averages, what it writes down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fitformer.errors import NotPossibleError
from fitformer.tasks.translation import Loss, PairTensors, TranslationTask
from fitformer.training import loop
from fitformer.training.checkpoint import STATE, WEIGHTS, load_weights, read_tensors, unique_parameters
from fitformer.training.logs import read_log
from fitformer.training.loop import clean_up
from fitformer.training.schedule import learning_rate

MakeTraining = Callable[..., Any]


def weights(folder: Path) -> dict[str, Tensor]:
    return read_tensors(folder / WEIGHTS)[0]


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("supernet", [False, True], ids=["plain", "supernet"])
def test_the_loop_equals_one_written_by_hand(
    make_training: MakeTraining, tmp_path: Path, accumulate: int, supernet: bool
) -> None:
    """Gradients are those of the mean loss per token of all accumulated batches; clipped; stepped by AdamW."""
    training = make_training(supernet=supernet, accumulate=accumulate, updates=5, clip_norm=0.5)
    training.run(tmp_path)
    model, task, settings = training.make_model(), training.make_task(), training.make_settings()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01, fused=True)
    batches = iter([batch for epoch in range(3) for batch in task.epoch(epoch)])
    model.train()
    for update in range(1, 6):
        if supernet:
            model.set_active(training.architectures[update - 1])
        model.mask_pool.start_update(5, update)
        read = [task.batch(next(batches)) for _ in range(accumulate)]
        tokens = sum(int((batch.target != 0).sum()) for batch in read)
        optimizer.zero_grad()
        for batch in read:
            (task.loss(model, batch).smoothed / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = learning_rate(settings, update)
        optimizer.step()
    assert same(weights(tmp_path), {name: p.detach() for name, p in unique_parameters(model).items()})


def test_the_same_recipe_and_seed_give_the_same_weights(make_training: MakeTraining, tmp_path: Path) -> None:
    for name in ("first", "second"):
        make_training(supernet=True).run(tmp_path / name)
    assert same(weights(tmp_path / "first"), weights(tmp_path / "second"))


def test_training_lowers_the_loss(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(supernet=True, updates=60, validate_every=20)
    training.run(tmp_path)
    losses = [line["valid"]["largest"] for line in read_log(tmp_path) if "valid" in line]
    assert len(losses) == 3
    assert losses[0] > losses[1] > losses[2]


def test_one_architecture_is_selected_per_update_from_its_number(make_training: MakeTraining, tmp_path: Path) -> None:
    first, second = make_training(supernet=True, accumulate=3), make_training(supernet=True, batch_tokens=300)
    first.run(tmp_path / "first")
    second.run(tmp_path / "second")
    assert first.selected == second.selected == list(range(1, 13))
    assert first.architectures == second.architectures
    assert len(set(first.architectures)) == 12


def test_the_weights_are_those_of_the_last_update_unless_averaged(make_training: MakeTraining, tmp_path: Path) -> None:
    training, seen = make_training(), []
    training.on_validate = lambda model: seen.append(
        {n: p.detach().clone() for n, p in unique_parameters(model).items()}
    )
    training.run(tmp_path)
    assert len(seen) == 4  # three while training, one of the final weights
    assert same(weights(tmp_path), seen[2])


@pytest.mark.parametrize(("average_last", "used"), [(2, [8, 10]), (3, [4, 8, 10]), (9, [4, 8, 10])])
def test_averaged_weights_are_the_mean_of_the_last_snapshots(
    make_training: MakeTraining, tmp_path: Path, average_last: int, used: list[int]
) -> None:
    training, seen = make_training(average_last=average_last, updates=10), []
    training.on_validate = lambda model: seen.append(
        {n: p.detach().clone() for n, p in unique_parameters(model).items()}
    )
    facts = training.run(tmp_path)
    assert facts["averaged"] == len(used)
    for name, value in weights(tmp_path).items():
        expected = torch.stack([snapshot[name] for snapshot in seen[:3][-len(used) :]]).double().mean(0)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
    for update, snapshot in zip((4, 8, 10), seen, strict=False):
        if update in used:
            assert same(read_tensors(tmp_path / f"snapshot-{update}.safetensors")[0], snapshot)


def test_snapshots_do_not_pile_up(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(average_last=2, updates=12, validate_every=1)
    training.run(tmp_path)
    # Those that are averaged and the one before, for a kill that comes before the state is saved.
    assert sorted(path.name for path in tmp_path.glob("snapshot-*")) == [
        f"snapshot-{update}.safetensors" for update in (10, 11, 12)
    ]


class JustBooted:
    """A clock that has run for a second only."""

    @staticmethod
    def monotonic() -> float:
        return 1.0


def test_the_state_is_saved_at_every_validation_whatever_the_clock_says(
    make_training: MakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save_state = loop.save_state
    monkeypatch.setattr(loop, "time", JustBooted)
    monkeypatch.setattr(loop, "save_state", lambda *state: (saved.append(state[3].update), save_state(*state))[1])
    make_training(updates=10).run(tmp_path)
    assert saved == [4, 8, 10]


def test_training_stops_when_patience_is_over(make_training: MakeTraining, tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    training = make_training(patience=2, validate_every=1, updates=12)
    training.validation_loss = lambda _: {"largest": next(losses)}
    facts = training.run(tmp_path)
    assert facts["updates"] == 4  # 2.0 again is not better than 2.0
    assert training.selected == [1, 2, 3, 4]


def test_the_mean_of_all_watched_losses_decides_about_patience(make_training: MakeTraining, tmp_path: Path) -> None:
    losses = iter([{"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 2.9}, {"a": 2.0, "b": 2.0}, {"a": 0.0, "b": 0.0}])
    training = make_training(patience=1, validate_every=1, updates=12)
    training.validation_loss = lambda _: next(losses)
    assert training.run(tmp_path)["updates"] == 3


def test_facts_state_what_was_done(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(accumulate=2, updates=5)
    facts = training.run(tmp_path)
    task = training.make_task()
    tokens = sum(task.batch(indices).num_tokens for indices in task.epoch(0)[:10])
    assert {key: facts[key] for key in ("updates", "target_tokens", "epochs", "averaged")} == {
        "updates": 5,
        "target_tokens": tokens,
        "epochs": 0,
        "averaged": 1,
    }
    model = training.make_model()
    load_weights(tmp_path / WEIGHTS, model)
    assert facts["valid"]["largest"] == task.validation_loss(model)["loss"]
    json.dumps(facts)


def test_training_goes_through_epoch_after_epoch(make_training: MakeTraining, tmp_path: Path) -> None:
    training = make_training(batches_per_epoch=3, updates=8)
    task, read = training.make_task(), []
    batch = task.batch
    task.batch = lambda indices: (read.append(indices.tolist()), batch(indices))[1]
    training.make_task = lambda: task
    assert training.run(tmp_path)["epochs"] == 2
    assert read == [indices.tolist() for number in range(3) for indices in task.epoch(number)][:8]


def test_the_log_has_its_promised_keys(
    make_training: MakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "UPDATES_PER_LOG_LINE", 3)
    make_training(updates=6, validate_every=6).run(tmp_path)
    lines = read_log(tmp_path)
    assert [line["update"] for line in lines] == [3, 6, 6]
    training_keys = {"update", "loss", "learning_rate", "epoch", "target_tokens", "tokens_per_s", "seconds"}
    assert [set(line) for line in lines] == [training_keys, training_keys, {"update", "valid"}]
    assert set(lines[2]["valid"]) == {"largest", "smallest"}
    assert list((tmp_path / "tensorboard").glob("*tfevents*"))


class Diverging(TranslationTask):
    """The loss is ``value`` from the third update on."""

    value, calls = float("nan"), 0

    def loss(self, model: Any, batch: PairTensors) -> Loss:
        Diverging.calls += 1
        loss = super().loss(model, batch)
        return loss if Diverging.calls < 3 else loss._replace(smoothed=loss.smoothed * Diverging.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_training_in_one_line(
    make_training: MakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    Diverging.value, Diverging.calls = value, 0
    training = make_training(validate_every=100)
    task = training.make_task()
    task.__class__ = Diverging
    monkeypatch.setattr(training, "make_task", lambda: task)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    with pytest.raises(
        NotPossibleError, match=r"small: the loss is no longer a number at update 3; lower learning_rate"
    ) as e:
        training.run(tmp_path)
    assert "\n" not in str(e.value)
    # The state on disk is that of the last good update.
    tensors, metadata = read_tensors(tmp_path / STATE)
    assert metadata["update"] == 2
    assert all(torch.isfinite(value).all() for value in tensors.values())
    assert not (tmp_path / WEIGHTS).exists()


def test_a_rate_far_too_high_is_noticed(make_training: MakeTraining, tmp_path: Path) -> None:
    with pytest.raises(NotPossibleError, match="the loss is no longer a number"):
        make_training(learning_rate=1e30, warmup=0, clip_norm=0.0).run(tmp_path)


def test_clean_up_leaves_what_the_finished_stage_needs(make_training: MakeTraining, tmp_path: Path) -> None:
    make_training(average_last=2).run(tmp_path)
    for half_written in (".state.safetensors.a1b2.tmp", ".tmpA1B2c3"):
        (tmp_path / half_written).touch()
    clean_up(tmp_path)
    clean_up(tmp_path)  # again changes nothing
    assert {path.name for path in tmp_path.iterdir()} == {WEIGHTS, "log.jsonl", "tensorboard"}
