"""What a trained contender amounts to, in numbers of one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from experiments.computation_aware_tables.contenders import CONTENDERS
from experiments.computation_aware_tables.course import LEVELS, Course, Trained
from experiments.computation_aware_tables.rows import split_of
from experiments.computation_aware_tables.subspaces import grassmann, to_top_eigenspace

__all__ = ["distances", "results"]


def results(course: Course, trained: Trained) -> dict[str, float]:
    """The last scores of a course, coverage errors, noise and lengthscales.

    ``error 95`` is the distance of the 95 % interval's coverage from 0.95, ``error mean`` the mean
    distance over all levels. Lengthscales are in deviations of their inputs: the shortest, the
    median, and how many are below 10.
    """
    row = dict(course.rows[-1])
    gaps = {p: abs(row[f"coverage {p}"] - p) for p in LEVELS}
    base: Any = trained.kernel.base_kernel
    lengthscale = base.lengthscale.detach().reshape(-1)
    return row | {
        "error 95": gaps[0.95],
        "error mean": sum(gaps.values()) / len(gaps),
        "noise": trained.likelihood.noise.item(),
        "shortest": float(lengthscale.min()),
        "median": float(lengthscale.median()),
        "below 10": float((lengthscale < 10.0).sum()),
    }


def distances(name: str, c: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Grassmann distance of actions to the top eigenspace at few data, for both policies of CaGP.

    Beside it, that of as many random directions.
    """
    rows, i = c["subspace"]["rows"], c["subspace"]["actions"]
    split = split_of(name, rows, c["test"], 0)
    for label in ("CaGP-CG", "CaGP-Opt"):
        course = Course(split, c["seconds"] / 6.0)
        model = CONTENDERS[label](split, course, {"actions": i, "cg": i}).model
        with torch.no_grad():
            distance = to_top_eigenspace(model)
        n, i = model.num_observed, model.num_actions
        yield {"actions": label, "n": n, "i": i, "distance": distance} | course.rows[-1]
    generator = torch.Generator().manual_seed(0)
    spans = [torch.randn(n, i, generator=generator, dtype=torch.float64) for _ in range(2)]
    yield {"actions": "random", "n": n, "i": i, "distance": grassmann(*spans)}
