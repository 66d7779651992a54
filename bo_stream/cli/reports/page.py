"""A page: sections of HTML in one file, which asks the network for nothing.

The drawing library comes with the page, compressed (two megabytes instead of nearly five), and the
browser unpacks it. What the page may load is said in its head, and that is nothing at all.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files

__all__ = ["Section", "page"]


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading.

    Attributes:
        title: The heading.
        body: HTML; its own headings begin at ``h3``.
    """

    title: str
    body: str


def page(title: str, about: str, sections: Iterable[Section]) -> str:
    """The HTML of a page.

    Args:
        title: Of the page, plain text.
        about: One line below it, plain text.
        sections: What is on it; those without a body are left out.

    Raises:
        ImportError: without plotly.
    """
    from plotly.offline import get_plotlyjs  # here: it is an extra

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
<footer><p>Written by bo_stream. Figures are drawn by plotly.js (MIT licence, Plotly, Inc.), which
is part of this file.</p></footer>
<script type="application/gzip" id="plotly">{packed}</script>
<script>{script}</script>
</body>
</html>
"""


_ALLOWED = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""What browsers may load: what is in the page."""


def _part(name: str) -> str:
    return files("bo_stream.cli.reports").joinpath(name).read_text(encoding="utf-8")
