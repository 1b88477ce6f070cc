"""The front holds exactly what nothing else beats."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.search import Candidate, front
from fitformer.search.front import write_front
from fitformer.space import SearchSpace

SPACE = SearchSpace.preset("small")
points = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=25)


def candidates(pairs):
    rng = random.Random(0)
    drawn = list(dict.fromkeys(SPACE.sample(rng) for _ in range(200)))
    return [Candidate(drawn[i], float(loss), float(ms), 0) for i, (loss, ms) in enumerate(pairs)]


@given(points)
def test_the_front_is_what_no_other_candidate_dominates(pairs):
    given_ones = candidates(pairs)
    kept = front(given_ones)
    points_kept = {(c.valid_loss, c.predicted_ms) for c in kept}
    undominated = {(a, b) for a, b in pairs if not any((x, y) != (a, b) and x <= a and y <= b for x, y in pairs)}
    assert points_kept == undominated and len(kept) == len(undominated)
    assert kept == sorted(kept, key=lambda c: c.predicted_ms)


@given(points, st.randoms())
def test_the_front_does_not_depend_on_the_order(pairs, rng):
    given_ones = candidates(pairs)
    mixed = rng.sample(given_ones, len(given_ones))
    assert front(mixed) == front(given_ones)


def test_the_file_holds_the_front(tmp_path):
    given_ones = candidates([(3, 1), (2, 2), (2, 3), (1, 9)])
    kept = write_front(tmp_path / "front.json", given_ones)
    assert [c["predicted_ms"] for c in json.loads((tmp_path / "front.json").read_text())] == [1.0, 2.0, 9.0]
    assert kept == [given_ones[0], given_ones[1], given_ones[3]]
    assert pytest.approx(kept[0].valid_loss) == 3.0
