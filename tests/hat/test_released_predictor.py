"""A predictor that HAT's code saved becomes ours: same numbers, no code run, one line for everything else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fitformer.errors import InputError
from fitformer.hat.released_predictor import read_released_predictor

FEATURE_NORM = (640.0, 6.0, 2048.0, 6.0, 640.0, 6.0, 2048.0, 6.0, 6.0, 2.0)


class Original(nn.Module):
    """The layout of HAT's ``Net``: a first layer, a list of hidden ones, and the output."""

    def __init__(self, inner: int, width: int = 20) -> None:
        super().__init__()
        self.first_layer = nn.Linear(10, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(inner))
        self.predict = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first_layer(x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        result: Tensor = self.predict(x)
        return result


@pytest.fixture
def original() -> Original:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Original(3)


def saved(path: Path, content: Any, *, legacy: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_it_predicts_what_the_original_predicts(tmp_path: Path, original: Original, legacy: bool, half: bool) -> None:
    state = {key: value.half() if half else value for key, value in original.state_dict().items()}
    read = read_released_predictor(saved(tmp_path / "a.pt", state, legacy=legacy), lat_norm_ms=300)
    original.load_state_dict({key: value.float() for key, value in state.items()})
    averages = np.random.default_rng(0).uniform(1, 8, (50, 10)) * np.array(FEATURE_NORM) / 4
    inputs = torch.from_numpy(averages / np.array(FEATURE_NORM)).float()
    with torch.no_grad():
        expected = 300 * original(inputs)[:, 0].double().numpy()
    np.testing.assert_allclose(read.predict_averages(averages), expected, rtol=1e-5, atol=1e-3)
    assert read.num_hidden_layers == 4


@pytest.mark.parametrize("inner", [0, 1, 5])
def test_any_depth_is_read(tmp_path: Path, inner: int) -> None:
    read = read_released_predictor(saved(tmp_path / "a.pt", Original(inner).state_dict()), lat_norm_ms=200)
    assert read.num_hidden_layers == inner + 1


def without(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != key}


def test_what_is_missing_unknown_or_misshapen_is_named(tmp_path: Path, original: Original) -> None:
    state = dict(original.state_dict())
    for content, message in (
        ({}, "holds no layers"),
        ([1, 2], "holds no layers"),
        (without(state, "layers.1.weight"), "layers are missing"),
        (without(state, "predict.bias"), "missing or unknown: predict.bias"),
        ({**state, "more": torch.ones(1)}, "missing or unknown: more"),
        ({**state, "predict.bias": 3}, "predict.bias is no tensor"),
        ({**state, "predict.bias": torch.tensor([1])}, "predict.bias is no tensor of real numbers"),
        ({**state, "first_layer.weight": torch.ones(20, 12)}, "a network of 12 features"),
        ({**state, "first_layer.weight": torch.ones(20)}, "a network of 0 features"),
        ({**state, "layers.1.weight": torch.ones(20, 21)}, "layer 3: weight"),
        ({**state, "predict.weight": torch.ones(2, 20), "predict.bias": torch.ones(2)}, "2 outputs"),
        ({**state, "predict.bias": torch.tensor([torch.nan])}, "not finite"),
        ({**state, "layers.0.weight": torch.ones(1).expand(20, 20)}, "claims 400 numbers"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read_released_predictor(saved(tmp_path / "a.pt", content), lat_norm_ms=200)
        assert "a.pt" in str(caught.value) and "\n" not in str(caught.value)


class Marker:
    """Pickled so that loading it would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("legacy", [True, False])
def test_code_in_the_file_is_not_run(tmp_path: Path, original: Original, legacy: bool) -> None:
    mark = tmp_path / "mark"
    path = saved(tmp_path / "a.pt", {**original.state_dict(), "x": Marker(mark)}, legacy=legacy)
    with pytest.raises(InputError, match="refused") as caught:
        read_released_predictor(path, lat_norm_ms=200)
    assert not mark.exists() and "\n" not in str(caught.value)


def test_truncated_missing_and_other_files_are_refused_in_one_line(tmp_path: Path, original: Original) -> None:
    path = saved(tmp_path / "a.pt", original.state_dict())
    content = path.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match=r"a\.pt") as caught:
            read_released_predictor(path, lat_norm_ms=200)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        read_released_predictor(tmp_path / "none.pt", lat_norm_ms=200)
    with pytest.raises(InputError):
        read_released_predictor(tmp_path, lat_norm_ms=200)


def test_normalisers_must_be_numbers_above_zero(tmp_path: Path, original: Original) -> None:
    path = saved(tmp_path / "a.pt", original.state_dict())
    with pytest.raises(InputError, match="lat_norm"):
        read_released_predictor(path, lat_norm_ms=0)
    with pytest.raises(InputError, match="feature_norm"):
        read_released_predictor(path, lat_norm_ms=200, feature_norm=(1.0,) * 9)
