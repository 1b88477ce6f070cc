"""records.csv: what is written is read, whatever a kill left at its end."""

from dataclasses import replace

import pytest

from fitformer.errors import DataError
from fitformer.latency import LatencyDataset
from fitformer.latency.records import read_records


def test_what_is_appended_is_read_exactly(tmp_path, make_records, conditions):
    records = make_records(7, noise=0.1)
    records[3] = replace(records[3], drifted=True, correction=1 / 3)
    dataset = LatencyDataset(tmp_path / "records.csv", conditions)
    dataset.append(records[:2])
    dataset.append(records[2:])
    assert dataset.records == records
    assert LatencyDataset(tmp_path / "records.csv", conditions).records == records
    assert records[0].arch.to_text() == records[0].architecture


def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_can_be_completed(tmp_path, make_records, conditions):
    path, records = tmp_path / "records.csv", make_records(2)
    LatencyDataset(path, conditions).append(records)
    whole = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        dataset = LatencyDataset(path, conditions)
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        assert dataset.records == records[:kept]
        dataset.append(records[kept:])
        assert path.read_bytes() == whole


def test_records_of_other_conditions_are_kept_in_the_file_but_ignored(tmp_path, make_records, conditions):
    path, records = tmp_path / "records.csv", make_records(4)
    newer = replace(conditions, exporter_version=2)
    LatencyDataset(path, conditions).append(records)
    LatencyDataset(path, replace(conditions, threads=4)).append([replace(records[0], threads=4)])
    dataset = LatencyDataset(path, newer)
    assert dataset.records == [] and dataset.ignored == 5
    dataset.append([replace(records[0], exporter_version=2)])
    dataset.rewrite([replace(records[0], exporter_version=2, drifted=True)])
    assert [record.drifted for record in LatencyDataset(path, newer).records] == [True]
    assert LatencyDataset(path, conditions).records == records
    assert len(read_records(path)) == 6


def test_the_latest_record_of_an_architecture_counts(tmp_path, make_records, conditions):
    path, records = tmp_path / "records.csv", make_records(3)
    again = replace(records[0], latency_ms=99.0, index=3)
    LatencyDataset(path, conditions).append([*records, again])
    assert LatencyDataset(path, conditions).records == [records[1], records[2], again]


def test_correcting_replaces_the_earlier_correction(make_records):
    (record,) = make_records(1)
    twice = record.corrected(0.5, drifted=True).corrected(0.8, drifted=False)
    assert twice.latency_ms == pytest.approx(0.8 * record.latency_ms)
    assert twice.encoder_ms == pytest.approx(0.8 * record.encoder_ms)
    assert (twice.correction, twice.drifted) == (0.8, False)


def test_a_foreign_file_is_refused_and_left_alone(tmp_path, conditions):
    path = tmp_path / "records.csv"
    for content in ("name,value\na,1\n", "no newline", "\xff\xfe"):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(DataError, match=r"records\.csv"):
            LatencyDataset(path, conditions)
        assert path.read_bytes() == content.encode("latin-1")


@pytest.mark.parametrize("damage", [("1.0", "one"), ("enc ", "end "), (",0,1,", ",2,1,"), (",1.0,1.0,1.0,", ",1.0,")])
def test_a_damaged_line_is_named(tmp_path, make_records, conditions, damage):
    path = tmp_path / "records.csv"
    LatencyDataset(path, conditions).append(make_records(3))
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace(*damage)
    path.write_text("".join(lines))
    with pytest.raises(DataError, match=r"records\.csv:3: not a latency record"):
        LatencyDataset(path, conditions)
