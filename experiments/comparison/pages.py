"""Tables of studies as Markdown, as the documentation shows them.

A comment above a table names its file: ``<!-- FILE -->``, ``<!-- FILE, BUDGET -->`` of standings
within a budget, ``<!-- FILE: COLUMN, COLUMN -->`` of some columns. `python -m
experiments.comparison.pages PAGE...` makes the tables of pages anew. Files lie in the folder of the
page's own name or, if there is none, beside it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from experiments.common.command import command, start
from experiments.comparison.tables import LEAST

MARK = re.compile(
    r"(?P<comment><!-- (?P<file>[\w/-]+\.csv)"
    r"(?:, (?P<budget>[^>]+)|: (?P<columns>[^>]+))? -->\n+)(?P<table>(?:\|.*(?:\n|\Z))+)"
)
"""A comment and its table."""

ABOUT = ("budget", "method", "mean rank", "low", "high", "seeds", "n", "processor s")
"""Columns of ``standings.csv`` that are no tasks."""

SHORT = {"rmse": "RMSE", "nlpd": "NLPD", "nmse": "nMSE"}
"""Parts of a column's name that a page writes in capitals."""


def made(page: Path) -> str:
    """The text of a page, its tables made from their files."""
    own = page.with_suffix("")
    folder = own if own.is_dir() else page.parent

    def one(mark: re.Match[str]) -> str:
        return f"{mark['comment']}{table(mark, folder)}\n"

    return MARK.sub(one, page.read_text(encoding="utf-8"))


def table(mark: re.Match[str], folder: Path) -> str:
    """The table that a comment asks for, of a file in the folder."""
    frame = pd.read_csv(folder / mark["file"])
    if mark["budget"]:
        return standing(frame, mark["budget"])
    if mark["columns"]:
        frame = frame[mark["columns"].split(", ")]
    return pairs(frame) if "budget" in frame else plain(frame)


def standing(frame: pd.DataFrame, budget: str) -> str:
    """Standings within a budget: a column for each method, the best first, a row for each task."""
    table = frame[frame["budget"] == budget].set_index("method")
    lines = [_line("", table.index), _line("---", ["---"] * len(table))]
    for task in (column for column in table.columns if column not in ABOUT):
        if table[task].notna().any():
            least = max(table[task].min(), LEAST)
            cells = [f"**{number(v)}**" if v <= least else number(v) for v in table[task]]
            lines.append(_line(task, cells))
    ranks = [
        "-" if pd.isna(row["mean rank"]) else f"{row['mean rank']:.1f} ({_range(row, '.1f')})"
        for _, row in table.iterrows()
    ]
    lines.append(_line("mean rank (95 %)", ranks))
    lines.append(_line("seeds", [f"{v:.0f}" for v in table["seeds"]]))
    spent = "processor s" if budget.startswith("n") else "n"
    cells = [number(v) if spent != "n" else f"{v:,.0f}" for v in table[spent]]
    lines.append(_line("processor seconds" if spent != "n" else "evaluations", cells))
    return "\n".join(lines)


def pairs(frame: pd.DataFrame) -> str:
    """The first method against the others: a row for each of them, a column for each budget."""
    budgets = list(dict.fromkeys(frame["budget"]))
    first = frame["method"].iloc[0]
    lines = [_line(f"{first} against", budgets), _line("---", ["---"] * len(budgets))]
    for other, part in frame.groupby("against", sort=False):
        known = part.set_index("budget")
        cells = []
        for budget in budgets:
            if budget not in known.index:
                cells.append("-")
                continue
            row = known.loc[budget]
            cells.append(f"{row['median']:.2f} ({_range(row, '.2f')}), {row['better']:.0%}")
        lines.append(_line(str(other), cells))
    return "\n".join(lines)


def plain(frame: pd.DataFrame) -> str:
    """A table as it is: words, whole numbers, two digits of other numbers."""
    heads = [" ".join(SHORT.get(w, w) for w in name.split("_")) for name in frame.columns]
    lines = [_line(heads[0], heads[1:])]
    lines.append(_line("---", ["---"] * (len(frame.columns) - 1)))
    for row in frame.itertuples(index=False):
        cells = [one if isinstance(one, str) else _digits(one) for one in row]
        lines.append(_line(cells[0], cells[1:]))
    return "\n".join(lines)


def number(value: float) -> str:
    """Two digits of a number; nothing is said below the least loss that counts."""
    if pd.isna(value):
        return "-"
    if value < LEAST:
        return f"<{LEAST:.0e}".replace("e-0", "e-")
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.2g}"


def _digits(value: float) -> str:
    """A whole number, or two digits of another one."""
    if pd.isna(value):
        return "-"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 100.0 else f"{value:.2g}"


def _range(row: pd.Series, how: str) -> str:
    return f"{row['low']:{how}} to {row['high']:{how}}"


def _line(name: str, cells: Sequence[str] | pd.Index) -> str:
    return f"| {' | '.join([name, *cells])} |"


def write(
    pages: Annotated[list[Path], typer.Argument(help="Pages to be written.", exists=True)],
) -> None:
    """Make the tables of pages anew."""
    for page in pages:
        page.write_text(made(page), encoding="utf-8")


app = command(write, __doc__)

if __name__ == "__main__":
    start(app)
