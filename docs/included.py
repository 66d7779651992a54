"""What the site takes from files outside its folder, so that it is said once; a hook of MkDocs.

A comment on a page, which a reader of the repository does not see, stands for the text:

* ``<!-- include README.md: Studies -->`` for the section of that heading, without the heading;
* ``<!-- include README.md: beginning -->`` for what comes before the first section;
* ``<!-- include CHANGELOG.md -->`` for all of it without its title; of a file that is no page, for
  all of it as a program.

Headings move up or down to fit below the page's title, links to fit the page's place.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/bo-stream/bo_stream/blob/main"
INCLUDE = re.compile(r"^<!-- include ([\w./-]+?)(?:: (.*?))? -->$", re.MULTILINE)
LINK = re.compile(r"(?:(?<=\]\()|(?<= src=\")|(?<= srcset=\"))([^)\s\"]+)")
ELSEWHERE = re.compile(
    r"<(?:script|img|iframe|source|link)[^>]*\s(?:src|href)=\"?((?:https?:)?//[^\"> ]*)"
)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with every comment replaced."""
    return with_included(markdown, page.file.src_uri)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """The page as it is, unless a browser would fetch part of it from elsewhere."""
    found = ELSEWHERE.findall(output)
    if found:
        raise ValueError(f"{page.file.src_uri}: expected no part from elsewhere; got {found}.")
    return output


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """The page as it is, unless a list or a table was taken for plain lines.

    That happens where what belongs to an item is indented by fewer than four blanks.
    """
    text = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", html, flags=re.DOTALL)
    found = re.findall(r"(?m)^(?:- |\d\. |\||```).*$", text)
    if found:
        raise ValueError(f"{page.file.src_uri}: expected lists and tables; got lines {found[:3]}.")
    return html


def with_included(markdown: str, page: str) -> str:
    """A page's text with what it includes.

    Args:
        markdown: As it is written.
        page: Its path below `docs`.

    Raises:
        ValueError: if a heading is not there, or is there twice.
    """

    def text(match: re.Match[str]) -> str:
        file = ROOT / match[1]
        whole = file.read_text(encoding="utf-8")
        if file.suffix != ".md":
            return f"```{file.suffix[1:]}\n{whole.rstrip()}\n```"
        return LINK.sub(lambda link: _moved(link[0], match[1], page), part(whole, match[2]))

    return INCLUDE.sub(text, markdown)


def part(text: str, title: str | None) -> str:
    """One section of a text, its headings such that the highest are of the second level.

    Args:
        text: Markdown.
        title: The heading; ``beginning`` for what comes before the first section, None for all of
            it without the title.
    """
    lines = text.splitlines()
    heads = list(headings(text))
    if title is None:
        return "\n".join(lines[1 + heads[0][0] :])
    if title == "beginning":
        return "\n".join(lines[1 + heads[0][0] : heads[1][0]])
    found = [(row, level) for row, level, words in heads if words == title]
    if len(found) != 1:
        raise ValueError(f"Expected one heading {title!r}; got {len(found)}.")
    first, level = found[0]
    end = next((row for row, other, _ in heads if row > first and other <= level), len(lines))
    for row, other, words in heads:
        if first < row < end:
            lines[row] = f"{'#' * (other - level + 1)} {words}"
    return "\n".join(lines[first + 1 : end])


def headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Row, level and words of every heading; comments in programs are none."""
    fence = ""
    for row, line in enumerate(text.splitlines()):
        mark = line.strip()[:3]
        if mark == "```":
            fence = "" if fence else mark
        elif not fence and (found := re.match(r"(#+) (.*)", line)):
            yield row, len(found[1]), found[2]


def _moved(link: str, source: str, page: str) -> str:
    """A link of one file as it is to be written on a page."""
    if link.startswith("#") or "://" in link:
        return link
    target = os.path.normpath(posixpath.join(posixpath.dirname(source), link))
    if target.startswith("docs/"):
        return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")
    return f"{REPOSITORY}/{target}"
