"""Streams behind a projection for the tests of `ProjectedWISKI`."""

from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream import ProjectedWISKI
from tests.bo_stream.mathematics.grid_cases import dense_interpolation
from tests.raw import RAW

D = 5
BOUNDS = torch.stack([torch.full((D,), -1.0), torch.full((D,), 2.0)]).double()
ALONG = torch.tensor([1.0, -0.5, 0.25, 0.0, 0.8]).double()


def data(n: int, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """A function of one linear combination of the inputs, with noise of 0.1."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, D, generator=generator, dtype=torch.float64)
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * U
    Y = ((X @ ALONG).unsqueeze(-1) + torch.arange(outputs)).sin()
    Y = Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.01 + 0.02 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def build(n: int, mode: str = "learned", outputs: int = 1, seed: int = 0, **kw: Any) -> Any:
    X, Y, Yvar = data(n, seed, outputs)
    likelihood = GaussianLikelihood() if mode == "scaled" else None
    kw = {"grid_size": (9, 8), "bounds": BOUNDS, "likelihood": likelihood, **RAW, **kw}
    model = ProjectedWISKI(X, Y, None if mode == "learned" else Yvar, **kw)
    for i, p in enumerate(model.parameters()):
        p.data.add_(0.1 * (i + 1))
    return model


def frozen_rows(model: Any, X: Tensor) -> Tensor:
    return dense_interpolation(model.grid.interpolate(X))
