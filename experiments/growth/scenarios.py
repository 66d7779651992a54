"""The three streams of the VIPS study: a growing domain, a stationary one, and one with outliers.

What a batch adds should decide how many inducing points it leaves behind [VIPS].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import GrowthPolicy
from experiments.common.kernels import RAW, additive, gaussian, scaled

__all__ = ["KERNELS", "PANELS", "SCENARIOS", "Stream", "grown"]

SIDE, LENGTH = 1.5, 10.0
"""Side of the domain, and how far it grows along the first axis; the function's lengthscale is
0.7.
"""
ELSEWHERE = 0.05
"""Share of the points of two batches of the outlier stream that lie in another region."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches in order, and test points.

    Attributes:
        batches: X ``N x d`` and Y ``N x 1``, raw.
        X_test, f_test: Test points ``P x d``, and the function without noise ``P x 1``.
        surprises: Indices of the batches that bring another region.
    """

    batches: list[tuple[Tensor, Tensor]]
    X_test: Tensor
    f_test: Tensor
    surprises: list[int]


def growing(dim: int, size: int, batches: int, noise: float, seed: int) -> Stream:
    """Each batch comes from the next slice of a long domain."""
    generator = torch.Generator().manual_seed(seed)
    sides = torch.full((dim,), SIDE, dtype=torch.float64)
    sides[0] = LENGTH
    X = sides * torch.rand(size * batches, dim, generator=generator, dtype=torch.float64)
    X = X[X[:, 0].argsort()]
    X_test = sides * torch.rand(1_000, dim, generator=generator, dtype=torch.float64)
    return _stream(list(X.chunk(batches)), X_test, noise, generator, list(range(batches)))


def stationary(dim: int, size: int, batches: int, noise: float, seed: int) -> Stream:
    """Every batch comes from the whole domain."""
    generator = torch.Generator().manual_seed(seed)
    X = SIDE * torch.rand(size * batches, dim, generator=generator, dtype=torch.float64)
    X_test = SIDE * torch.rand(1_000, dim, generator=generator, dtype=torch.float64)
    return _stream(list(X.chunk(batches)), X_test, noise, generator, [0])


def outliers(dim: int, size: int, batches: int, noise: float, seed: int) -> Stream:
    """The stationary stream, but two batches have points in regions of their own."""
    generator = torch.Generator().manual_seed(seed)
    X = SIDE * torch.rand(size * batches, dim, generator=generator, dtype=torch.float64)
    X_test = SIDE * torch.rand(1_000, dim, generator=generator, dtype=torch.float64)
    parts = list(X.chunk(batches))
    surprises = [batches // 2, 3 * batches // 4]
    for far, index in enumerate(surprises, 1):
        parts[index][-max(2, int(ELSEWHERE * size)) :].add_(3.0 * SIDE * far)
    return _stream(parts, X_test, noise, generator, [0, *surprises])


def function(X: Tensor) -> Tensor:
    """A sum of waves along every axis, ``n x 1``."""
    phase = torch.arange(X.shape[-1], dtype=X.dtype)
    waves = torch.sin(2.0 * X + phase) + 0.5 * torch.cos(3.5 * X - phase)
    return waves.sum(-1, keepdim=True) / X.shape[-1] ** 0.5


SCENARIOS = {"growing": growing, "stationary": stationary, "outliers": outliers}
PANELS = {
    "growing": "growing domain",
    "stationary": "stationary stream",
    "outliers": "two surprises",
}
"""What pictures call the scenarios."""


def _stream(
    parts: list[Tensor],
    X_test: Tensor,
    noise: float,
    generator: torch.Generator,
    surprises: list[int],
) -> Stream:
    batches = []
    for X in parts:
        f = function(X)
        batches.append((X, f + noise * torch.randn(f.shape, generator=generator, dtype=f.dtype)))
    return Stream(batches, X_test, function(X_test), surprises)


def product(dim: int, **settings: float) -> Kernel:
    """One squared-exponential kernel of all axes."""
    return scaled(RBFKernel(), **settings)


KERNELS = {"additive": additive, "product": product}


def grown(stream: Stream, policy: GrowthPolicy, c: dict[str, Any]) -> tuple[list[int], float]:
    """Inducing points after each batch under a policy, and the error of the mean in the end.

    Args:
        stream: The data.
        policy: The growth policy.
        c: ``kernel``, a key of `KERNELS`; its ``lengthscale`` and ``outputscale``, and ``noise``, a
            standard deviation; all held.
    """
    held = {key: c[key] for key in ("lengthscale", "outputscale")}
    modules = RAW | {
        "covar_module": KERNELS[c["kernel"]](stream.X_test.shape[1], **held),
        "likelihood": gaussian(noise=c["noise"] ** 2),
    }
    first, *others = stream.batches
    model = OnlineSGPR(*first, growth=policy, **modules)
    sizes = [len(model.inducing_points)]
    for X, Y in others:
        model.observe(X, Y, refit=False)
        sizes.append(len(model.inducing_points))
    error = model.posterior(stream.X_test).mean - stream.f_test
    return sizes, float(error.square().mean().sqrt())
