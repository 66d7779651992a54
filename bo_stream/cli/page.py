"""A page: one HTML file that needs no network, with pictures by matplotlib and tables."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Section", "PageTable", "describe", "facts", "page"]


@dataclass(frozen=True)
class Picture:
    """A figure with a caption.

    Attributes:
        title: What it shows.
        note: How to read it.
        figure: The figure.
    """

    title: str
    note: str
    figure: Figure

    @property
    def source(self) -> str:
        """The picture itself, an SVG as a data URL."""
        import matplotlib  # not at the top: it is an extra

        text = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "bo_stream", "svg.fonttype": "none"}):
            self.figure.savefig(text, format="svg", metadata={"Date": None})
        return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue().encode()).decode()


@dataclass(frozen=True)
class PageTable:
    """A table with a caption, whose first column has the row headings.

    Attributes:
        caption: Its caption.
        frame: The values; the index is left out, and missing values are empty cells.
        digits: Significant digits of numbers.
    """

    caption: str
    frame: pd.DataFrame
    digits: int = 4


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        title: Its heading.
        text: A paragraph.
        pictures: Pictures below it.
        tables: Tables below these; empty ones are left out.
    """

    title: str
    text: str = ""
    pictures: Sequence[Picture] = field(default_factory=list)
    tables: Sequence[PageTable] = field(default_factory=list)


def facts(caption: str, values: Mapping[str, Any]) -> PageTable:
    """A table of named values, without those that are None."""
    known = [(name, value) for name, value in values.items() if value is not None]
    return PageTable(caption, pd.DataFrame(known, columns=["name", "value"]))


def describe(choice: Any) -> str:
    """A name, or a mapping of name and options, as text."""
    if not isinstance(choice, Mapping):
        return str(choice)
    rest = (f"{key} {describe(value)}" for key, value in choice.items() if key != "name")
    return ", ".join([*([str(choice["name"])] if "name" in choice else []), *rest])


def page(title: str, about: str, sections: Iterable[Section]) -> str:
    """The HTML of a page.

    Args:
        title: Title of the page.
        about: A line below the title.
        sections: Its sections; empty ones are left out.
    """
    from jinja2 import Environment, PackageLoader  # not at the top: it is an extra

    kept = [s for s in sections if s.text or s.pictures or any(len(t.frame) for t in s.tables)]
    environment = Environment(loader=PackageLoader("bo_stream.cli", ""), autoescape=True)
    template = environment.get_template("page.html.j2")
    return template.render(title=title, about=about, sections=kept)
