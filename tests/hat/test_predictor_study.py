"""The study: HAT's split, HAT's training, figures that are the means they claim to be, and nothing trained twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fitformer.errors import InputError, NotPossibleError
from fitformer.hat import mlp, study
from fitformer.hat.latency_data import HatLatencyData, read_latency_data
from fitformer.hat.mlp import MlpSettings, published_lat_norm, train_mlp
from fitformer.hat.slow_blocks import find_slow_blocks, slow_rows
from fitformer.hat.study import StudySettings, default_figures, mean, split_rows
from fitformer.latency.features import features_from_hat, hat_features
from fitformer.latency.mlp_predictor import HAT_FEATURE_NORM
from fitformer.space import SearchSpace

# RMSE in milliseconds of HAT's network on the clean rows, means over ten splits: benchmarks/predictor_study.py.
MLP_RMSE_MS = {
    "iwslt14deen_gpu_titanxp": 3.05,
    "wmt14ende_cpu_raspberrypi": 108.3,
    "wmt14ende_cpu_xeon": 17.24,
    "wmt14ende_gpu_titanxp": 5.65,
    "wmt14enfr_cpu_raspberrypi": 86.45,
    "wmt14enfr_gpu_titanxp": 4.24,
}
MOST_MAPE = {"wmt14enfr_cpu_raspberrypi": 0.6, "wmt14ende_cpu_raspberrypi": 1.0}
TINY = MlpSettings(hidden_layers=1, width=16, steps=60, batch_size=32, learning_rate=1e-2)


def make_data(rows: int = 120, *, noise: float = 0.01) -> HatLatencyData:
    """A linear device measured on drawn architectures of HAT's latency space."""
    space, rng = SearchSpace.preset("hat-latency"), random.Random(2)
    averages = np.array([hat_features(space.sample(rng)) for _ in range(rows)])
    totals = features_from_hat(averages)
    times = 5.0 + totals @ (1.0 / totals.mean(axis=0))
    times *= np.exp(np.random.default_rng(0).normal(0, noise, rows))
    return HatLatencyData(averages, 0.1 * times, 0.9 * times, 0 * times, 0 * times)


def nothing_slow(data: HatLatencyData) -> Any:
    return np.zeros(len(data), dtype=np.bool_)


def test_the_split_is_a_partition_by_hats_rule() -> None:
    split = split_rows(2000, 3)
    assert [len(part) for part in (split.train, split.valid, split.test)] == [1600, 200, 200]
    order = list(range(2000))
    random.Random(3).shuffle(order)
    assert [*split.train, *split.valid, *split.test] == order
    assert [len(part) for part in vars(split_rows(19, 0)).values()] == [15, 1, 3]


def test_the_published_network_has_the_published_size() -> None:
    assert MlpSettings() == MlpSettings(3, 400, 5000, 128, 1e-5)
    data = make_data(60)
    for layers, parameters in ((3, 325_601), (4, 486_001)):
        network = train_mlp(
            data.averages, data.latency_ms, lat_norm_ms=20, settings=MlpSettings(hidden_layers=layers, steps=1)
        )
        assert network.num_parameters == parameters
        assert network.num_hidden_layers == layers


def test_training_is_the_textbooks_and_numpy_predicts_what_pytorch_would() -> None:
    """One step of Adam moves each weight by the learning rate; the loss is that of the target over lat_norm."""
    data = make_data(32)
    one = MlpSettings(hidden_layers=1, width=8, steps=1, batch_size=32, learning_rate=1e-3)
    network = train_mlp(data.averages, data.latency_ms, lat_norm_ms=20, settings=one, seed=5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = mlp._network(one)
    inputs = torch.from_numpy(data.averages / np.array(HAT_FEATURE_NORM)).float()
    loss = torch.mean((model(inputs)[:, 0] - torch.from_numpy(data.latency_ms / 20).float()) ** 2)
    loss.backward()
    with torch.no_grad():
        for (weight, _), linear in zip(network.layers, (model[0], model[2]), strict=True):
            step = torch.from_numpy(weight) - linear.weight
            expected = -1e-3 * linear.weight.grad.sign()
            assert torch.allclose(step, expected, atol=2e-5)
            linear.weight.copy_(torch.from_numpy(weight))
        for (_, bias), linear in zip(network.layers, (model[0], model[2]), strict=True):
            linear.bias.copy_(torch.from_numpy(bias))
        np.testing.assert_allclose(
            network.predict_averages(data.averages), 20 * model(inputs)[:, 0].double().numpy(), rtol=1e-5
        )


def test_training_is_a_function_of_its_seed_and_leaves_others_chance_alone() -> None:
    data = make_data(60)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, same, other = (
        train_mlp(data.averages, data.latency_ms, lat_norm_ms=20, settings=TINY, seed=seed).predict_averages(
            data.averages
        )
        for seed in (0, 0, 1)
    )
    assert (first == same).all() and (first != other).any()
    assert torch.equal(torch.get_rng_state(), state)
    assert np.mean(np.abs(first / data.latency_ms - 1)) < 0.2  # from 1 before any training


def test_figures_are_means_over_the_splits() -> None:
    data = make_data()
    settings = StudySettings(splits=2, mlp=TINY, ablation_splits=1, lat_norm_ms=20)
    result = study.study(data, nothing_slow(data), settings, quiet=True)
    expected = mean([default_figures(data, seed) for seed in range(2)])
    assert result["rows"]["all"]["default"] == result["rows"]["clean"]["default"] == expected
    assert expected["mape"] < result["rows"]["all"]["mlp"]["mape"] < 20
    assert set(result["ablation"]) == {*study.ABLATION, "default"}
    few = result["rows"]["all"]["default_50"]
    assert few["mape"] == pytest.approx(np.mean([default_figures(data, s, most=50)["mape"] for s in range(2)]))


@pytest.mark.parametrize("name", MLP_RMSE_MS)
def test_the_default_predictor_is_no_worse_than_hats_network_on_the_released_data(name: str, shared_data: Path) -> None:
    data = read_latency_data(shared_data / "hat" / "latency" / f"{name}_all.csv")
    clean = data.rows(~slow_rows(find_slow_blocks(data.totals, data.encoder_ms, data.decoder_ms), len(data)))
    figures = mean([default_figures(clean, seed) for seed in range(10)])
    assert (figures["rmse_ms"] or 0) < MLP_RMSE_MS[name]
    assert (figures["mape"] or 0) < MOST_MAPE.get(name, 5.0)


def test_slow_rows_are_left_out_of_the_clean_figures() -> None:
    data = make_data()
    slow = nothing_slow(data)
    slow[:30] = True
    data.decoder_ms[:30] *= 1.5
    result = study.study(data, slow, StudySettings(splits=2, mlp=None), quiet=True)
    assert (result["rows"]["all"]["rows"], result["rows"]["clean"]["rows"]) == (120, 90)
    assert result["rows"]["clean"]["default"]["mape"] < result["rows"]["all"]["default"]["mape"]
    assert "mlp" not in result["rows"]["all"] and result["mlp_settings"] is None


def test_a_killed_study_goes_on_and_trains_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    settings = StudySettings(splits=3, mlp=TINY, lat_norm_ms=20)
    whole = study.study(data, nothing_slow(data), settings, quiet=True)
    trained = []
    train = study.train_mlp

    def killed(*args: Any, seed: int, **rest: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(seed)
        return train(*args, seed=seed, **rest)

    monkeypatch.setattr(study, "train_mlp", killed)
    with pytest.raises(KeyboardInterrupt):
        study.study(data, nothing_slow(data), settings, folder=tmp_path, quiet=True)
    monkeypatch.setattr(
        study, "train_mlp", lambda *args, **rest: (trained.append(rest["seed"]), train(*args, **rest))[1]
    )
    assert study.study(data, nothing_slow(data), settings, folder=tmp_path, quiet=True) == whole
    assert trained == [0, 1, 2]
    other = make_data(noise=0.02)  # another file's trainings are not taken for this one's
    study.study(other, nothing_slow(other), settings, folder=tmp_path, quiet=True)
    assert trained == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("content", ["[]", '{"a": {"mape": 1}}', "{"])
def test_a_damaged_file_of_trainings_is_refused(tmp_path: Path, content: str) -> None:
    data = make_data()
    (tmp_path / study.TRAININGS).write_text(content)
    with pytest.raises(InputError, match=r"trainings\.json"):
        study.study(data, nothing_slow(data), StudySettings(mlp=TINY), folder=tmp_path, quiet=True)


def test_too_few_rows_are_refused() -> None:
    data = make_data(49)
    with pytest.raises(NotPossibleError, match="49 rows"):
        study.study(data, nothing_slow(data), StudySettings(mlp=None))


def test_lat_norm_is_that_of_the_device_in_the_name() -> None:
    assert published_lat_norm("wmt14ende_gpu_titanxp_all.csv") == 200
    assert published_lat_norm("Intel Xeon") == 300 and published_lat_norm("Raspberry Pi 4") == 5000
    assert published_lat_norm("a phone") is None
    with pytest.raises(InputError, match="steps"):
        MlpSettings(steps=0)
