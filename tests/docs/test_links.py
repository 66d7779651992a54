"""Links of README, CONTRIBUTING and the site lead somewhere, pictures are there."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, headings, name, prose, read

LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
PICTURE = re.compile(r"<(?:img|source)[^>]*\s(?:src|srcset)=\"([^\"]+)\"")


def anchors(text: str) -> set[str]:
    """What links to headings are called, here and on GitHub."""
    found = set[str]()
    for _, words in headings(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)
        plain = re.sub(r"[^\w\- ]", "", plain.lower()).strip()
        found |= {plain.replace(" ", "-")}
    return found


def targets(page: Path) -> list[str]:
    """Where a page's links and pictures lead, programs left out."""
    text = re.sub(r"(`+).*?\1", "", prose(page), flags=re.DOTALL)
    return [target for _, target in LINK.findall(text)] + PICTURE.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT) and file.exists(), target
        if anchor:
            assert anchor in anchors(read(file)), target


FILE = re.compile(r"`((?:acquisitions|bo_stream|docs|experiments|problems|tests)/[\w./]*\w/?)`")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_folders_that_a_page_names_exist(page: Path) -> None:
    for path in FILE.findall(prose(page)):
        assert (ROOT / path).exists(), path


def test_modules_for_authors_of_families_exist() -> None:
    text = read(ROOT / "docs" / "adding_a_surrogate.md")
    (listed,) = re.findall(r"^Useful modules in `(.*?)\. If ", text, re.MULTILINE | re.DOTALL)
    package, *modules = re.findall(r"`?([\w.]+)`", listed)
    assert len(modules) > 5
    for module in modules:
        assert find_spec(f"{package}.{module}"), module


def test_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[a](b.md) ![c [1]](d.png) `[no](no)`\n```python\nx[0](1)\n```\n"
        '<img alt="e" src="f.png">\n[g\nh](#i)\n'
    )
    assert targets(page) == ["b.md", "d.png", "#i", "f.png"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_of_the_site_stay_inside(page: Path) -> None:
    """MkDocs takes nothing from outside its folder."""
    if page.is_relative_to(ROOT / "docs"):
        for target in targets(page):
            path = target.partition("#")[0]
            inside = (page.parent / path).resolve().is_relative_to(ROOT / "docs")
            assert "://" in target or inside, target
