"""Ways to learn hyperparameters on a stream of small batches."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior

from bo_stream import OnlineSGPR
from bo_stream.growth import GrowthPolicy
from experiments.growth_scenarios import Stream

__all__ = ["REFITS", "Refits", "streamed"]


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
    dim = X.shape[1]
    prior, noise_prior = LogNormalPrior(0.0, 0.7), LogNormalPrior(-3.0, 1.0)
    base = RBFKernel(ard_num_dims=dim, lengthscale_prior=prior if refits.priors else None)
    kernel = ScaleKernel(base, outputscale_prior=prior if refits.priors else None).double()
    likelihood = GaussianLikelihood(noise_prior=noise_prior if refits.priors else None).double()
    base.lengthscale, likelihood.noise = 1.0, 0.05
    start = time.process_time()
    model = OnlineSGPR(
        X[:30],
        Y[:30],
        covar_module=kernel,
        likelihood=likelihood,
        growth=policy,
        trust=refits.trust,
    )
    model.fit()
    model.reselect()
    rows: list[dict[str, float]] = []
    for i, k in enumerate(range(30, len(X) + 1, step)):
        if i:
            batch = slice(k - step, k)
            model.observe(X[batch], Y[batch], refit=refits.every is not None)
        seconds = time.process_time() - start
        error = model.posterior(stream.X_test).mean - stream.f_test
        rows.append(
            {
                "batch": k // q,
                "points": len(model.inducing_points),
                "rmse": float(error.square().mean().sqrt()),
                "lengthscale": float(base.lengthscale.detach().log().mean().exp()),
                "noise": float(likelihood.noise.detach()),
                "seconds": seconds,
            }
        )
    return rows
