"""The search: within the space and the limit, nothing twice, the same course after a kill, and it always ends."""

import math
import random
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitformer.errors import NotPossibleError, RecipeError
from fitformer.search import Evolution, EvolutionSettings, History, cheapest, check_reachable
from fitformer.space import SearchSpace

SMALL = EvolutionSettings(
    population_size=20, num_parents=5, num_mutations=8, num_crossovers=7, num_generations=6, seed=3
)
LIMIT = 9.0


def evolve(space, model, limit=LIMIT, settings=SMALL, path=None):
    evolution = Evolution(space, model.fitness, limit, settings, History(path), quiet=True)
    return evolution.run(model.cost), evolution


def taxes_everything(arch):
    """A cost in which every choice counts, so that next to nothing lies close to the smallest."""
    return sum(map(int, re.findall(r"\d+", arch.to_text())))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.floats(6.0, 15.0), seed=st.integers(0, 1000), prob=st.sampled_from([0.1, 0.3, 1.0]))
def test_every_evaluated_architecture_is_in_the_space_within_the_limit_and_evaluated_once(
    space, model, limit, seed, prob
):
    model.asked.clear()
    candidates, evolution = evolve(space, model, limit, replace(SMALL, seed=seed, mutation_prob=prob))
    assert len(model.asked) == len(set(model.asked)) <= SMALL.num_evaluations
    assert all(space.contains(arch) and model.cost(arch) <= limit for arch in model.asked)
    assert [c.architecture for c in evolution.history.candidates] == model.asked
    assert candidates[0].valid_loss == min(map(model.loss, model.asked))


def test_a_generation_brings_as_many_new_architectures_as_set(space, model):
    _, evolution = evolve(space, model)
    sizes = [sum(c.generation == g for c in evolution.evaluated.values()) for g in range(SMALL.num_generations)]
    assert sizes == [20, 15, 15, 15, 15, 15]
    assert sum(sizes) == SMALL.num_evaluations


def test_the_same_seed_takes_the_same_course_and_another_another(space, model):
    first, _ = evolve(space, model)
    assert evolve(space, model)[0] == first
    assert evolve(space, model, settings=replace(SMALL, seed=4))[0] != first


def test_a_search_cut_at_any_line_ends_as_if_it_had_not_been(space, model, tmp_path):
    path = tmp_path / "history.jsonl"
    whole, _ = evolve(space, model, path=path)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for count in range(0, len(lines), 3):
        torn = lines[count][: len(lines[count]) // 2]
        path.write_bytes(b"".join(lines[:count]) + torn)
        model.asked.clear()
        again, _ = evolve(space, model, path=path)
        assert again == whole
        assert len(model.asked) == len(lines) - count
        assert path.read_bytes() == content


def test_the_search_beats_random_drawing_at_equal_evaluations(model):
    space = SearchSpace.preset("multi30k")
    limit = 15.0
    for seed in range(5):
        found, evolution = evolve(space, model, limit, replace(SMALL, seed=seed, num_generations=12))
        rng, drawn = random.Random(seed), []
        while len(drawn) < len(evolution.evaluated):
            arch = space.sample(rng)
            if model.cost(arch) <= limit:
                drawn.append(model.loss(arch))
        assert found[0].valid_loss < min(drawn)


@pytest.mark.parametrize("limit", [6.0, 8.0, 10.0, 30.0])
def test_the_best_of_a_tiny_space_is_found(tiny_space, model, limit):
    candidates, _ = evolve(tiny_space, model, limit)
    best = min((model.loss(arch) for arch in tiny_space.enumerate() if model.cost(arch) <= limit), default=None)
    assert candidates[0].valid_loss == best
    assert len(model.asked) == len(set(model.asked))


def test_a_space_with_fewer_architectures_than_wanted_ends_the_search(tiny_space, model, capsys):
    settings = replace(SMALL, population_size=6, num_parents=2, num_mutations=2, num_crossovers=2, num_generations=200)
    only_some = replace(tiny_space, decoder_embed_dim=(64,))
    evolution = Evolution(only_some, model.fitness, 7.0, settings, History())
    candidates = evolution.run(model.cost)
    assert {c.architecture for c in candidates} == {a for a in only_some.enumerate() if model.cost(a) <= 7.0}
    assert evolution.generation < 200
    assert "no new architecture" in capsys.readouterr().err


def test_a_space_too_large_to_enumerate_with_few_architectures_in_the_limit_ends_too(space, model):
    limit = cheapest(space, taxes_everything)[1] + 2.0
    evolution = Evolution(space, model.fitness, limit, replace(SMALL, num_generations=500), History(), quiet=True)
    assert 1 <= len(evolution.run(taxes_everything)) <= 20
    assert evolution.generation < 20


def test_a_limit_that_uniform_draws_never_meet_is_still_searched(model):
    space = SearchSpace.preset("hat-wmt")
    limit = 1.02 * cheapest(space, taxes_everything)[1]
    rng = random.Random(0)
    assert not any(taxes_everything(space.sample(rng)) <= limit for _ in range(2000))
    candidates = Evolution(space, model.fitness, limit, SMALL, History(), quiet=True).run(taxes_everything)
    assert len(candidates) > 20


def test_an_unreachable_limit_ends_at_once_and_names_the_smallest_latency(space, model):
    smallest_ms = min(model.cost(space.smallest()), cheapest(space, model.cost)[1])
    with pytest.raises(NotPossibleError, match=f"limit 1 ms.*smallest reachable latency is about {smallest_ms:.4g} ms"):
        evolve(space, model, 1.0)
    assert model.asked == []


def test_the_cheapest_architecture_is_found_even_if_it_is_not_the_smallest(space, tiny_space):
    def contrary(arch):
        return 50 - sum(arch.decoder_ffn_dim) / 100 - arch.decoder_num_layers

    for searched in (space, tiny_space):
        arch, latency = cheapest(searched, contrary)
        assert latency == contrary(arch) == contrary(searched.largest())
    assert check_reachable(space, contrary, 40.0) in [cheapest(space, contrary)[0]]


def test_a_corrected_cost_continues_without_evaluating_anything_again(space, model):
    evolution = Evolution(space, model.fitness, LIMIT, SMALL, History(), quiet=True)
    evolution.run(model.cost)
    before = len(model.asked)
    corrected = evolution.run(lambda arch: 1.1 * model.cost(arch), 2)
    assert before < len(model.asked) == len(set(model.asked)) <= before + 2 * 15 + 1
    assert all(1.1 * model.cost(candidate.architecture) <= LIMIT for candidate in corrected)
    assert all(c.predicted_ms == pytest.approx(1.1 * model.cost(c.architecture)) for c in corrected)
    assert evolution.generation == 8


def test_a_plateau_is_told_and_patience_ends_the_search(tiny_space, space, model, capsys):
    settings = replace(SMALL, num_generations=60, patience=8)
    evolution = Evolution(space, lambda arch: 1.0, LIMIT, settings, History())
    evolution.run(model.cost)
    assert evolution.generation == 9
    assert "has not changed for 5 generations" in capsys.readouterr().err


def test_a_loss_that_is_no_number_never_wins(space, model):
    candidates, _ = evolve(space, model)
    best = candidates[0].architecture

    class Broken(type(model)):
        def fitness(self, arch):
            return math.nan if arch == best else model.loss(arch)

    again, _ = evolve(space, Broken())
    assert again[0].architecture != best and again[-1].valid_loss == math.inf
    with pytest.raises(NotPossibleError, match="not a number"):
        Evolution(space, lambda arch: math.nan, LIMIT, SMALL, History(), quiet=True).run(model.cost)


@pytest.mark.parametrize(
    "wrong",
    [
        {"population_size": 21},
        {"num_parents": 1, "population_size": 16},
        {"mutation_prob": 0.0},
        {"num_generations": 0},
        {"num_mutations": -1, "population_size": 11},
        {"patience": 0},
    ],
)
def test_a_bad_setting_is_named_with_its_value(wrong):
    (name, value), *_ = wrong.items()
    with pytest.raises(RecipeError, match=rf"search\.{name}: {value} must be"):
        replace(SMALL, **wrong)


def test_the_defaults_are_those_of_the_paper():
    default = EvolutionSettings()
    assert (default.population_size, default.num_parents, default.num_generations) == (125, 25, 30)
    assert (default.num_mutations, default.mutation_prob, default.num_crossovers) == (50, 0.3, 50)
    assert default.num_evaluations == 3025
