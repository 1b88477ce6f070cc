"""HTML and SVG as values: every text is escaped unless it already is markup, so that no data can become a tag."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML already. Only this module and the page's own skeleton make one from plain text."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]

_VOID = frozenset({"br", "hr", "img", "meta", "line", "path", "rect"})


def escape(text: object) -> Markup:
    """Return text as HTML that shows it, quotes escaped too; markup comes back as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(str(text), quote=True))


def join(*children: Child) -> Markup:
    """Return children one after another: markup as it is, text escaped, ``None`` left out, lists unfolded."""
    return Markup("".join(_parts(children)))


def tag(name: str, *children: Child, **attributes: object) -> Markup:
    """Return an element.

    An attribute of ``None`` or ``False`` is left out, ``True`` stands without a value. In names of attributes a
    trailing underscore goes (``class_``) and others become hyphens (``stroke_width``).
    """
    written = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{written}>" if name in ("br", "hr", "img", "meta") else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def table(
    head: Sequence[Child], rows: Iterable[Sequence[Child]], *, numbers: Sequence[int] = (), class_: str | None = None
) -> Markup:
    """Return a table that scrolls sideways on a narrow screen; ``numbers`` are the columns set flush right."""
    right = dict.fromkeys(numbers, "number")
    top = tag("tr", [tag("th", cell, class_=right.get(i), scope="col") for i, cell in enumerate(head)])
    body = [tag("tr", [tag("td", cell, class_=right.get(i)) for i, cell in enumerate(row)]) for row in rows]
    return tag(
        "div",
        tag("table", tag("thead", top) if any(head) else None, tag("tbody", body)),
        class_=_names("scroll", class_),
    )


def facts(pairs: Iterable[tuple[Child, Child]]) -> Markup:
    """Return a list of terms and values; pairs whose value is ``None`` or empty are left out."""
    rows = [tag("div", tag("dt", term), tag("dd", value)) for term, value in pairs if value is not None and value != ""]
    return tag("dl", rows, class_="facts") if rows else Markup("")


def details(summary: Child, *children: Child) -> Markup:
    """Return something folded away until its summary is clicked."""
    return tag("details", tag("summary", summary), *children)


def _parts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, str | int | float):
            yield escape(child)
        else:
            yield from _parts(child)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


def _names(*names: str | None) -> str:
    return " ".join(name for name in names if name)
