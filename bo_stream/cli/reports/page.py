"""A page: sections of HTML in one file that needs no network.

The drawing library is part of the page, compressed to two of its nearly five megabytes, and
unpacked by the browser. A content security policy forbids the page to load anything else.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files

__all__ = ["PageSection", "page"]


@dataclass(frozen=True)
class PageSection:
    """A section of a page.

    Attributes:
        title: Its heading.
        body: HTML, with headings from ``h3`` on.
    """

    title: str
    body: str


def page(title: str, about: str, sections: Iterable[PageSection]) -> str:
    """The HTML of a page.

    Args:
        title: Title of the page, as plain text.
        about: A line below the title, as plain text.
        sections: Its sections; those without a body are left out.

    Raises:
        ImportError: without plotly.
    """
    from plotly.offline import get_plotlyjs  # not at the top: it is an extra

    kept = [section for section in sections if section.body]
    links = "".join(f'<li><a href="#s{i}">{escape(s.title)}</a></li>' for i, s in enumerate(kept))
    bodies = "".join(
        f'<section aria-labelledby="s{i}"><h2 id="s{i}">{escape(s.title)}</h2>{s.body}</section>\n'
        for i, s in enumerate(kept)
    )
    packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
    style, script = (_part(name) for name in ("page.css", "page.js"))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main id="content" tabindex="-1">
<noscript><p>Figures need JavaScript; tables do not.</p></noscript>
{bodies}</main>
<footer><p>Made by bo_stream. Figures are drawn by plotly.js (MIT licence, Plotly, Inc.), which is
part of this file.</p></footer>
<script type="application/gzip" id="plotly">{packed}</script>
<script>{script}</script>
</body>
</html>
"""


_ALLOWED = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""Content security policy: nothing but the page itself."""


def _part(name: str) -> str:
    return files("bo_stream.cli.reports").joinpath(name).read_text(encoding="utf-8")
