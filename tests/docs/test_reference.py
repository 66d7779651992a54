"""The reference has every public name, and the site's navigation every page."""

import re
from importlib import import_module
from typing import Any

import pytest

from docs.site_checks import ELSEWHERE, on_page_content
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "reference"
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md")))
LISTED = re.findall(r"^::: ([\w.]+)$", TEXT, re.MULTILINE)
MODULES = [
    "bo_stream",
    "bo_stream.ingest",
    "bo_stream.integrations.ax",
    "bo_stream.integrations.optuna",
    "bo_stream.likelihoods",
    "bo_stream.mathematics.linalg",
    "bo_stream.surrogates.registry",
    "bo_stream.errors",
    "bo_stream.scores",
    "bo_stream.growth",
    "bo_stream.mathematics.shapes",
]
"""Modules with public names, beside packages that list theirs."""
OPTIONAL = {"ax", "optuna"}


def packages() -> list[str]:
    """Packages whose `__init__` lists names."""
    tops = [ROOT / top for top in ("bo_stream", "acquisitions", "problems")]
    inits = [top / "__init__.py" for top in tops]
    inits += [init for top in tops for init in sorted(top.glob("*/__init__.py"))]
    listing = [i for i in inits if re.search(r"^__all__", i.read_text("utf-8"), re.MULTILINE)]
    return [".".join(i.parent.relative_to(ROOT).parts) for i in listing]


def module(dotted: str) -> Any:
    """A module, unless it needs a package that is not there."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{dotted} needs {error.name}")


def found(dotted: str) -> Any:
    """An object by its dotted name."""
    home, _, last = dotted.rpartition(".")
    return getattr(module(home), last)


@pytest.mark.parametrize("dotted", sorted({*MODULES, *packages()}))
def test_every_public_name_is_in_the_reference(dotted: str) -> None:
    home = module(dotted)
    assert dotted in TEXT
    named = [n for n in LISTED if n.split(".")[0] == dotted.split(".")[0]]
    there = [found(n) for n in named if "integrations" not in n]
    missing = [
        n
        for n in home.__all__
        if f"{dotted}.{n}" not in LISTED and not any(getattr(home, n) is o for o in there)
    ]
    assert not missing


def test_names_stand_once() -> None:
    assert len(LISTED) == len(set(LISTED)) > 90


def test_names_of_the_reference_exist() -> None:
    for dotted in LISTED:
        if not dotted.startswith("bo_stream.integrations."):
            assert found(dotted) is not None, dotted


def test_the_navigation_has_every_page() -> None:
    docs = ROOT / "docs"
    pages = [p.relative_to(docs).as_posix() for p in sorted(docs.rglob("*.md"))]
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    inside = re.findall(r"[\w/]+\.md\b", config)
    assert sorted(inside) == sorted(pages)


def test_nothing_of_the_site_comes_from_elsewhere() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^  font: false$", config, re.MULTILINE)
    assert "repo_url" not in config  # its stars are fetched by the page
    outside = ['<script src="https://a.b/c.js">', "<img alt=x src=//a.b/c.png>"]
    assert all(ELSEWHERE.findall(html) for html in outside)
    assert not ELSEWHERE.findall('<a href="https://a.b"><img src="pictures/c.png">')


class Page:
    """As much of a page of MkDocs as the hook looks at."""

    class file:
        src_uri = "page.md"


@pytest.mark.parametrize("line", ["- an item", "2. an item", "| a | b |"])
def test_lists_and_tables_that_became_text_end_the_build(line: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md: expected lists"):
        on_page_content(f"<p>text\n{line}\nmore</p>", page=Page())
    assert on_page_content(f"<pre>\n{line}</pre>", page=Page())
