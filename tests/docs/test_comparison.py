"""The tables beside other optimisers say what the study's files say."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "comparison"
ROW = re.compile(r"^\| (.+?) \|$", re.MULTILINE)
HEADING = re.compile(
    r"^### (?:At (?P<n>[\d,]+) observations|Within (?P<s>\d+) processor seconds),"
    r" (?P<which>[\w ]+)$",
    re.MULTILINE,
)
FILES = {"optimum moved": "moved", "as published": "published"}


def rows(text: str) -> list[list[str]]:
    """Cells of the first table in a text, without its head; bold and code as plain words."""
    table = text[text.index("\n|---") :].split("\n\n")[0]
    return [re.sub(r"[*`]", "", row).split(" | ") for row in ROW.findall(table)]


def near(cell: str, value: float) -> bool:
    """Whether a number with two digits stands for another one."""
    return float(cell) == pytest.approx(value, rel=0.06, abs=0.006)


def check(table: list[list[str]], frame: pd.DataFrame, last: str) -> None:
    """Compare six functions, mean ranks with intervals and a last column."""
    known = frame.set_index("surrogate")
    assert len(table) == len(known)
    for label, *cells, rank, spent in table:
        line = known.loc[label.replace('WISKI, "auto"', "WISKI auto")]
        assert all(near(c, v) for c, v in zip(cells, line.iloc[1:7], strict=True)), label
        mean, low, high = map(float, re.findall(r"[\d.]+", rank))
        assert [mean, low, high] == pytest.approx(line[["mean rank", "low", "high"]], abs=0.051)
        assert near(spent, line[last]), label


def test_every_table_of_the_page() -> None:
    text = Path(ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    found = list(HEADING.finditer(text))
    assert {FILES[match["which"]] for match in found} == set(FILES.values())
    for match in found:
        frame = pd.read_csv(FOLDER / f"{FILES[match['which']]}.csv")
        budget = f"n = {match['n'].replace(',', '')}" if match["n"] else f"{match['s']} s"
        last = "processor s" if match["n"] else "n"
        check(rows(text[match.end() :]), frame[frame["budget"] == budget], last)
