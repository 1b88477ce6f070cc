"""The rules a SuperTransformer is trained by: what learns at an update, from what, and that kills change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fitformer.models import SuperTransformer, TransformerConfig
from fitformer.recipe import Supernet
from fitformer.space import SearchSpace
from fitformer.tasks import TranslationTask
from fitformer.training import loop, train
from fitformer.training.checkpoint import WEIGHTS, read_tensors, unique_parameters
from fitformer.training.importance import sort_by_importance
from fitformer.training.logs import read_log
from fitformer.training.sandwich import Sampling

SPACE = SearchSpace(
    (16, 8), (16, 8), (2, 1), (2, 1), (24, 16), (16, 8), (2, 1), (24, 16), (16, 8), (2, 1), (2,), (1, 2)
)
SEED = 5
SANDWICH = {"sampling": "sandwich", "random_architectures": 2}
SORTED = {"importance_sorting": True, "largest_first": 5}


class Killed(BaseException):
    """Not an Exception, so that nothing can mistake it for an error to be handled."""


class Training:
    """A small training by a rule, from fresh weights as a new process would start it."""

    def __init__(self, prepared: Path, **settings: Any) -> None:
        defaults = {"updates": 12, "batch_tokens": 128, "warmup": 3, "learning_rate": 0.01, "validate_every": 4}
        self.settings = Supernet(**{**defaults, "dropout": 0.2, "weight_decay": 0.01, **settings})
        torch.manual_seed(SEED)
        self.model = SuperTransformer(
            TransformerConfig(400, 400, max_positions=300, dropout=self.settings.dropout), SPACE
        )
        self.task = TranslationTask(prepared, batch_tokens=128, seed=SEED, valid_sentences=20)
        self.sampling = Sampling(self.model, self.task, self.settings, SEED)

    def run(self, folder: Path, *, kill_before: int | None = None) -> dict[str, Any]:
        hooks = self.sampling.hooks()
        choose = hooks["select"]

        def select(update: int) -> None:
            if update == kill_before:
                raise Killed
            choose(update)

        hooks["select"] = select
        return train(
            self.model, self.task, self.settings, folder, seed=SEED, title="small", validate=self.validate, **hooks
        )

    def validate(self) -> dict[str, float]:
        losses = {}
        for name, arch in {"largest": SPACE.largest(), "smallest": SPACE.smallest()}.items():
            self.model.set_active(arch)
            losses[name] = self.task.validation_loss(self.model)["loss"]
        return losses


@pytest.fixture
def start(prepared: Path) -> Callable[..., Training]:
    return lambda **settings: Training(prepared, **settings)


def weights(folder: Path) -> dict[str, Tensor]:
    return read_tensors(folder / WEIGHTS)[0]


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


# -- what learns ------------------------------------------------------------------------------------------------------


def test_uniform_sampling_draws_by_seed_and_update_as_it_always_has(start: Callable[..., Training]) -> None:
    sampling = start().sampling
    for update in range(1, 50):
        assert sampling.architectures(update) == (SPACE.sample(random.Random(f"{SEED}-{update}")),)


def test_a_sandwich_is_the_largest_the_smallest_and_random_ones(start: Callable[..., Training]) -> None:
    sampling = start(**SANDWICH).sampling
    seen = [sampling.architectures(update) for update in range(1, 30)]
    assert all(chosen[:2] == (SPACE.largest(), SPACE.smallest()) and len(chosen) == 4 for chosen in seen)
    assert len({chosen[2:] for chosen in seen}) > 25
    assert seen == [start(**SANDWICH).sampling.architectures(update) for update in range(1, 30)]


def test_first_only_the_largest_learns(start: Callable[..., Training]) -> None:
    for rule in ({}, SANDWICH):
        sampling = start(**rule, largest_first=4).sampling
        assert [sampling.architectures(update) for update in (1, 4)] == [(SPACE.largest(),)] * 2
        assert sampling.architectures(5) == start(**rule).sampling.architectures(5)


def test_uniform_training_is_the_plain_loop(start: Callable[..., Training], tmp_path: Path) -> None:
    start().run(tmp_path / "rule")
    training = start()
    train(
        training.model,
        training.task,
        training.settings,
        tmp_path / "by hand",
        seed=SEED,
        title="small",
        select=lambda update: training.model.set_active(SPACE.sample(random.Random(f"{SEED}-{update}"))),
        validate=training.validate,
    )
    assert_same(weights(tmp_path / "rule"), weights(tmp_path / "by hand"))


@pytest.mark.parametrize("distillation", [0.0, 0.4, 1.0])
def test_the_gradient_of_a_sandwich_is_that_of_the_mean_over_its_architectures(
    start: Callable[..., Training], distillation: float
) -> None:
    """By hand: separate forward passes, torch's own losses, the largest's predictions as constants."""
    training = start(**SANDWICH, distillation=distillation, dropout=0.0)
    model, task, sampling = training.model, training.task, training.sampling
    batches = [task.batch(indices) for indices in task.epoch(0)[:2]]
    tokens = sum(batch.num_tokens for batch in batches)
    sampling.select(7)
    total = sampling.step(batches, tokens)
    gradients = {name: value.grad for name, value in unique_parameters(model).items()}
    model.zero_grad()

    expected = torch.zeros(())
    chosen = sampling.architectures(7)
    for batch in batches:
        target, soft = batch.target.flatten(), None
        for arch in chosen:
            model.set_active(arch)
            logits = model(batch.source, batch.decoder_input).flatten(0, 1)
            loss = F.cross_entropy(logits, target, reduction="none", label_smoothing=0.1)
            if soft is not None:
                loss = (1 - distillation) * loss + distillation * F.cross_entropy(logits, soft, reduction="none")
            else:
                soft = logits.detach().softmax(1)
            expected = expected + loss[target != 0].sum() / len(chosen)
    (expected / tokens).backward()
    assert total == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in unique_parameters(model).items():
        assert parameter.grad is not None
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_a_sandwich_improves_the_largest_and_the_smallest(start: Callable[..., Training], tmp_path: Path) -> None:
    start(**SANDWICH, updates=40, validate_every=20).run(tmp_path)
    lines = [line["valid"] for line in read_log(tmp_path) if "valid" in line]
    assert lines[1]["largest"] < lines[0]["largest"]
    assert lines[1]["smallest"] < lines[0]["smallest"]


# -- sorting by importance --------------------------------------------------------------------------------------------


def test_sorting_does_not_disturb_the_training_of_the_largest(start: Callable[..., Training], tmp_path: Path) -> None:
    """Weights and both moments move together: later updates come to the same function as without the sorting."""
    losses = []
    for name, sort in (("plain", False), ("sorted", True)):
        training = start(largest_first=11, validate_every=1)

        def reorder(update: int, optimizer: torch.optim.Optimizer, sort: bool = sort, training: Any = training) -> bool:
            if sort and update in (4, 8):
                sort_by_importance(training.model, optimizer)
            return False

        hooks: Any = {**training.sampling.hooks(), "reorder": reorder}
        train(
            training.model,
            training.task,
            training.settings,
            tmp_path / name,
            seed=SEED,
            title="small",
            validate=training.validate,
            **hooks,
        )
        losses.append([line["valid"] for line in read_log(tmp_path / name) if "valid" in line])
    largest = [[line["largest"] for line in run] for run in losses]
    assert largest[0][:11] == pytest.approx(largest[1][:11], rel=1e-5)
    assert losses[0][6]["smallest"] != pytest.approx(losses[1][6]["smallest"], rel=1e-5)


def test_it_sorts_once_after_the_updates_of_the_largest(
    start: Callable[..., Training], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr("fitformer.training.sandwich.sort_by_importance", lambda model, optimizer: calls.append(1))
    training = start(**SORTED)
    training.run(tmp_path)
    assert len(calls) == 1
    optimizer = torch.optim.AdamW(training.model.parameters())
    assert [training.sampling.reorder(update, optimizer) for update in (1, 5, 6, 7)] == [False, False, True, False]


def test_weights_of_another_order_are_not_averaged(start: Callable[..., Training], tmp_path: Path) -> None:
    facts = start(**SORTED, updates=9, validate_every=2, average_last=4).run(tmp_path)
    assert facts["averaged"] == 3  # those of updates 6, 8 and 9; 2 and 4 came before the sorting


# -- kills ------------------------------------------------------------------------------------------------------------

RULES: dict[str, dict[str, Any]] = {
    "sandwich": SANDWICH,
    "sorted": SORTED,
    "sorted sandwich": {
        **SANDWICH,
        **SORTED,
        "average_last": 2,
        "validate_every": 2,
        "accumulate": 2,
        "random_architectures": 1,
    },
}


@pytest.mark.parametrize("saves", [0.0, 1e9], ids=["saved every update", "saved at validations"])
@pytest.mark.parametrize("rule", RULES)
def test_killed_anywhere_a_rule_comes_to_the_same_weights_and_log(
    start: Callable[..., Training], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, saves: float
) -> None:
    monkeypatch.setattr(loop, "UPDATES_PER_LOG_LINE", 1)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", saves)
    settings = {**RULES[rule], "updates": 8}
    facts = start(**settings).run(tmp_path / "alone")
    for update in (3, 6, 7):  # 6 begins with the sorting
        folder = tmp_path / f"killed {update}"
        with pytest.raises(Killed):
            start(**settings).run(folder, kill_before=update)
        again = start(**settings).run(folder)
        assert_same(weights(folder), weights(tmp_path / "alone"))
        assert {**again, "seconds": 0} == {**facts, "seconds": 0}
        assert _figures(folder) == _figures(tmp_path / "alone")


def _figures(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_s")} for line in read_log(folder)]


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"importance_sorting": True}, "importance_sorting: needs largest_first"),
        ({"largest_first": 100, "updates": 100}, r"largest_first: 100 must be less than updates \(100\)"),
        ({"largest_first": 10, "patience": 3}, "patience: 3 must be 0 with largest_first"),
        ({"distillation": 1.5}, "distillation"),
        ({"random_architectures": -1}, "random_architectures"),
        ({"sampling": "sandwhich"}, "sampling"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Supernet(**settings)
