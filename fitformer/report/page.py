"""``report/index.html``: everything of a run on one page that needs no other file and no network.

The page allows itself nothing else: its security policy names the two scripts it carries by their checksums, so that
even a text that slipped through the escaping could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from fitformer.errors import InputError
from fitformer.report import background, bundle, drawing, expense, figures, outcome, translations
from fitformer.report.charts import Chart
from fitformer.report.inputs import DeviceFiles, RunFiles, TargetFiles, read_run
from fitformer.report.markup import Markup, details, escape, join, tag
from fitformer.report.reading import real
from fitformer.report.wording import count
from fitformer.rundir import write_text

PAGE = "index.html"
Part = tuple[str, Markup | None]


def render_report(run_folder: Path) -> Path:
    """Write ``report/index.html`` of a run folder from the files of its stages, and return its path.

    Whatever is missing is left out: the page of an unfinished run shows what there is so far. The same files give the
    same page, byte for byte.

    Raises:
        InputError: not a run folder, or plotly is not installed.
        NotPossibleError: the page cannot be written.
    """
    run = read_run(run_folder)
    path = run_folder / "report" / PAGE
    write_text(path, page(run))
    return path


def page(run: RunFiles) -> str:
    """Return the whole page as HTML."""
    body = _body(run)
    scripts = {"plotly": "", "script": ""}
    if 'class="chart"' in body:
        scripts = {"plotly": _plotly(), "script": _own("page.js")}
    policy = (
        f"default-src 'none'; script-src {_checksums(scripts.values())}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    slots = {
        "title": escape(f"{run.name} \u2013 fitformer"),
        "style": _own("page.css"),
        "body": body,
        "policy": policy,
    } | scripts
    # One pass, so that nothing that comes from data is taken for a slot.
    return re.sub(r"\[\[(\w+)\]\]", lambda match: slots[match[1]], _own("page.html"))


def _own(name: str) -> str:
    return (files("fitformer.report") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError("the report draws its charts with plotly: pip install 'fitformer[fit]'") from None
    # A carriage return would be read as a newline and change the checksum.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def _checksums(scripts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


# -- the page's order --------------------------------------------------------------------------------------------------


def _body(run: RunFiles) -> Markup:
    single = len(run.targets) == 1
    chapters: list[tuple[str, str, Markup]] = []
    for number, target in enumerate(run.targets, start=1):
        content = join(outcome.headline(run, target), _parts(_target_parts(run, target, number)))
        chapters.append((f"target-{number}", f"Result: {target.name}" if single else target.name, content))
    for name, title, parts in (
        ("devices", "Device and latency predictor", _device_parts(run)),
        ("supernet", "SuperTransformer", [("", _supernet(run))]),
        ("data", "Text", [("", background.data(run))]),
        ("time", "Time spent", [("", background.time_spent(run))]),
        ("cost", "What it cost", [("", expense.cost_spent(run))]),
        ("again", "To do it again", [("", background.provenance(run))]),
    ):
        if any(content for _, content in parts):
            chapters.append((name, title, _parts(parts)))
    links = [tag("a", title, href=f"#{name}") for name, title, _ in chapters]
    sections = [tag("section", tag("h2", title), content, id=name) for name, title, content in chapters]
    footer = (
        "Written by fitformer from the files of the run folder. This page needs no network and sends nothing anywhere."
    )
    return join(
        _top(run), tag("nav", links, aria_label="Contents"), tag("main", sections), tag("footer", tag("p", footer))
    )


def _top(run: RunFiles) -> Markup:
    languages = f"Translation, {run.languages[0]} to {run.languages[1]}." if run.languages else ""
    licence = f" Text: {run.stats['licence']}." if run.stats.get("licence") else ""
    problems = [tag("li", problem) for problem in run.problems]
    return tag(
        "header",
        tag("h1", run.name),
        tag("p", languages, licence) if languages or licence else None,
        _state(run),
        tag(
            "div",
            "Some files could not be read, and what they hold is missing here:",
            tag("ul", problems),
            class_="notice",
        )
        if problems
        else None,
        class_="top",
    )


def _state(run: RunFiles) -> Markup | None:
    """What is still to do, if anything."""
    under_way = [stage for stage in run.stages if stage.state == "begun"]
    to_do = [stage.title for stage in run.stages if stage.state == "not begun"]
    if not under_way and not to_do:
        return None
    said = []
    for stage in under_way:
        log = (
            run.supernet_log
            if stage.name == "supernet"
            else next((t.log for t in run.targets if t.name == stage.part), ())
        )
        done = (
            next((real(line, "update") for line in reversed(log)), None)
            if stage.name in ("supernet", "train")
            else None
        )
        wanted = real(stage.inputs, stage.name, "updates")
        so_far = f" ({count(done)} of {count(wanted)} updates)" if done is not None and wanted is not None else ""
        said.append(f"Under way: {stage.title}{so_far}. ")
    if to_do:
        said.append(f"Still to come: {', '.join(to_do)}.")
    return tag("p", "This run is not finished. ", said, class_="notice")


def _target_parts(run: RunFiles, target: TargetFiles, number: int) -> list[Part]:
    return [
        ("Trade-off", _charts(figures.tradeoff(target), wide=True) if target.history or target.finalists else None),
        ("The architecture", _architecture(run, target, number)),
        ("Scores", translations.scores(target)),
        ("Samples", translations.samples(run, target)),
        ("int8 or fp32", bundle.compression(target)),
        ("The bundle and its check", bundle.export_check(target)),
        ("Training of the final model", background.training(target.log, target.stages["train"], "train")),
        ("Course of the search", _search(target)),
    ]


def _architecture(run: RunFiles, target: TargetFiles, number: int) -> Markup | None:
    arch = target.architecture
    if arch is None:
        return None
    space = run.space
    outline = " The dashed outline is the largest that the search space offered." if space else ""
    lead = f"A bar is as wide as its size.{outline} Arrows show which encoder layers a decoder layer attends to."
    return join(
        tag("p", lead),
        drawing.draw(arch, space, name=f"target-{number}"),
        tag("p", tag("code", arch.to_text())),
        details("All sizes as a table", drawing.sizes(arch)),
    )


def _search(target: TargetFiles) -> Markup | None:
    charts, found = _charts(figures.search_course(target)), background.search_facts(target.stages["search"])
    return join(charts, found) if charts or found else None


def _device_parts(run: RunFiles) -> list[Part]:
    parts: list[Part] = []
    several = len(run.devices) > 1

    def title(device: DeviceFiles, what: str) -> str:
        return f"{what}: {device.name}" if several else what

    for device in run.devices:
        parts.append((title(device, "How well latency is predicted"), background.predictor(device)))
        parts.append((title(device, "Device card"), background.device_card(device)))
    return parts


def _supernet(run: RunFiles) -> Markup | None:
    stage = next(stage for stage in run.stages if stage.name == "supernet")
    return background.training(run.supernet_log, stage, "supernet")


def _charts(*charts: Chart, wide: bool = False) -> Markup | None:
    drawn = [chart.html() for chart in charts if not chart.is_empty]
    return tag("div", drawn, class_="wide" if wide else None) if drawn else None


def _parts(parts: Iterable[Part]) -> Markup:
    return join(*(join(tag("h3", title) if title else None, content) for title, content in parts if content))
