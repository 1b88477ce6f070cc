"""The small parts: markup that escapes, reading that tolerates, numbers as people write them, charts as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitformer.report import figures
from fitformer.report.charts import MOST_POINTS, Chart, curve, hover_lines, layout, points
from fitformer.report.inputs import read_run
from fitformer.report.markup import Markup, escape, facts, join, table, tag
from fitformer.report.reading import Reader, architecture, items, mapping, real, text
from fitformer.report.wording import DASH, THIN, count, date, milliseconds, number, percent, sentence, size

MakeRun = Callable[..., Path]
# What HTML itself changes: carriage returns, NUL and other characters that no text may hold.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")))


class Words(HTMLParser):
    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words, self.tags = "", []  # type: str, list[tuple[str, dict[str, str | None]]]
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


# -- markup -----------------------------------------------------------------------------------------------------------


@given(TEXT, TEXT)
def test_text_and_attributes_come_back_as_they_were(content: str, attribute: str) -> None:
    parsed = Words(tag("p", content, title=attribute))
    assert parsed.words == content
    assert parsed.tags == [("p", {"title": attribute})]


def test_markup_is_not_escaped_twice_and_lists_unfold() -> None:
    bold = tag("b", "a<b")
    assert tag("p", ["x", None, [bold, 1]], "&") == "<p>x<b>a&lt;b</b>1&amp;</p>"
    assert escape(bold) is bold and isinstance(join("a"), Markup)


def test_attributes_that_are_none_or_false_are_left_out() -> None:
    assert tag("a", class_="x", hidden=True, title=None, lang=False) == '<a class="x" hidden></a>'
    assert tag("path", stroke_width=2) == '<path stroke-width="2"/>'


def test_facts_leave_out_what_is_missing_and_tables_align_numbers() -> None:
    assert "gone" not in facts([("kept", 0), ("gone", None), ("gone", "")]) and "kept" in facts([("kept", 0)])
    assert facts([("gone", None)]) == ""
    assert '<td class="number">3</td>' in table(("a", "b"), [("x", 3)], numbers=(1,))


# -- reading ----------------------------------------------------------------------------------------------------------


@given(st.recursive(st.none() | st.booleans() | st.floats() | TEXT, lambda s: st.lists(s) | st.dictionaries(TEXT, s)))
def test_any_value_can_be_asked_for_anything(value: Any) -> None:
    number_ = real(value, "a", 0)
    assert number_ is None or math.isfinite(number_)
    assert text(value, "a") is None or isinstance(text(value, "a"), str)
    assert isinstance(mapping(value), dict) and isinstance(items(value), list)
    assert architecture(value) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("1.5", 1.5), (2, 2.0), (True, None), ("x", None), (float("inf"), None)]
)
def test_numbers_are_finite_or_missing(value: Any, expected: float | None) -> None:
    assert real({"a": [value]}, "a", 0) == expected


def test_torn_last_line_is_left_out_and_a_bad_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"update": 1}\n[2]\n{"update": 3}\n{"upd', encoding="utf-8")
    reader = Reader(tmp_path)
    assert reader.json_lines("a.jsonl") == ({"update": 1}, {"update": 3})
    assert reader.problems == []
    (tmp_path / "a.jsonl").write_text('{"update": 1}\nno\n{"update": 3}\n', encoding="utf-8")
    assert reader.json_lines("a.jsonl") == ({"update": 1},)
    assert reader.problems == ["a.jsonl: line 2 is not JSON; the lines from there on are left out"]


def test_torn_last_row_of_a_table_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("a,b\n1,2\n3,", encoding="utf-8")
    assert Reader(tmp_path).csv_rows("r.csv") == ({"a": "1", "b": "2"},)


def test_hidden_folders_are_nobodys_target(make_run: MakeRun) -> None:
    run = make_run()
    (run / "export" / ".cpu@50%.abc.tmp").mkdir()
    (run / "export" / ".cpu@50%.abc.tmp" / "fitformer.json").write_text("{}", encoding="utf-8")
    (run / "train" / "tensorboard").mkdir()
    assert [target.name for target in read_run(run).targets] == ["cpu@50%"]


def test_latest_record_of_an_architecture_counts(make_run: MakeRun) -> None:
    run = make_run(until="measure")
    path = run / "measure" / "cpu" / "records.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[1]]) + "\n", encoding="utf-8")
    assert len(read_run(run).devices[0].records) == len(lines) - 1


# -- wording ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12.345, "12.3"),
        (9.996, "10.0"),
        (0.5, "0.500"),
        (0.004561, "0.00456"),
        (1234.5, "1,234"),
        (0, "0"),
        (-3.14159, "-3.14"),
        (2.5e-7, "2.50e-07"),
        (None, DASH),
    ],
)
def test_numbers_have_three_digits_that_count(value: float | None, expected: str) -> None:
    assert number(value) == expected


@given(st.floats(min_value=1e-4, max_value=1e8))
def test_a_written_number_is_the_number(value: float) -> None:
    assert float(number(value, 4).replace(",", "")) == pytest.approx(value, rel=5.1e-4)


def test_units_dates_and_sentences_read_naturally() -> None:
    assert milliseconds(3.4) == f"3.40{THIN}ms" and size(12_345_678) == f"12.3{THIN}MB" and size(12) == f"12{THIN}bytes"
    assert percent(91.2) == f"91{THIN}%" and percent(4.56) == f"4.6{THIN}%" and count(28994) == "28,994"
    assert date("2026-11-30T23:28:57+00:00") == "2026-11-30 23:28 UTC" and date("yesterday") == "yesterday"
    assert sentence("because") == "because." and sentence("done.") == "done." and sentence(None) is None
    assert {milliseconds(None), percent(None), size(None), count(None), date(None)} == {DASH}


# -- charts -----------------------------------------------------------------------------------------------------------


@given(TEXT)
def test_chart_data_cannot_leave_its_script_and_reads_back(content: str) -> None:
    label = f"{content}</script><!--"
    trace = points(label, [1.0], [2.0], colour="--ink", hover=[hover_lines(label)])
    html = Chart("x", "y", [trace], layout("a", "b")).html()
    inside = html.split('type="application/json">')[1]
    assert inside.index("</script>") == inside.index("<")
    data = json.loads(inside[: inside.index("</script>")])["data"][0]
    assert data["text"] == [escape(label)] and data["name"] == escape(label)


def test_points_without_both_coordinates_are_left_out() -> None:
    trace = points("p", [1.0, None, 3.0], [1.0, 2.0, None], colour="--ink", hover=["a", "b", "c"])
    assert (trace["x"], trace["y"], trace["text"]) == ([1.0], [1.0], ["a"])


@pytest.mark.parametrize("length", [1, MOST_POINTS, MOST_POINTS + 1, 10 * MOST_POINTS + 7])
def test_long_curves_are_thinned_and_keep_their_last_value(length: int) -> None:
    values = [float(i) for i in range(length)]
    trace = curve("c", values, values, colour="--ink")
    assert len(trace["x"]) <= MOST_POINTS and trace["x"][-1] == values[-1]
    assert len(trace["x"]) >= min(length, MOST_POINTS // 2)


def test_tradeoff_shows_every_architecture_the_front_the_limit_and_the_chosen(make_run: MakeRun) -> None:
    target = read_run(make_run()).targets[0]
    chart = figures.tradeoff(target)
    traces = {trace.get("name", ""): trace for trace in chart.traces}
    assert len(traces[f"evaluated ({len(target.history)})"]["x"]) == len(target.history)
    front = traces["best at each latency"]
    assert front["x"] == sorted(front["x"]) and front["y"] == sorted(front["y"], reverse=True)
    assert traces["chosen"]["x"] == [target.best["measured_ms"]]
    assert chart.layout["shapes"][0]["x0"] == target.limit_ms
    assert len(traces["measured finalists"]["x"]) == len(target.finalists)
    hover = traces[f"evaluated ({len(target.history)})"]["text"][0]
    assert str(target.history[0]["architecture"]).split(" | ")[0].split()[-1] in hover


def test_finalists_left_as_bare_measurements_get_their_loss_from_the_history(make_run: MakeRun) -> None:
    run = make_run(until="search")
    path = run / "search" / "cpu@50%" / "candidates.json"
    bare = [
        {key: entry[key] for key in ("architecture", "measured_ms")} for entry in json.loads(path.read_text("utf-8"))
    ]
    path.write_text(json.dumps(bare), encoding="utf-8")
    chart = figures.tradeoff(read_run(run).targets[0])
    assert len(next(t for t in chart.traces if t.get("name") == "measured finalists")["x"]) == len(bare)


def test_course_of_the_search_only_falls_and_ends_at_the_best_within_the_limit(make_run: MakeRun) -> None:
    target = read_run(make_run()).targets[0]
    y = figures.search_course(target).traces[0]["y"]
    within = [line["valid_loss"] for line in target.history if line["predicted_ms"] <= (target.search_limit_ms or 0)]
    assert y == sorted(y, reverse=True) and y[-1] == min(within)


def test_drift_is_shown_as_a_share_of_the_usual_time_with_flags(make_run: MakeRun) -> None:
    device = read_run(make_run(until="measure")).devices[0]
    traces = {trace["name"]: trace for trace in figures.drift(device).traces}
    assert len(traces["flagged as drifted"]["x"]) == 1 and traces["flagged as drifted"]["y"][0] > 120
    assert len(traces["steady"]["x"]) == len(device.records) - 1
    assert all(95 < share < 105 for share in traces["steady"]["y"])


def test_usual_reference_follows_from_the_corrections_when_it_is_not_recorded(make_run: MakeRun) -> None:
    run = make_run(until="measure")
    (run / "measure" / "cpu" / "done.json").unlink()
    assert figures.usual_reference(read_run(run).devices[0]) == pytest.approx(4.0)


def test_validation_curves_are_one_per_followed_architecture(make_run: MakeRun) -> None:
    log = read_run(make_run(until="supernet")).supernet_log
    names = [trace["name"] for trace in figures.losses(log).traces]
    assert names == ["training", *(f"validation, {n}" for n in ("largest", "smallest", "drawn 1", "drawn 2"))]
