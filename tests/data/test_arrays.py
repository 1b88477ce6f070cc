"""Memory-mapped token arrays: what is written comes back, and damage is named."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.data.arrays import ArrayWriter, TokenArrays, median_of_counts, write_arrays
from fitformer.errors import DataError, NotPossibleError

SENTENCES = st.lists(st.lists(st.integers(0, 65_535), max_size=12), max_size=30)


@given(SENTENCES)
def test_the_same_sentences_come_back(sentences: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "train.source"
        assert write_arrays(prefix, sentences) == len(sentences)
        arrays = TokenArrays(prefix)
        assert len(arrays) == len(sentences)
        assert [arrays[i].tolist() for i in range(len(arrays))] == sentences
        assert arrays.lengths.tolist() == [len(sentence) for sentence in sentences]
        assert arrays.num_tokens == sum(map(len, sentences))


@given(SENTENCES.filter(bool), st.data())
def test_padded_rows_equal_the_single_sentences(sentences: list[list[int]], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=8))
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(Path(folder) / "a", sentences)
        padded, lengths = TokenArrays(Path(folder) / "a").padded(np.array(indices), extra=2)
    assert padded.shape == (len(indices), max(len(sentences[i]) for i in indices) + 2)
    for row, length, index in zip(padded, lengths, indices, strict=True):
        assert row[:length].tolist() == sentences[index]
        assert not row[length:].any()


def test_large_vocabularies_take_four_bytes_and_small_ones_two(tmp_path: Path) -> None:
    for name, vocab_size, largest, itemsize in (("small", 65_536, 65_535, 2), ("large", 65_537, 65_536, 4)):
        write_arrays(tmp_path / name, [[0, largest]], vocab_size=vocab_size)
        assert (tmp_path / f"{name}.bin").stat().st_size == 2 * itemsize
        assert TokenArrays(tmp_path / name)[0].tolist() == [0, largest]


def test_writing_in_many_flushes_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [[i, i + 1] * (i % 4) for i in range(100)]
    write_arrays(tmp_path / "once", sentences)
    monkeypatch.setattr("fitformer.data.arrays._FLUSH_TOKENS", 5)
    write_arrays(tmp_path / "often", sentences)
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"once{suffix}").read_bytes() == (tmp_path / f"often{suffix}").read_bytes()


def test_the_tokens_are_mapped_and_not_read(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", [[1, 2], [3]])
    assert isinstance(TokenArrays(tmp_path / "a")[1], np.memmap)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str) -> None:
    write_arrays(tmp_path / "a", [[1, 2], [3]])
    path = tmp_path / f"a{suffix}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"a\{suffix}: truncated"):
        TokenArrays(tmp_path / "a")


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    write_arrays(tmp_path / "a", [[1, 2], [3]])
    (tmp_path / f"a{suffix}").unlink()
    with pytest.raises(DataError, match=rf"a\{suffix}: no such file"):
        TokenArrays(tmp_path / "a")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_text("this is text and not an index of arrays")
    with pytest.raises(DataError, match="not an index"):
        TokenArrays(tmp_path / "a")


def test_an_error_while_writing_leaves_the_old_files_and_no_others(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", [[1]])
    with pytest.raises(RuntimeError, match="stop"), ArrayWriter(tmp_path / "a") as writer:
        writer.add([2, 3])
        raise RuntimeError("stop")
    assert TokenArrays(tmp_path / "a")[0].tolist() == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]


def test_a_full_disk_during_the_last_write_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ArrayWriter) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArrayWriter, "_flush", full)
    with pytest.raises(NotPossibleError, match="no space left"):
        write_arrays(tmp_path / "a", [[1]])
    assert not list(tmp_path.iterdir())


def test_an_index_out_of_range_is_refused_and_negative_ones_count_from_the_end(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", [[1], [2]])
    arrays = TokenArrays(tmp_path / "a")
    assert arrays[-1].tolist() == [2]
    for index in (2, -3):
        with pytest.raises(IndexError):
            arrays[index]


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_median_of_a_histogram_is_the_median_of_its_values(values: list[int]) -> None:
    counts = {value: values.count(value) for value in set(values)}
    assert median_of_counts(counts) == np.median(values)


def test_the_median_of_nothing_is_zero() -> None:
    assert median_of_counts({}) == 0
