"""Elements of HTML and SVG: anything but Markup is text, and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Visible on white and black. Text inherits its colour.
BLUE, GREEN, RED, GREY = "#3b82f6", "#65a30d", "#dc2626", "#8b8f98"

_CELL = "padding:2px 10px 2px 0;text-align:"


class Markup(str):
    """HTML that is not escaped."""


Child = str | int | float | None


def element(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """Omits children and attributes that are None. An underscore in an attribute's name becomes a hyphen."""
    named = "".join(
        f' {key.replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{named}>{''.join(map(_inside, children))}</{name}>")


def _inside(child: Child) -> str:
    if child is None:
        return ""
    return child if isinstance(child, Markup) else escape(str(child))


def svg(width: float, height: float, label: str, *children: Child, **attributes: float) -> Markup:
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        style="max-width:100%;height:auto",
        role="img",
        font_family="system-ui, sans-serif",
        aria_label=label,
        **attributes,
    )


def muted(*children: Child) -> Markup:
    return element("span", *children, style="opacity:.65")


def card(title: str, about: str, *parts: Child, color: str = GREY) -> Markup:
    """A title with its subject, and the parts below; color: color of the line at the side."""
    head = element("div", element("b", title), " ", muted(about))
    style = f"border-left:3px solid {color};padding:2px 0 2px 10px;margin:2px 0;line-height:1.5"
    return element("div", head, *parts, style=style)


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], words: int = 1) -> Markup:
    """The first `words` columns are text, aligned left; the others are numbers."""

    def row(kind: str, cells: Sequence[Child]) -> Markup:
        sides = ["left" if at < words else "right" for at in range(len(cells))]
        made = (
            element(kind, cell, style=_CELL + side) for cell, side in zip(cells, sides, strict=True)
        )
        return element("tr", *made, style="background:none")

    head = element("thead", row("th", heads))
    body = element("tbody", *(row("td", cells) for cells in rows))
    return element("table", head, body, style="border-collapse:collapse;margin:4px 0")
