"""The supernet stage trains by the rule that its recipe names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fitformer.models import SuperTransformer
from fitformer.pipeline import Run
from fitformer.pipeline.learning import supernet
from fitformer.recipe import parse_recipe
from fitformer.rundir import write_json
from fitformer.training import importance, sandwich

SPACE = {
    "encoder_embed_dim": [16, 8], "decoder_embed_dim": [16, 8], "encoder_num_layers": [2, 1],
    "decoder_num_layers": [2, 1], "encoder_ffn_dim": [24, 16], "encoder_qkv_dim": [16, 8], "encoder_num_heads": [2, 1],
    "decoder_ffn_dim": [24, 16], "decoder_qkv_dim": [16, 8], "decoder_self_heads": [2, 1], "decoder_cross_heads": [2],
}  # fmt: skip
SETTINGS = {"updates": 4, "batch_tokens": 128, "warmup": 1, "validate_every": 4, "threads": 1}


def make_run(path: Path, prepared: Path, **rule: Any) -> Run:
    recipe = {
        "name": "rules",
        "data": {"source_language": "en", "target_language": "de", "builtin": "numbers"},
        "space": SPACE,
        "targets": [{"device": "cpu", "latency": "50%"}],
        "supernet": {**SETTINGS, **rule},
    }
    shutil.copytree(prepared, path / "prepare")
    write_json(path / "prepare" / "done.json", {"inputs": {}, "facts": {}, "seconds": 0.0})
    return Run(parse_recipe(recipe), path)


@pytest.mark.parametrize("sampling", ["uniform", "sandwich"])
@pytest.mark.parametrize("importance_sorting", [False, True])
def test_the_recipe_chooses_the_rule(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: str, importance_sorting: bool
) -> None:
    learned: list[int] = []
    sorts: list[int] = []
    sort, features = importance.sort_by_importance, SuperTransformer.features

    def count_sort(*arguments: Any) -> None:
        sorts.append(len(learned))
        sort(*arguments)

    def count_features(self: SuperTransformer, *arguments: Any) -> Any:
        if self.training:
            learned.append(1)
        return features(self, *arguments)

    monkeypatch.setattr(sandwich, "sort_by_importance", count_sort)
    monkeypatch.setattr(SuperTransformer, "features", count_features)
    run = make_run(
        tmp_path / "run", prepared, sampling=sampling, importance_sorting=importance_sorting, largest_first=1
    )
    facts = supernet(run)
    assert facts["updates"] == 4
    assert len(learned) == 1 + 3 * (3 if sampling == "sandwich" else 1)
    assert sorts == ([1] if importance_sorting else [])


def test_a_finished_stage_refuses_another_rule(prepared: Path, tmp_path: Path) -> None:
    supernet(make_run(tmp_path / "run", prepared))
    again = make_run(tmp_path / "other", prepared, sampling="sandwich")
    with pytest.raises(
        ValueError, match=r"supernet\.sampling: is 'sandwich', but supernet was finished with 'uniform'"
    ):
        supernet(Run(again.recipe, tmp_path / "run"))
