"""What a comparison found: tables printed and written, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.progress import say
from experiments.comparison.pages import pairs, standing
from experiments.comparison.pictures import draw, draw_pooled
from experiments.comparison.tables import BUDGETS, Unit, paired, standings

MARKS: dict[Unit, str] = {"n": "marks", "cpu_seconds": "mark_seconds"}
PICTURES: dict[Unit, str] = {
    "n": "loss_by_evaluations.png",
    "cpu_seconds": "loss_by_seconds.png",
}


def report(c: dict[str, Any], done: Sequence[tuple[Any, pd.DataFrame]], folder: Path) -> None:
    """Write ``standings.csv``, ``paired.csv``, both as ``tables.md``, and pictures; print them.

    ``apart`` in a configuration lists tasks of which there are pairs of their own, in
    ``paired_apart.csv``; ``look`` says what to look at, last.
    """
    runs, pages = [table for _, table in done], []
    apart = [run for run in runs if run["task"].iloc[0] in c.get("apart", ())]
    budgets: list[tuple[Unit, float]] = [
        (unit, budget)
        for unit, key in MARKS.items()
        for budget in sorted({mark for run, _ in done for mark in run.budget[key]})
    ]
    for name, made, chosen in (
        ("standings", standings, runs),
        ("paired", paired, runs),
        ("paired_apart", paired, apart),
    ):
        found = {BUDGETS[unit].format(b): made(chosen, unit, b) for unit, b in budgets if chosen}
        tables = [table.assign(budget=b) for b, table in found.items() if len(table)]
        if not tables:
            continue
        whole = pd.concat(tables, ignore_index=True)
        whole.insert(0, "budget", whole.pop("budget"))
        whole.to_csv(folder / f"{name}.csv", index=False)
        say(f"\n{c['title']}: {name}\n")
        say(whole.to_string(index=False, float_format="{:.3g}".format))
        known = dict.fromkeys(whole["budget"])
        pages += [standing(whole, b) for b in known] if made is standings else [pairs(whole)]
    for unit in dict.fromkeys(unit for unit, _ in budgets):
        drawn = draw_pooled if c.get("pooled") else draw
        drawn(runs, unit, folder / PICTURES[unit], c["title"])
    (folder / "tables.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    say(f"\nWrote {folder}/")
    if "look" in c:
        say(c["look"])
