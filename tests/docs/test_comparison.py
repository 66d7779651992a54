"""The tables of studies on the pages say what the studies' files say."""

import re

import pandas as pd
import pytest

from experiments.comparison.pages import pairs, plain, standing
from tests.docs.pages import ROOT

MARK = re.compile(
    r"<!-- (?P<file>[\w/-]+\.csv)(?:, (?P<budget>[^>]+)|: (?P<columns>[^>]+))? -->\n+"
    r"(?P<table>(?:\|.*\n)+)"
)
"""A comment before a table names its file and, if need be, the budget or the columns shown."""
PAPERS = [path.stem for path in sorted((ROOT / "docs" / "papers").glob("*.md"))]
FOLDERS = {"comparison": "comparison", "mission": "mission"}
FOLDERS |= {f"papers/{name}": "papers" for name in PAPERS}
"""Of the files, by page."""
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in FOLDERS}
MARKS = [(name, mark) for name, text in PAGES.items() for mark in MARK.finditer(text)]


@pytest.mark.parametrize(
    ("page", "mark"), MARKS, ids=[f"{m['file']}, {m['budget']}" for _, m in MARKS]
)
def test_tables_are_those_of_the_files(page: str, mark: re.Match[str]) -> None:
    frame = pd.read_csv(ROOT / "docs" / FOLDERS[page] / mark["file"])
    frame = frame[mark["columns"].split(", ")] if mark["columns"] else frame
    made = plain if "budget" not in frame else pairs
    table = standing(frame, mark["budget"]) if mark["budget"] else made(frame)
    assert mark["table"].strip() == table


@pytest.mark.parametrize("page", PAGES)
def test_every_table_names_its_file(page: str) -> None:
    found = MARK.findall(PAGES[page])
    assert len(re.findall(r"^\| ?-{3}", PAGES[page], re.MULTILINE)) == len(found)
