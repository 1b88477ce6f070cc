"""Finalists: only an architecture that keeps the limit when measured can win."""

import json
import random

import pytest

from fitformer.errors import InputError, NotPossibleError
from fitformer.search import Candidate, Evolution, EvolutionSettings, History, find_architecture, settle
from fitformer.search.finalists import pick

SMALL = EvolutionSettings(
    population_size=20, num_parents=5, num_mutations=8, num_crossovers=7, num_generations=6, seed=3
)
LIMIT = 9.0


@pytest.fixture
def find(space, model, tmp_path):
    """A whole search in which the device takes ``device(arch)`` and the predictor starts with ``model.cost``."""

    def find(device, limit=LIMIT, folder=tmp_path / "search", **options):
        def refit(finalists):
            ratio = sorted(f.measured_ms / model.cost(f.architecture) for f in finalists)[len(finalists) // 2]
            return lambda arch: ratio * model.cost(arch)

        return find_architecture(
            space, model.fitness, model.cost, limit, measure=device, refit=refit, folder=folder, settings=SMALL,
            quiet=True, **options,
        )  # fmt: skip

    return find


def test_with_a_true_predictor_the_lowest_loss_wins_in_one_round(find, model):
    found = find(model.cost)
    assert found.settled.rounds == 1
    assert found.settled.winner.valid_loss == min(map(model.loss, model.asked))
    assert found.settled.predictor_error == pytest.approx(0)
    assert found.facts()["evaluations"] == len(model.asked)


def test_a_predictor_that_is_too_low_is_corrected_and_the_winner_keeps_the_limit(find, model):
    found = find(lambda arch: 1.15 * model.cost(arch))
    assert found.settled.rounds > 1
    assert 1.15 * model.cost(found.settled.winner.architecture) <= LIMIT
    assert found.settled.predictor_error < 1
    rivals = [f.valid_loss for f in found.settled.finalists if f.measured_ms <= LIMIT]
    assert found.settled.winner.valid_loss == min(rivals)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_device_does_the_winner_was_measured_within_the_limit(find, model, seed):
    rng = random.Random(seed)
    measured = {}

    def device(arch):
        measured[arch] = model.cost(arch) * rng.uniform(0.9, 1.3)
        return measured[arch]

    try:
        found = find(device)
    except NotPossibleError as error:
        assert all(ms > LIMIT for ms in measured.values())
        assert f"{min(measured.values()):.4g} ms" in str(error)
    else:
        assert measured[found.settled.winner.architecture] <= LIMIT


def test_a_limit_that_no_measured_architecture_keeps_names_the_fastest(find, model):
    with pytest.raises(NotPossibleError, match=r"limit 9 ms: .*fastest takes|smallest reachable latency"):
        find(lambda arch: 5 * model.cost(arch))


def test_when_the_leaders_break_the_limit_and_rounds_are_over_a_faster_one_is_tried(find, model):
    found = find(lambda arch: 1.5 * model.cost(arch), max_rounds=1, finalists=2)
    assert found.settled.winner.measured_ms <= LIMIT


def test_a_killed_search_repeats_neither_evaluation_nor_measurement(find, model, tmp_path):
    def device(arch):
        measured.append(arch)
        return 1.15 * model.cost(arch)

    measured = []
    found = find(device)
    once = (tmp_path / "search" / "best.json").read_bytes()
    assert len(measured) == len(set(measured)) == len(found.settled.finalists)

    class Killed(Exception):
        pass

    def dies(arch):
        if len(measured) == 3:
            raise Killed
        return device(arch)

    measured.clear()
    with pytest.raises(Killed):
        find(dies, folder=tmp_path / "again")
    model.asked.clear()
    again = find(device, folder=tmp_path / "again")
    assert again.settled == found.settled
    assert len(measured) == len(found.settled.finalists)
    assert (tmp_path / "again" / "best.json").read_bytes() == once
    for name in ("history.jsonl", "front.json", "candidates.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "search" / name).read_bytes()


def test_the_files_of_a_search_have_the_documented_keys(find, model, tmp_path):
    find(model.cost)
    best = json.loads((tmp_path / "search" / "best.json").read_text())
    assert set(best) == {"architecture", "text", "valid_loss", "predicted_ms", "measured_ms", "limit_ms"}
    finalists = json.loads((tmp_path / "search" / "candidates.json").read_text())
    assert all(set(f) == {"architecture", "valid_loss", "predicted_ms", "measured_ms", "round"} for f in finalists)
    assert best["text"] in [f["architecture"] for f in finalists]
    front = json.loads((tmp_path / "search" / "front.json").read_text())
    assert all(set(c) == {"architecture", "valid_loss", "predicted_ms", "generation"} for c in front)


def test_the_finalists_are_the_best_within_ever_tighter_limits(space):
    rng = random.Random(0)
    archs = list(dict.fromkeys(space.sample(rng) for _ in range(40)))[:12]
    # Loss falls with latency: 9.0 ms has loss 3.0, 10.1 ms (over the limit) has the lowest.
    candidates = [Candidate(arch, 3 - 0.1 * i, 9 + 0.1 * i, 0) for i, arch in enumerate(archs)]
    chosen = pick(candidates, 10.0, 5, {})
    assert [round(c.predicted_ms, 1) for c in chosen] == [10.0, 9.9, 9.8, 9.5, 9.0]
    assert [round(c.predicted_ms, 1) for c in pick(candidates, 10.0, 1, {})] == [10.0]
    without = pick(candidates, 10.0, 3, {archs[10]: 10.2})
    assert [round(c.predicted_ms, 1) for c in without] == [9.9, 9.8, 9.5]
    assert pick(candidates, 10.0, 3, {archs[10]: 9.9}) == []  # the best holds: nothing else is worth measuring


def test_a_bad_number_of_finalists_is_named(find, model):
    with pytest.raises(InputError, match=r"search\.finalists: 0"):
        find(model.cost, finalists=0)


def test_settling_tells_about_a_broken_limit_in_one_line(space, model, capsys):
    evolution = Evolution(space, model.fitness, LIMIT, SMALL, History(), quiet=True)
    settle(
        evolution.run(model.cost),
        lambda arch: 1.1 * model.cost(arch),
        LIMIT,
        refit=lambda finalists: lambda arch: 1.1 * model.cost(arch),
        search_on=lambda cost: evolution.run(cost, 1),
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "correcting the predictor" in lines[0]
