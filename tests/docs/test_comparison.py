"""The tables of studies on the pages say what the studies' files say."""

import re

import pytest

from experiments.comparison.pages import MARK, made
from tests.docs.pages import ROOT

PAGES = ["comparison", "mission"]
PAGES += [f"papers/{path.stem}" for path in sorted((ROOT / "docs" / "papers").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_files(page: str) -> None:
    path = ROOT / "docs" / f"{page}.md"
    assert path.read_text(encoding="utf-8") == made(path)


@pytest.mark.parametrize("page", PAGES)
def test_every_table_names_its_file(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| ?-{3}", text, re.MULTILINE)) == len(MARK.findall(text))
