"""A budget of actions: a curve, subspaces, losses, seconds.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import pandas as pd
import torch
from botorch.optim.core import scipy_minimize
from torch import Tensor

from bo_stream import CaGP, ExactGP, OnlineSGPR
from bo_stream.actions import Actions, BlockSparse, ConjugateGradient, TopEigenvectors
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError
from bo_stream.growth import FixedSize
from experiments.benchmarks.timing import alternated
from experiments.common.along import Along
from experiments.common.baselines.conjugate import CGGP
from experiments.common.baselines.modules import modules
from experiments.common.baselines.surrogates import observations, twin
from experiments.common.data import TableSplit, rows_of, scores, waves
from experiments.common.progress import Progress
from experiments.common.study import tables

Entry = dict[str, Any]


def curves(c: Entry) -> tuple[pd.DataFrame, list[Along]]:
    """A wave with a gap, under a budget: every method learns its own hyperparameters.

    Scores are those of noisy observations along the axis, the gap included. CGGP, by as many
    iterations, learns for so many ``seconds`` of processor time; it has no preconditioner.
    """
    X, Y = wave(c["rows"], c["noise"], 0)
    at = torch.linspace(0.0, 1.0, 401, dtype=torch.float64)
    outcomes = at_noise(at, c["noise"], 1)
    few = c["actions"]
    every: dict[str, StreamingGP] = {
        "exact GP": ExactGP(X, Y, **modules(1)),
        "CaGP-Opt": CaGP(X, Y, actions=BlockSparse(few), **modules(1)),
        "CaGP-CG": CaGP(X, Y, actions=ConjugateGradient(few), **modules(1)),
        "SGPR": OnlineSGPR(X, Y, growth=FixedSize(few), **modules(1)),
    }
    predicted = {}
    for name, model in every.items():
        model.fit(c["evaluations"])
        predicted[name] = observations(model, at.unsqueeze(-1))
    rival = CGGP(few, preconditioner=0)
    rival.observe(X, Y, c["seconds"])
    predicted["CGGP"] = rival.predict(at.unsqueeze(-1))
    rows, drawn = [], []
    for name, (mean, variance) in predicted.items():
        rows.append({"method": name, "actions": few} | scores(mean, variance, outcomes))
        drawn.append(Along(name, at, mean, variance.sqrt(), X[:, 0], Y[:, 0]))
    return pd.DataFrame(rows), drawn


def wave(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of a wave that becomes faster, none of them between .45 and .6: ``n x 1`` each."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.85 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    x = torch.where(x > 0.45, x + 0.15, x)
    return x, at_noise(x, noise, seed)


def at_noise(x: Tensor, noise: float, seed: int) -> Tensor:
    """Observations of the wave at numbers of any shape."""
    generator = torch.Generator().manual_seed(1000 + seed)
    draw = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    return (12.0 * x**1.5).sin() + noise * draw


def distances(c: Entry) -> pd.DataFrame:
    """Actions after so many evaluations of a fit, from the span of the leading eigenvectors.

    The Grassmann distance is the Euclidean norm of the principal angles. Columns ``actions``,
    ``policy``, ``seed``, ``evaluations``, ``distance`` and ``bound``; policies that are functions
    of the hyperparameters have one row, after the most evaluations.
    """
    rows = []
    for i, seed in product(c["actions"], c["seeds"]):
        X, Y = waves(c["rows"], 1, seed)
        for evaluations in c["evaluations"]:
            model = CaGP(X, Y, actions=BlockSparse(i), **modules(1))
            if evaluations:
                model.fit(evaluations)
            rows.append(_distance("BlockSparse", model, i, seed, evaluations))
        model = CaGP(X, Y, actions=ConjugateGradient(i), **modules(1))
        model.fit(max(c["evaluations"]))
        rows.append(_distance("ConjugateGradient", model, i, seed, max(c["evaluations"])))
    return pd.DataFrame(rows)


def _distance(name: str, model: CaGP, i: int, seed: int, evaluations: int) -> Entry:
    state, noise = model.state.rows, model.likelihood.noise.detach()
    top = TopEigenvectors(i).build(state.X, state.y, noise, model.covar_module)
    found = grassmann(model.S.dense(), top.dense())
    bound = float(model.log_evidence().detach())
    row = {"actions": i, "policy": name, "seed": seed, "evaluations": evaluations}
    return row | {"distance": found, "bound": bound}


def grassmann(A: Tensor, B: Tensor) -> float:
    """Norm of the principal angles between the spans of the columns, ``n x i`` and ``n x j``."""
    first, second = (torch.linalg.qr(part)[0] for part in (A, B))
    return float(torch.linalg.svdvals(first.mT @ second).clamp(max=1.0).acos().norm())


def losses(c: Entry, entries: Sequence[Entry]) -> pd.DataFrame:
    """Test scores of CaGP-Opt and CaGP-CG under hyperparameters that were learned in several ways.

    By the evidence lower bound, by the density of the projected data alone (neither learns the
    values of actions here), and by the evidence of an exact GP, which with actions of CG is what
    CGGP approaches where its evidence is estimated.
    """
    rows, streams = [], [(entry, name) for entry, name, _ in tables(entries)]
    every = list(product(streams, c["seeds"]))
    with Progress(len(every), "tables and seeds") as progress:
        for (entry, name), seed in every:
            split = TableSplit.standardised(*rows_of(entry), c["rows"], c["test"], seed)
            exact = ExactGP(split.X, split.Y, **modules(split.X.shape[1]))
            exact.fit(c["evaluations"])
            for i, label, model in _learned(c, split, exact):
                predicted = observations(model, split.X_test)
                noise = float(model.likelihood.noise.detach())
                row = {"table": name, "seed": seed, "actions": i, "learned by": label}
                rows.append(row | scores(*predicted, split.Y_test[:, 0]) | {"noise": noise})
            progress(f"{name}, seed {seed}")
    return pd.DataFrame(rows)


def _learned(c: Entry, split: TableSplit, exact: ExactGP) -> Iterator[tuple[int, str, StreamingGP]]:
    yield len(split.X), "exact GP", exact
    every: dict[str, Callable[[int], Actions]] = {
        "CaGP-Opt": BlockSparse,
        "CaGP-CG": ConjugateGradient,
    }
    for i, (name, policy) in product(c["actions"], every.items()):
        whole = CaGP(split.X, split.Y, actions=policy(i), **modules(split.X.shape[1]))
        whole.fit(c["evaluations"])
        yield i, f"{name}, `fit`", whole
        for label, objective in (("bound", "log_evidence"), ("projected", PROJECTED)):
            model = CaGP(split.X, split.Y, actions=policy(i), **modules(split.X.shape[1]))
            climb(model, objective, c["evaluations"])
            yield i, f"{name}, {label}", model
        yield i, f"{name}, exact evidence", _twin(split, exact, policy(i))


PROJECTED = "projected_log_likelihood"


def _twin(split: TableSplit, exact: ExactGP, actions: Actions) -> StreamingGP:
    return twin("cagp", split.X, split.Y, exact, {"actions": actions})


def climb(model: CaGP, objective: str, evaluations: int) -> None:
    """Learn hyperparameters by a method of CaGP, actions held as they are for each value.

    Where the covariance does not factorise, the loss is infinite.
    """
    parameters: dict[str, Tensor] = {
        name: p for name, p in model.named_parameters() if p.requires_grad
    }
    every = list(parameters.values())

    def loss() -> tuple[Tensor, Sequence[Tensor | None]]:
        try:
            value = -getattr(model, objective)()
        except StateError:
            return torch.tensor(math.inf).to(every[0]), [torch.zeros_like(p) for p in every]
        return value, torch.autograd.grad(value, every, allow_unused=True)

    scipy_minimize(loss, parameters, options={"maxfun": evaluations, "maxiter": evaluations})


def seconds(c: Entry) -> pd.DataFrame:
    """Median milliseconds of the bound with its gradient, of a factorisation, and of the marginals
    of 100 points, by rows and actions.
    """
    table = []
    for n, i in product(c["rows"], c["actions"]):
        X, Y = waves(n + 1, c["inputs"])
        model = CaGP(X[:n], Y[:n], actions=BlockSparse(i), **modules(c["inputs"]))
        row: Entry = {"n": n, "i": i}
        times = alternated(_tasks(model, X, Y), c["repetitions"], time.process_time)
        table.append(row | {name: 1e3 * median(took) for name, took in times.items()})
    return pd.DataFrame(table)


def _tasks(model: CaGP, X: Tensor, Y: Tensor) -> dict[str, Callable[[], object]]:
    def bound() -> None:
        model.zero_grad()
        model.log_evidence().backward()

    return {
        "bound and gradient": bound,
        "posterior at 100": partial(observations, model, X[:100]),
        "observe 1": lambda: model.observe(X[-1:], Y[-1:]).process(),
    }
