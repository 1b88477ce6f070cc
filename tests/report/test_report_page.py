"""The page as a whole: complete, self-contained, safe, and never defeated by a missing or damaged file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fitformer
from fitformer.errors import InputError
from fitformer.report import page as page_module
from fitformer.report import render_report
from fitformer.report.inputs import read_run
from fitformer.report.page import page
from fitformer.report.wording import milliseconds
from fitformer.rundir import read_json, write_json, write_text
from fitformer.stages import STAGES

MakeRun = Callable[..., Path]
VOID = {"meta", "link", "br", "hr", "img"}


class Elements(HTMLParser):
    """Every element with its attributes, the text outside scripts and styles, and the content of scripts."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(content)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, content = self.scripts.pop()
            self.scripts.append((attributes, content + data))
        elif self.open and self.open[-1] != "style":
            self.words.append(data)


@pytest.fixture
def without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the 5 MB of plotly.js, where a test reads the page many times."""
    monkeypatch.setattr(page_module, "_plotly", lambda: "/* plotly */")


def render(run: Path) -> Elements:
    return Elements(page(read_run(run)))


# -- content ----------------------------------------------------------------------------------------------------------


def test_page_of_finished_run_has_every_part(make_run: MakeRun, without_plotly: None) -> None:
    text = render(make_run()).text
    for part in (
        "within the limit",
        "Trade-off",
        "The architecture",
        "Scores",
        "copy the source",
        "nrefs:1|case:mixed|eff:no|tok:13a",
        "Samples",
        "Zwei Hunde laufen über das Gras.",
        "int8 or fp32",
        "int8 is kept: it runs at 1.60 times the speed",
        "199, 1 tie ",
        "prediction was off by",
        "Training of the final model",
        "within 10 %",
        "Imaginary Processor X1",
        "SuperTransformer",
        "one side is far longer than the other",
        "CC BY 4.0",
        "30 min 00 s",
        "seed",
    ):
        assert part in text, part
    assert "not finished" not in text


def test_headline_names_limit_both_latencies_and_score(make_run: MakeRun, without_plotly: None) -> None:
    run = make_run()
    target = read_run(run).targets[0]
    decision = read_json(run / "compress" / target.name / "decision.json")
    text = render(run).text
    assert target.shipped_ms == pytest.approx(decision["int8_ms"])
    for side in ("fp32", "int8"):
        assert " ".join(milliseconds(decision[f"{side}_ms"]).split()) in text
    assert "33.1" in text and "fake-run/export/cpu@50%" in text


def test_broken_limit_is_said(make_run: MakeRun, without_plotly: None) -> None:
    run = make_run()
    path = run / "search" / "cpu@50%" / "best.json"
    write_json(path, read_json(path) | {"limit_ms": 0.5})
    assert "over the limit" in render(run).text


def test_differences_of_int8_are_counted(make_run: MakeRun, without_plotly: None) -> None:
    text = render(make_run()).text
    assert "183, 17 different" in text and "176, 24 different" in text


def test_every_target_and_device_has_its_own_part(make_run: MakeRun, without_plotly: None) -> None:
    elements = render(make_run(targets=("cpu@50%", "pi@40ms")))
    for name in ("cpu@50%", "pi@40ms", "Device card: cpu", "Device card: pi"):
        assert name in elements.text
    identifiers = [attributes["id"] for _, attributes in elements.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert sum(name == "svg" for name, _ in elements.elements) == 2


def test_fixed_architecture_needs_no_search(make_run: MakeRun, without_plotly: None) -> None:
    elements = render(make_run(fixed=True, targets=("model",)))
    assert "not needed" in elements.text and "not finished" not in elements.text
    assert "no limit was set" in elements.text
    assert any(name == "svg" for name, _ in elements.elements)
    assert "Trade-off" not in elements.text


def test_samples_fall_back_to_golden_outputs_with_references(make_run: MakeRun, without_plotly: None) -> None:
    run = make_run()
    path = run / "export" / "cpu@50%" / "done.json"
    record = read_json(path)
    del record["facts"]["samples"]
    write_json(path, record)
    assert "Ein Mann in einem blauen Hemd steht auf einer Leiter." in render(run).text


# -- whatever is missing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", STAGES[:-1])
def test_run_that_stopped_after_any_stage_renders(make_run: MakeRun, without_plotly: None, until: str) -> None:
    text = render(make_run(until=until)).text
    still = list(STAGES[STAGES.index(until) + 1 : -1])
    assert ("Still to come" in text) == bool(still)
    for stage in still:
        assert stage in text


def test_unfinished_training_tells_how_far_it_is(make_run: MakeRun, without_plotly: None) -> None:
    run = make_run(until="supernet")
    record = read_json(run / "supernet" / "done.json")
    write_json(run / "supernet" / "started.json", {"inputs": record["inputs"], "sessions": []})
    (run / "supernet" / "done.json").unlink()
    lines = (run / "supernet" / "log.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    write_text(run / "supernet" / "log.jsonl", "\n".join(lines) + '\n{"update": 99, "lo')
    text = render(run).text
    assert f"Under way: supernet ({json.loads(lines[-1])['update']:,} of 5,000 updates)" in text


def every_file(run: Path) -> Iterator[Path]:
    return (path for path in sorted(run.rglob("*")) if path.is_file() and path.suffix != ".html")


def test_any_single_file_may_be_missing(make_run: MakeRun, without_plotly: None) -> None:
    run = make_run()
    for path in every_file(run):
        content = path.read_bytes()
        path.unlink()
        assert "fake-run" in render(run).text, path
        path.write_bytes(content)


@pytest.mark.parametrize("damage", ["half", "empty", "binary", "list", "null", "number"])
def test_any_single_file_may_be_damaged(make_run: MakeRun, without_plotly: None, damage: str) -> None:
    run = make_run()
    for path in every_file(run):
        content = path.read_bytes()
        other = {"half": content[: len(content) // 2], "empty": b"", "binary": b"\xff\x00\xfe" * 50}
        path.write_bytes(
            other.get(damage, {"list": b"[1, [2]]\n", "null": b"null\n", "number": b"NaN\n"}.get(damage, b""))
        )
        text = render(run).text
        assert "fake-run" in text, path
        if damage == "half" and path.suffix == ".json" and path.name != "model.json" and path.parent.name != "int8":
            assert f"{path.relative_to(run).as_posix()}: not a whole JSON file" in text, path
        path.write_bytes(content)


@pytest.mark.parametrize("value", [None, "word", -1, [], {}, True, float("nan"), 1e300])
def test_any_value_may_be_of_another_kind(make_run: MakeRun, without_plotly: None, value: Any) -> None:
    run = make_run()
    for path in every_file(run):
        if path.suffix == ".json":
            content = read_json(path)
            write_json(path, _every_leaf(content, value))
            assert "fake-run" in render(run).text, path
            write_json(path, content)


def _every_leaf(content: Any, value: Any) -> Any:
    if isinstance(content, dict) and content:
        return {key: _every_leaf(item, value) for key, item in content.items()}
    if isinstance(content, list) and content:
        return [_every_leaf(item, value) for item in content]
    return value


def test_folder_without_a_run_is_refused_in_one_line(tmp_path: Path) -> None:
    for folder, reason in ((tmp_path / "nowhere", "no such run folder"), (tmp_path, "not a run folder")):
        with pytest.raises(InputError, match=reason) as caught:
            render_report(folder)
        assert "\n" not in str(caught.value)


# -- self-contained and safe ------------------------------------------------------------------------------------------


def test_report_is_written_to_its_place_and_same_files_give_same_bytes(make_run: MakeRun) -> None:
    run = make_run()
    path = render_report(run)
    assert path == run / "report" / "index.html"
    first = path.read_bytes()
    assert b"plotly.js v" in first
    assert render_report(run).read_bytes() == first


def test_page_refers_to_nothing_outside(make_run: MakeRun, without_plotly: None) -> None:
    elements = render(make_run()).elements
    for name, attributes in elements:
        assert "src" not in attributes and name not in ("iframe", "object", "embed", "base", "form")
        if "href" in attributes:
            assert attributes["href"] is not None and attributes["href"].startswith(("#", "data:,"))
    css = Path(page_module.__file__).with_name("page.css").read_text(encoding="utf-8")
    assert "url(" not in css and "@import" not in css


def test_security_policy_allows_exactly_the_scripts_of_the_page(make_run: MakeRun) -> None:
    elements = render(make_run())
    policy = next(a["content"] for _, a in elements.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "unsafe-eval" not in policy
    run = [content for attributes, content in elements.scripts if "type" not in attributes]
    assert len(run) == 2
    digests = {base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in run}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == digests
    script_rule = re.search(r"script-src ([^;]*);", policy)
    assert script_rule is not None and "unsafe-inline" not in script_rule[1]


PAYLOADS = (
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "<!--<svg onload=alert(1)>",
    "[[script]] {{7*7}} javascript:alert(1) &lt;b&gt;",
)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_from_data_never_becomes_markup(make_run: MakeRun, without_plotly: None, payload: str) -> None:
    target = "cpu@" + payload.replace("/", "\u2215")
    run = make_run(targets=(target,), name="run " + payload.replace("/", "\u2215"))
    clean = [(name, set(attributes)) for name, attributes in render(make_run(name="clean")).elements]
    _poison(run, payload)
    elements = render(run)
    allowed = {name: set() for name, _ in clean}  # type: dict[str, set[str]]
    for name, attributes in clean:
        allowed[name] |= attributes
    for name, attributes in elements.elements:
        assert set(attributes) <= allowed.get(name, set()), (name, attributes)
    assert sum("type" not in attributes for attributes, _ in elements.scripts) == 2
    assert payload in elements.text
    for attributes, content in elements.scripts:
        if "type" in attributes:
            _check_figure(json.loads(content))


def _poison(run: Path, payload: str) -> None:
    """Append the payload to every text in every file, keys of validation losses and dropped reasons included."""
    for path in every_file(run):
        if path.suffix == ".json":
            write_json(path, _poisoned(read_json(path), payload))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            write_text(path, "".join(json.dumps(_poisoned(line, payload)) + "\n" for line in lines))
        elif path.suffix == ".txt":
            write_text(path, "".join(f"{line}{payload}\n" for line in path.read_text(encoding="utf-8").splitlines()))
        elif path.suffix == ".csv":
            quoted = payload.replace('"', '""')
            lines_ = path.read_text(encoding="utf-8").splitlines()
            stamped = [f'{line.rpartition(",")[0]},"{line.rpartition(",")[2]}{quoted}"' for line in lines_[1:]]
            write_text(path, "\n".join([lines_[0], *stamped]) + "\n")


def _poisoned(content: Any, payload: str) -> Any:
    if isinstance(content, str):
        return content + payload
    if isinstance(content, list):
        return [_poisoned(item, payload) for item in content]
    if isinstance(content, dict):
        keys = {key: key + payload for key in content if key in ("largest", "drawn 1", "ratio", "onnxruntime", "beam")}
        return {keys.get(key, key): _poisoned(item, payload) for key, item in content.items()}
    return content


def _check_figure(content: Any) -> None:
    """Plotly reads tags in texts: only line breaks may be there."""
    if isinstance(content, str):
        assert "<" not in content.replace("<br>", "").replace("%{text}<extra></extra>", ""), content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            _check_figure(item)


# -- the page's own files ---------------------------------------------------------------------------------------------


def test_page_files_are_part_of_the_package() -> None:
    root = Path(fitformer.__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["fitformer"]
    for path in (root / "fitformer" / "report").iterdir():
        if path.is_file() and path.suffix != ".py":
            assert any(path.relative_to(root / "fitformer").match(pattern) for pattern in patterns), path.name


def test_every_colour_a_chart_names_is_in_the_style_sheet_for_both_schemes(
    make_run: MakeRun, without_plotly: None
) -> None:
    css = Path(page_module.__file__).with_name("page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    used = {name for _, content in render(make_run()).scripts for name in re.findall(r'"(--[\w-]+)"', content)}
    assert used
    for name in used & set(re.findall(r"--[\w-]+", css)) | {n for n in used if n.startswith("--line")}:
        assert f"{name}:" in light, name
    for name in re.findall(r"(--[\w-]+):", dark):
        assert f"{name}:" in light
    colours = {name for name, value in re.findall(r"(--[\w-]+): (#\w+);", light)}
    assert colours == set(re.findall(r"(--[\w-]+):", dark))
