"""HAT's latency files are read strictly: a number in its range, or the line is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fitformer.errors import DataError
from fitformer.hat.latency_data import COLUMNS, read_latency_data

HEADER = ",".join(COLUMNS)
ROW = ["640", "6", "1962.667", "6.0", "512", "4", "1920.0", "2.5", "5.5", "1.5", "5.496", "124.550", "0.0519", "0.4440"]


def write(path: Path, *rows: list[str], header: str = HEADER, end: str = "\n") -> Path:
    path.write_bytes(end.join([header, *(",".join(row) for row in rows), ""]).encode())
    return path


def changed(column: str, value: str) -> list[str]:
    return [value if name == column else cell for name, cell in zip(COLUMNS, ROW, strict=True)]


def test_a_file_is_read_in_its_order(tmp_path: Path) -> None:
    data = read_latency_data(write(tmp_path / "a.csv", ROW, changed("decoder_layer_num", "2")))
    assert len(data) == 2 and data.depths.tolist() == [4, 2]
    assert data.averages[0].tolist() == [float(cell) for cell in ROW[:10]]
    assert data.latency_ms.tolist() == pytest.approx([130.046, 130.046])
    assert data.rows(np.array([False, True])).depths.tolist() == [2]
    assert data.totals.shape[0] == 2


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "a.csv", ROW, header="\ufeff" + HEADER, end=end)
    assert len(read_latency_data(path)) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("decoder_layer_num", "2.5"),
        ("encoder_embed_dim", "0"),
        ("encoder_ffn_embed_dim_avg", "-1"),
        ("latency_mean_encoder", "0"),
        ("latency_mean_decoder", "nan"),
        ("latency_mean_decoder", "inf"),
        ("latency_mean_decoder", ""),
        ("latency_std_decoder", "-0.1"),
        ("decoder_ende_attention_heads_avg", "__import__('os').abort()"),
        ("decoder_embed_dim", "1e300"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path: Path, column: str, value: str) -> None:
    path = write(tmp_path / "a.csv", ROW, changed(column, value))
    with pytest.raises(DataError, match=rf"a\.csv:3: {column} is") as caught:
        read_latency_data(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv:3: 13 cells instead of 14"):
        read_latency_data(write(tmp_path / "a.csv", ROW, ROW[:-1]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (HEADER.encode() + b"\n", "no measurements"),
        (b"a,b\n1,2\n", "a.csv:1: other columns"),
        (b"\xff\xfe\x00", "not a text file"),
        ((HEADER + '\n"' + "x" * 200_000).encode(), "a.csv:2: not a line of numbers"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_latency_data(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_latency_data(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_latency_data(tmp_path)
