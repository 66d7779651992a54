"""Ways to learn hyperparameters on a stream of small batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

from bo_stream import OnlineSGPR
from bo_stream.growth import GrowthPolicy
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.growth.scenarios import Stream

__all__ = ["REFITS", "Refits", "mended", "streamed"]

SHORT, FIRST = 0.15, 60
"""A lengthscale much too short for the functions streamed, and the points taken in under it."""


@dataclass(frozen=True)
class Refits:
    """When a stream refits, and how.

    Attributes:
        every: Points between refits; None for a fit to the first batch only.
        priors: Whether hyperparameters have priors.
        trust: As of `OnlineSGPR`.
    """

    every: int | None
    priors: bool = True
    trust: float | None = None


REFITS = {
    "never": Refits(None),
    "every batch, no prior": Refits(6, priors=False),
    "every batch, priors": Refits(6),
    "every batch, priors, trust": Refits(6, trust=0.1),
    "every 30 points, priors, trust": Refits(30, trust=0.1),
}


def streamed(stream: Stream, policy: GrowthPolicy, refits: Refits) -> list[dict[str, float]]:
    """Size, error, hyperparameters and processor time after each batch.

    The first 30 points come at once, so that the first fit has something to learn from; from there
    on a refit sees the points since the last one as one batch.
    """
    X, Y = (torch.cat(part) for part in zip(*stream.batches, strict=True))
    q = len(stream.batches[0][0])
    step = q if refits.every is None else refits.every
    start = time.process_time()
    kw = _modules(X.shape[1], 1.0, refits.priors)
    model = OnlineSGPR(X[:30], Y[:30], growth=policy, trust=refits.trust, **kw)
    model.fit()
    rows: list[dict[str, float]] = []
    for i, k in enumerate(range(30, len(X) + 1, step)):
        if i:
            batch = slice(k - step, k)
            model.observe(X[batch], Y[batch], refit=refits.every is not None)
        seconds = time.process_time() - start
        rows.append({"batch": k // q, **_facts(model, stream), "seconds": seconds})
    return rows


def mended(stream: Stream, policy: GrowthPolicy) -> list[dict[str, float]]:
    """As `streamed`, where the first points are chosen under a lengthscale that is too short.

    The first 60 points are taken in unfitted; the next 60 are fitted, but by then it is too late
    for `reselect`, which chooses among the points of the last batch. The rest comes in small
    batches, not fitted.
    """
    X, Y = (torch.cat(part) for part in zip(*stream.batches, strict=True))
    q = len(stream.batches[0][0])
    start = time.process_time()
    kw = _modules(X.shape[1], SHORT, True)
    model = OnlineSGPR(X[:FIRST], Y[:FIRST], growth=policy, **kw)
    rows: list[dict[str, float]] = []
    seen = FIRST
    for k in (FIRST, 2 * FIRST, *range(2 * FIRST + q, len(X) + 1, q)):
        if k > seen:
            model.observe(X[seen:k], Y[seen:k], refit=k == 2 * FIRST)
        seen = k
        seconds = time.process_time() - start
        rows.append({"batch": k // q, **_facts(model, stream), "seconds": seconds})
    return rows


def _modules(dim: int, lengthscale: float, priors: bool) -> dict[str, Any]:
    prior, noise_prior = LogNormalPrior(0.0, 0.7), LogNormalPrior(-3.0, 1.0)
    base = RBFKernel(ard_num_dims=dim, lengthscale_prior=prior if priors else None)
    kernel = scaled(base, lengthscale=lengthscale, outputscale_prior=prior if priors else None)
    likelihood = gaussian(noise=0.05, prior=noise_prior if priors else None)
    return RAW | {"covar_module": kernel, "likelihood": likelihood}


def _facts(model: OnlineSGPR, stream: Stream) -> dict[str, float]:
    error = model.posterior(stream.X_test).mean - stream.f_test
    lengthscale = model.covar_module.base_kernel.lengthscale
    return {
        "points": len(model.inducing_points),
        "rmse": float(error.square().mean().sqrt()),
        "lengthscale": float(lengthscale.detach().log().mean().exp()),
        "noise": float(model.likelihood.noise.detach()),
    }
