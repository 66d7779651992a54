"""Every contender trained on every table for the same seconds."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.common.progress import say
from experiments.computation_aware_tables.contenders import CONTENDERS
from experiments.computation_aware_tables.course import Course
from experiments.computation_aware_tables.report import distances, results
from experiments.computation_aware_tables.rows import split_of

__all__ = ["trained"]


def trained(c: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Tables ``results`` (a row a contender), ``curves`` (a row a score) and ``subspaces``.

    A line is printed whenever a contender is done.
    """
    rows, curves, far = [], [], []
    for name in c["tables"]:
        for seed in c["seeds"]:
            split = split_of(name, c["train"], c["test"], seed)
            for label in c["contenders"]:
                course = Course(split, c["seconds"])
                done = CONTENDERS[label](split, course, c["sizes"])
                head = {"table": name, "seed": seed, "contender": label}
                rows.append(head | results(course, done))
                curves += [head | row for row in course.rows]
                say(f"{name}, seed {seed}, {label}: nll {rows[-1]['nll']:.3f}")
        for row in distances(name, c):
            far.append({"table": name, **row})
            say(f"{name}, {row['actions']}: distance {row['distance']:.3f} to the eigenspace")
    frames = {"results": rows, "curves": curves, "subspaces": far}
    return {key: pd.DataFrame(frame) for key, frame in frames.items()}
