"""The choice of the number format."""

from __future__ import annotations

import pytest
import torch

from fitformer.errors import InputError
from fitformer.training import precision


def test_the_named_format_is_taken() -> None:
    assert precision.compute_dtype("fp32", "cpu") == torch.float32
    assert precision.compute_dtype("bf16", "cpu") == torch.bfloat16


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, native: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "_cpu_multiplies_bf16", lambda: native)
    assert precision.compute_dtype("auto", "cpu") == dtype


def test_another_word_is_refused() -> None:
    with pytest.raises(InputError, match="precision: 'fp16' must be auto, fp32 or bf16"):
        precision.compute_dtype("fp16", "cpu")
