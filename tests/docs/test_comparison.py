"""The tables beside other optimisers say what the study's files say."""

import re

import pandas as pd
import pytest

from experiments.comparison.pages import pairs, standing
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "comparison"
MARK = re.compile(
    r"<!-- (?P<file>[\w/]+\.csv)(?:, (?P<budget>[^>]+))? -->\n+(?P<table>(?:\|.*\n)+)"
)
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "mark", list(MARK.finditer(PAGE)), ids=lambda m: f"{m['file']}, {m['budget']}"
)
def test_tables_are_those_of_the_files(mark: re.Match[str]) -> None:
    frame = pd.read_csv(FOLDER / mark["file"])
    table = standing(frame, mark["budget"]) if mark["budget"] else pairs(frame)
    assert mark["table"].strip() == table


def test_every_table_names_its_file() -> None:
    assert len(re.findall(r"^\| ?-{3}", PAGE, re.MULTILINE)) == len(MARK.findall(PAGE))
