"""The toy of the paper: a noisy sinc function under one basis, under two, and under gradients."""

import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream import ExactGP
from experiments.common.along import Along
from experiments.common.baselines.modules import frozen, modules
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.baselines.surrogates import observations, twin

STOCHASTIC = "decoupled, stochastic gradients"
Marginals = tuple[Tensor, Tensor]


def rows(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """``sinc(x)`` on [-5, 5] with noise of this deviation: ``n x 1`` each."""
    generator = torch.Generator().manual_seed(seed)
    X = 10.0 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 5.0
    return X, torch.sinc(X) + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)


def compared(c: dict[str, Any]) -> tuple[pd.DataFrame, list[Along]]:
    """All methods under the exact GP's hyperparameters, for every seed: rows, and the predictions
    of the first seed.

    There is a row for each method, seed and step (closed forms have one): ``seconds`` of processor
    time, ``mean_error`` (RMS distance of the mean from the exact one along the axis, in deviations
    of the noise), ``deviation`` (mean ratio to the exact one's of the function's deviation).
    """
    table: list[dict[str, Any]] = []
    drawn: dict[str, Along] = {}
    at = torch.linspace(-6.0, 6.0, 241, dtype=torch.float64).unsqueeze(-1)
    for seed in c["seeds"]:
        X, Y = rows(c["rows"], c["noise"], seed)
        exact = ExactGP(X, Y, **modules(1))
        exact.fit()
        noise, truth = exact.likelihood.noise.item(), observations(exact, at)
        seen = {"exact GP": truth}
        for name, step, seconds, predicted in _methods(c, X, Y, exact, at, seed):
            row = {"method": name, "seed": seed, "step": step, "seconds": seconds}
            table.append(row | distance(predicted, truth, noise))
            seen[name] = predicted
        for name, (mean, variance) in seen.items():
            drawn.setdefault(name, Along(name, at[:, 0], mean, variance.sqrt(), X[:, 0], Y[:, 0]))
    return pd.DataFrame(table), list(drawn.values())


def by_step(results: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, a row a method and step of gradients; 0: a closed form."""
    columns = ["seconds", "mean_error", "deviation"]
    return results.groupby(["method", "step"], sort=False)[columns].mean().reset_index()


def distance(predicted: Marginals, truth: Marginals, noise: float) -> dict[str, float]:
    """How far predictions of observations are from the exact ones: columns of `compared`."""
    error = (predicted[0] - truth[0]).square().mean().sqrt() / noise**0.5
    ratio = ((predicted[1] - noise) / (truth[1] - noise)).clamp_min(0.0).sqrt()
    return {"mean_error": float(error), "deviation": float(ratio.mean())}


def _methods(
    c: dict[str, Any], X: Tensor, Y: Tensor, exact: ExactGP, at: Tensor, seed: int
) -> Iterator[tuple[str, int, float, Marginals]]:
    """Name, step, seconds and predictions of every method."""
    for name, spec in c["twins"].items():
        began, options = time.process_time(), spec.get("options", {})
        predicted = observations(twin(spec["name"], X, Y, exact, options), at)
        yield name, 0, time.process_time() - began, predicted
    parts = ("covar_module", "mean_module", "likelihood")
    own = frozen({part: getattr(exact, part) for part in parts})
    method = StochasticDecoupled(**c["stochastic"], seed=seed, own=own)
    method.observe(X, Y)
    seconds = method.seconds
    for step in c["steps"]:
        began = time.process_time()
        while method.steps < step:
            method.step()
        seconds += time.process_time() - began
        yield STOCHASTIC, step, seconds, method.predict(at)
