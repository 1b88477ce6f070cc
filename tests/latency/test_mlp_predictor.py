"""HAT's network in NumPy: whole in its file, strict about what it reads, told apart from the other kind by the file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitformer.errors import InputError
from fitformer.latency import LatencyPredictor, MlpPredictor, load_predictor, try_predictor
from fitformer.latency.features import hat_features
from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM
from fitformer.space import Architecture, SearchSpace

SPACE = SearchSpace.preset("hat-wmt")


def network(*widths: int, seed: int = 0, lat_norm_ms: float = 200.0) -> MlpPredictor:
    rng = np.random.default_rng(seed)
    sizes = zip([10, *widths], [*widths, 1], strict=True)
    layers = tuple(
        (rng.uniform(0.01, 0.2, (outputs, inputs)).astype(np.float32), rng.normal(0, 0.1, outputs).astype(np.float32))
        for inputs, outputs in sizes
    )
    return MlpPredictor(layers, HAT_FEATURE_NORM, lat_norm_ms, {"name": "board"})


def test_a_network_by_hand() -> None:
    first = np.zeros((2, 10), dtype=np.float32)
    first[0, 5], first[1, 5] = 3.0, -3.0  # decoder layers / 6; the second unit is never above 0
    layers = (first, np.float32([0.5, 0.0])), (np.float32([[2.0, 100.0]]), np.float32([1.0]))
    predictor = MlpPredictor(layers, HAT_FEATURE_NORM, 10.0)
    arch = Architecture.from_text("enc 8: 16/4/2 | dec 8: 16/4/2/1@0 16/4/2/1@0")
    assert predictor.predict_ms(arch) == pytest.approx(10 * (2 * (3 * 2 / 6 + 0.5) + 1))
    assert (predictor.num_hidden_layers, predictor.num_parameters) == (1, 25)


def test_a_saved_network_predicts_the_same(tmp_path: Path) -> None:
    predictor, rng = network(40, 30), random.Random(1)
    predictor.save(tmp_path / "predictor.json")
    loaded = load_predictor(tmp_path / "predictor.json")
    assert isinstance(loaded, MlpPredictor) and loaded.device == {"name": "board"} and loaded.conditions is None
    for _ in range(20):
        arch = SPACE.sample(rng)
        assert loaded.predict_ms(arch) == predictor.predict_ms(arch)
        table = hat_features(arch)[None]
        assert predictor.predict_averages(table)[0] == predictor.predict_ms(arch)
        assert loaded.outside_range(arch) == []


def test_the_loader_goes_by_the_kind_in_the_file(tmp_path: Path, make_records: Any) -> None:
    path = tmp_path / "predictor.json"
    fitted = LatencyPredictor.fit(make_records(20))
    fitted.save(path)
    assert load_predictor(path) == fitted
    network(4).save(path)
    with pytest.raises(InputError, match="a predictor of kind 'hat mlp', not 'linear cost model'"):
        LatencyPredictor.load(path)
    fitted.save(path)
    with pytest.raises(InputError, match="a predictor of kind 'linear cost model', not 'hat mlp'"):
        MlpPredictor.load(path)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"kind": "hat mpl"}', "", "[" * 100_000])
def test_what_is_no_predictor_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(InputError, match=r"p\.json") as caught:
        load_predictor(tmp_path / "p.json")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def damage(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    inner: Any = content
    *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in keys:
        inner = inner[key]
    inner[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format_version", 2, "format 2"),
        ("features", ["a"], "other features"),
        ("activation", "gelu", "other features or activation"),
        ("lat_norm_ms", -1, "lat_norm"),
        ("lat_norm_ms", "x", "not a whole"),
        ("feature_norm", [1.0] * 9, "10 numbers"),
        ("feature_norm.3", 0, "10 numbers"),
        ("layers", [], "without layers"),
        ("layers.1.weight.shape", [1, 5], "do not make a tensor"),
        ("layers.1.weight.shape", [-2, -2], "do not make a tensor"),
        ("layers.1.weight.shape", [1 << 40, 1 << 40], "do not make a tensor"),
        ("layers.1.weight.float32", "@@@", "not base64"),
        ("layers.0.bias", None, "not a whole"),
        ("layers.1", {"weight": {"shape": [1, 3], "float32": "AAAAAAAAAAAAAAAA"}}, "not a whole"),
        ("conditions", {"threads": 1}, "not a whole"),
        ("device", None, "not a whole"),
    ],
)
def test_a_damaged_network_is_refused_in_one_line(tmp_path: Path, path: str, value: Any, message: str) -> None:
    file = tmp_path / "p.json"
    network(4).save(file)
    file.write_text(json.dumps(damage(json.loads(file.read_text()), path, value)))
    with pytest.raises(InputError, match=message) as caught:
        load_predictor(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_weights_that_are_no_numbers_or_do_not_fit_are_refused() -> None:
    good = network(4).layers
    nan = np.full((1, 4), np.nan, dtype=np.float32)
    for layers, message in (
        ((good[0], (nan, good[1][1])), "not finite"),
        ((good[0],), "4 outputs"),
        ((good[1],), "do not fit 10 inputs"),
    ):
        with pytest.raises(InputError, match=message):
            MlpPredictor(layers, HAT_FEATURE_NORM, 200.0)


# -- before a search trusts it -----------------------------------------------------------------------------------------


def test_a_predictor_is_tried_on_both_ends_of_the_space() -> None:
    predictor = network(8)
    tried = try_predictor(predictor, SPACE)
    assert tried["largest_ms"] == predictor.predict_ms(SPACE.largest()) > tried["smallest_ms"] > 0
    assert (tried["outside"], tried["outside_features"]) == (0, [])


def test_latencies_of_nothing_or_all_the_same_are_refused() -> None:
    zero = tuple((0 * weight, bias) for weight, bias in network(8).layers)
    with pytest.raises(InputError, match="for every architecture"):
        try_predictor(MlpPredictor((*zero[:1], (zero[1][0], np.float32([1.0]))), HAT_FEATURE_NORM, 1.0), SPACE)
    with pytest.raises(InputError, match="it predicts -"):
        try_predictor(MlpPredictor((*zero[:1], (zero[1][0], np.float32([-1.0]))), HAT_FEATURE_NORM, 1.0), SPACE)


def test_a_space_outside_what_was_measured_is_noticed(make_records: Any) -> None:
    tried = try_predictor(LatencyPredictor.fit(make_records(30)), SPACE)
    assert tried["outside"] > 90 and "decoder.width" in tried["outside_features"]
