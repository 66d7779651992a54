"""Hooks of MkDocs that end the build on pages which would not show as they were meant."""

import re
from typing import Any

ELSEWHERE = re.compile(
    r"<(?:script|img|iframe|source|link)[^>]*\s(?:src|href)=\"?((?:https?:)?//[^\"> ]*)"
)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Refuse a page that makes a browser fetch something from the network."""
    found = ELSEWHERE.findall(output)
    if found:
        raise ValueError(f"{page.file.src_uri}: expected nothing from the network; got {found}.")
    return output


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Refuse a page on which a list or a table became plain text.

    Markdown needs four spaces of indentation for what belongs to a list item.
    """
    text = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", html, flags=re.DOTALL)
    found = re.findall(r"(?m)^(?:- |\d\. |\||```).*$", text)
    if found:
        raise ValueError(f"{page.file.src_uri}: expected lists and tables; got lines {found[:3]}.")
    return html
