"""Every method trained on every table for the same seconds, and what it amounts to."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream import CaGP
from bo_stream.actions import TopEigenvectors
from experiments.common.data import TableSplit, waves
from experiments.common.progress import say
from experiments.computation_aware.methods import METHODS
from experiments.computation_aware.training import LEVELS, Trained, Training
from problems.tables import load_table


def compared(c: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Tables ``results`` (a row a method), ``curves`` (a row a score) and ``subspaces``.

    A line is printed whenever a method is done.
    """
    rows, curves, far = [], [], []
    for name in c["tables"]:
        for seed in c["seeds"]:
            split = split_of(name, c["train"], c["test"], seed)
            for label in c["contenders"]:
                training = Training(split, c["seconds"])
                trained = METHODS[label](training, c["sizes"])
                head = {"table": name, "seed": seed, "contender": label}
                rows.append(head | results(training, trained))
                curves += [head | row for row in training.rows]
                say(f"{name}, seed {seed}, {label}: nll {rows[-1]['nll']:.3f}")
        for row in distances(name, c):
            far.append({"table": name, **row})
            say(f"{name}, {row['actions']}: distance {row['distance']:.3f} to the eigenspace")
    frames = {"results": rows, "curves": curves, "subspaces": far}
    return {key: pd.DataFrame(frame) for key, frame in frames.items()}


def split_of(name: str, train: int, test: int, seed: int) -> TableSplit:
    """At most so many standardised rows of a table, or of one ``made up``."""
    if name == "made up":
        return TableSplit.standardised(*waves(train + test, 6), train, test, seed)
    table = load_table(name)
    return TableSplit.standardised(table.X, table.Y, train, test, seed)


def results(training: Training, trained: Trained) -> dict[str, float]:
    """The last scores of a training, coverage errors, noise and lengthscales.

    ``error 95`` is the distance of the 95 % interval's coverage from 0.95, ``error mean`` the mean
    distance over all levels. Lengthscales are in deviations of their inputs: the shortest, the
    median, and how many are below 10.
    """
    row = dict(training.rows[-1])
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
        training = Training(split, c["seconds"] / 6.0)
        model = METHODS[label](training, {"actions": i, "cg": i}).model
        n, i = model.num_observed, model.num_actions
        row = {"actions": label, "n": n, "i": i, "distance": to_top_eigenspace(model)}
        yield row | training.rows[-1]
    generator = torch.Generator().manual_seed(0)
    spans = [torch.randn(n, i, generator=generator, dtype=torch.float64) for _ in range(2)]
    yield {"actions": "random", "n": n, "i": i, "distance": grassmann(*spans)}


def grassmann(A: Tensor, B: Tensor) -> float:
    """Grassmann distance of the column spans of A and B (``n x i`` each, full column rank).

    The root of the sum of squared principal angles, as a share of the largest possible, sqrt(i)
    pi/2: 0 for equal spans, 1 for orthogonal ones. O(n i^2).
    """
    A, B = torch.linalg.qr(A)[0], torch.linalg.qr(B)[0]
    cosine = torch.linalg.svdvals(A.mT @ B)
    # an angle near 0 from its sine: acos loses half the digits there
    sine = torch.linalg.svdvals(B - A @ (A.mT @ B)).flip(0)
    angles = torch.atan2(sine.clamp(0.0, 1.0), cosine.clamp(0.0, 1.0))
    return float(angles.norm()) / (math.sqrt(angles.numel()) * 0.5 * math.pi)


def to_top_eigenspace(model: CaGP) -> float:
    """`grassmann` of a surrogate's actions and as many top eigenvectors of its kernel matrix.

    O(n^3) time and O(n^2) memory: for a few thousand data.
    """
    state, noise = model.state, torch.ones_like(model.state.Y)
    with torch.no_grad():
        top = TopEigenvectors(model.num_actions).build(state.X, state.Y, noise, model.covar_module)
        return grassmann(state.S.dense(), top.dense())
