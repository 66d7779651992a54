"""What a comparison found: tables printed and written, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.progress import say
from experiments.comparison.pages import pairs, standing
from experiments.comparison.pictures import draw
from experiments.comparison.tables import BUDGETS, Unit, paired, standings

PICTURES: dict[Unit, str] = {
    "n": "loss_by_evaluations.png",
    "cpu_seconds": "loss_by_seconds.png",
}


def report(c: dict[str, Any], done: Sequence[tuple[Any, pd.DataFrame]], folder: Path) -> None:
    """Write ``standings.csv``, ``paired.csv``, both as ``tables.md``, and pictures; print them."""
    runs = [table for _, table in done]
    found: dict[str, list[pd.DataFrame]] = {"standings": [], "paired": []}
    for unit, name in BUDGETS.items():
        key = "marks" if unit == "n" else "mark_seconds"
        for budget in sorted({mark for run, _ in done for mark in run.budget[key]}):
            label = name.format(budget)
            for kind, made in (("standings", standings), ("paired", paired)):
                table = made(runs, unit, budget)
                if table.empty:
                    continue
                found[kind].append(table.assign(budget=label))
                say(f"\n{c['title']}: {kind} at {label}\n")
                say(table.to_string(index=False, float_format="{:.3g}".format))
        if done[0][0].budget[key]:
            draw(runs, unit, folder / PICTURES[unit], c["title"])
    pages = []
    for kind, tables in found.items():
        if tables:
            whole = pd.concat(tables, ignore_index=True)
            whole.insert(0, "budget", whole.pop("budget"))
            whole.to_csv(folder / f"{kind}.csv", index=False)
            budgets = dict.fromkeys(whole["budget"])
            each = [standing(whole, b) for b in budgets] if kind == "standings" else [pairs(whole)]
            pages += each
    (folder / "tables.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    say(f"\nWrote {folder}/")
