"""The three streams of the VIPS study: a growing domain, a stationary one, and one with outliers.

What a batch adds should decide how many inducing points it leaves behind [VIPS].
"""

from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, RBFKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import GrowthPolicy
from experiments.common.kernels import RAW, gaussian, scaled

SIDE, LENGTH = 1.5, 10.0
"""Side of the domain, and how far it grows along the first axis; the function's lengthscale is
0.7.
"""
ELSEWHERE = 0.05
"""Share of the points of two batches of the outlier stream that lie in another region."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Batches of ``N x d`` and ``N x 1``, raw, in order; test points ``P x d``, the function there
    without noise, ``P x 1``; and which batches bring another region.
    """

    batches: list[tuple[Tensor, Tensor]]
    X_test: Tensor
    f_test: Tensor
    surprises: list[int]


def stream(scenario: str, dim: int, size: int, batches: int, noise: float, seed: int) -> Scenario:
    """A stream of ``batches`` batches of ``size`` points, with noise of this standard deviation.

    In the scenario ``growing`` each batch comes from the next slice of a long domain; in
    ``stationary`` from the whole domain; in ``outliers`` so, but two have points in regions of
    their own.
    """
    generator = torch.Generator().manual_seed(seed)
    sides = torch.full((dim,), SIDE, dtype=torch.float64)
    if scenario == "growing":
        sides[0] = LENGTH
    X, X_test = (
        sides * torch.rand(n, dim, generator=generator, dtype=torch.float64)
        for n in (size * batches, 1_000)
    )
    surprises = {"growing": list(range(batches)), "stationary": [0]}.get(scenario, [0])
    if scenario == "growing":
        X = X[X[:, 0].argsort()]
    parts = list(X.chunk(batches))
    if scenario == "outliers":
        surprises += [batches // 2, 3 * batches // 4]
        for far, index in enumerate(surprises[1:], 1):
            parts[index][-max(2, int(ELSEWHERE * size)) :].add_(3.0 * SIDE * far)
    seen = []
    for x in parts:
        f = function(x)
        seen.append((x, f + noise * torch.randn(f.shape, generator=generator, dtype=f.dtype)))
    return Scenario(seen, X_test, function(X_test), surprises)


def function(X: Tensor) -> Tensor:
    """A sum of waves along every axis, ``n x 1``."""
    phase = torch.arange(X.shape[-1], dtype=X.dtype)
    waves = torch.sin(2.0 * X + phase) + 0.5 * torch.cos(3.5 * X - phase)
    return waves.sum(-1, keepdim=True) / X.shape[-1] ** 0.5


PANELS = {
    "growing": "growing domain",
    "stationary": "stationary stream",
    "outliers": "two surprises",
}
"""What pictures call the scenarios."""


def kernel(name: str, dim: int, lengthscale: float, outputscale: float) -> Kernel:
    """``product``: one squared-exponential kernel of all axes; ``additive``: one for every axis,
    summed, ``outputscale`` being that of the sum.
    """
    if name == "product":
        return scaled(RBFKernel(), lengthscale=lengthscale, outputscale=outputscale)
    parts = (RBFKernel(active_dims=(i,)) for i in range(dim))
    share = {"lengthscale": lengthscale, "outputscale": outputscale / dim}
    return AdditiveKernel(*(scaled(part, **share) for part in parts))


def grown(stream: Scenario, policy: GrowthPolicy, c: dict[str, Any]) -> tuple[list[int], float]:
    """Inducing points after each batch under a policy, and the error of the mean in the end.

    ``c`` has what is held: the name of the ``kernel``, its ``lengthscale`` and ``outputscale``, and
    ``noise``, a standard deviation.
    """
    held = c["lengthscale"], c["outputscale"]
    modules = RAW | {
        "covar_module": kernel(c["kernel"], stream.X_test.shape[1], *held),
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
