"""history.jsonl: exact, and safe against a kill at any byte."""

import json
import math

import pytest

from fitformer.errors import DataError
from fitformer.search import Candidate, History


@pytest.fixture
def candidates(tiny_space, model):
    archs = list(tiny_space.enumerate())[:3]
    return [Candidate(arch, model.loss(arch) / 3, model.cost(arch) / 7, i) for i, arch in enumerate(archs)]


def test_a_history_cut_at_any_byte_keeps_its_whole_lines_and_can_be_completed(tmp_path, candidates):
    path = tmp_path / "history.jsonl"
    history = History(path)
    for candidate in candidates:
        history.append(candidate)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        history = History(path)
        assert history.candidates == candidates[: whole[:cut].count(b"\n")]
        for candidate in candidates[len(history.candidates) :]:
            history.append(candidate)
        assert path.read_bytes() == whole


def test_a_line_holds_the_documented_keys_and_only_plain_json(tmp_path, candidates):
    broken = Candidate(candidates[0].architecture, math.inf, 1.5, 0)
    History(tmp_path / "h").append(broken)
    line = json.loads((tmp_path / "h").read_text(), parse_constant=pytest.fail)
    assert line == {
        "architecture": broken.architecture.to_text(),
        "valid_loss": None,
        "predicted_ms": 1.5,
        "generation": 0,
    }
    assert History(tmp_path / "h").candidates == [broken]


@pytest.mark.parametrize("damage", ['{"architecture": "enc"}', "not json", "[1, 2]", '{"valid_loss": 1}'])
def test_a_damaged_line_is_named(tmp_path, candidates, damage):
    path = tmp_path / "history.jsonl"
    for candidate in candidates:
        History(path).append(candidate)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], damage, *lines[2:]]) + "\n")
    with pytest.raises(DataError, match=r"history\.jsonl:2: not a line"):
        History(path)
