"""Links of README, CONTRIBUTING and the site lead somewhere, pictures are there."""

import re
from pathlib import Path

import pytest

from docs.included import INCLUDE, headings, part, with_included
from tests.docs.pages import PAGES, ROOT, name, prose, read

LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
PICTURE = re.compile(r"<(?:img|source)[^>]*\s(?:src|srcset)=\"([^\"]+)\"")


def anchors(text: str) -> set[str]:
    """What links to headings are called, here and on GitHub."""
    found = set[str]()
    for _, _, words in headings(text):
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
            whole = with_included(read(file), file.name) if file.suffix == ".md" else read(file)
            assert anchor in anchors(whole), target


def test_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[a](b.md) ![c [1]](d.png) `[no](no)`\n```python\nx[0](1)\n```\n"
        '<img alt="e" src="f.png">\n[g\nh](#i)\n'
    )
    assert targets(page) == ["b.md", "d.png", "#i", "f.png"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_of_the_site_stay_inside(page: Path) -> None:
    """MkDocs takes nothing from outside its folder; the hook does."""
    if page.is_relative_to(ROOT / "docs"):
        for target in targets(page):
            path = target.partition("#")[0]
            inside = (page.parent / path).resolve().is_relative_to(ROOT / "docs")
            assert "://" in target or inside, target


def test_every_inclusion_is_there() -> None:
    seen = 0
    for page in PAGES:
        seen += len(INCLUDE.findall(read(page)))
        text = with_included(read(page), name(page).removeprefix("docs/"))
        assert not INCLUDE.search(text), page
    assert seen >= 7


SOURCE = """# Title
Intro, see [page](docs/b.md#x) and [file](pyproject.toml). <img alt="a" src="docs/c.png">
## One
first
### Inside
```python
# no heading
```
## Two
second
"""


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("One", "first\n## Inside\n```python\n# no heading\n```"),
        ("Two", "second"),
        ("Inside", "```python\n# no heading\n```"),
        ("beginning", SOURCE.splitlines()[1]),
    ],
)
def test_a_section_is_taken_with_its_headings_raised(title: str, text: str) -> None:
    assert part(SOURCE, title) == text


def test_a_section_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="one heading 'Three'; got 0"):
        part(SOURCE, "Three")


def test_a_file_that_is_no_page_is_shown_as_a_program() -> None:
    text = with_included("<!-- include bo_stream/cli/template.toml -->", "a.md")
    assert text.startswith("```toml\n") and text.endswith("\n```") and "# " in text


def test_links_of_what_is_included_fit_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs.included.ROOT", tmp_path)
    (tmp_path / "README.md").write_text(SOURCE)
    text = with_included("<!-- include README.md: beginning -->", "tutorials/a.md")
    assert "[page](../b.md#x)" in text and '<img alt="a" src="../c.png">' in text
    assert "[file](https://github.com/bo-stream/bo_stream/blob/main/pyproject.toml)" in text
