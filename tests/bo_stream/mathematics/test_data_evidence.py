"""The evidence of observations in closed form, against torch and the objectives of families."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from bo_stream import WISKI, CaGP, ExactGP, OnlineSGPR
from bo_stream.base.fitting import AscentObjective, Coordinates, log_prior
from bo_stream.mathematics.data_evidence import (
    Correlations,
    DataEvidence,
    correlations_at,
    correlations_on,
)
from bo_stream.mathematics.evidence import log_evidence
from bo_stream.mathematics.grid import Grid
from bo_stream.mathematics.shapes import Rows

BOX = torch.tensor([[0.0] * 2, [1.0] * 2]).double()
LOGS = np.array([-1.0, -0.4, 0.3, -1.5])


def rows(n: int = 14) -> Rows:
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.rand(*s, generator=generator).double() for s in ((n, 2), (1, n)))
    return Rows(X, Y, 0.5 + torch.rand(1, n, generator=generator).double())


def evidence(correlations: Correlations, data: Rows) -> DataEvidence:
    return DataEvidence(correlations, data.y.numpy(), data.r.numpy())


@pytest.mark.parametrize("mean", [None, 0.2])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, np.inf])
def test_value_and_gradient(nu: float, mean: float | None) -> None:
    data = rows()
    kernel: Any = RBFKernel(ard_num_dims=2) if nu == np.inf else MaternKernel(nu, ard_num_dims=2)
    kernel = ScaleKernel(kernel).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor(LOGS[:2]).exp(), np.exp(0.3)
    C = kernel(data.X).to_dense() + np.exp(-1.5) * torch.diag(data.r)
    L, known = torch.linalg.cholesky(C)[None], None if mean is None else torch.tensor([mean])
    expected, best = log_evidence(L, data.Y, known)
    function = evidence(correlations_at(data, nu), data)
    value, gradient, found = function(LOGS, mean)
    assert abs(value - float(expected.detach())) < 1e-6  # roots of rounded distances
    assert best is None or abs(float(best) - found) < 1e-10
    assert np.abs(gradient - slopes(function, mean)).max() < 1e-7


def test_on_a_grid() -> None:
    data, grid = rows(), Grid.covering(BOX, [7, 9])
    W, (low, step) = grid.interpolate(data.X), (grid.origin, grid.step)
    axes = [low[k] + step[k] * torch.arange(grid.sizes[k]).double() for k in range(2)]
    nodes = torch.cartesian_prod(*axes)
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor(LOGS[:2]).exp()
    dense = torch.zeros(len(data), grid.m).double().scatter_add(1, W.index, W.weight)
    K = dense @ kernel(nodes).to_dense() @ dense.T
    correlations = correlations_on(grid, data, np.inf)
    assert np.abs(correlations(np.exp(LOGS[:2]))[0] - K.detach().numpy()).max() < 1e-10
    function = evidence(correlations, data)
    assert np.abs(function(LOGS, None)[1] - slopes(function, None)).max() < 1e-7


def slopes(function: DataEvidence, mean: float | None) -> np.ndarray:
    """Differences of the value."""
    steps = 1e-5 * np.eye(len(LOGS))
    pairs = [(function(LOGS + h, mean)[0], function(LOGS - h, mean)[0]) for h in steps]
    return np.array([(high - low) / 2e-5 for high, low in pairs])


def own_kernel() -> ScaleKernel:
    return ScaleKernel(get_covar_module_with_dim_scaled_prior(2, use_rbf_kernel=False))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (ExactGP, {}),
        (ExactGP, {"mean_module": ZeroMean(), "covar_module": own_kernel()}),
        (ExactGP, {"covar_module": RBFKernel()}),
        (WISKI, {"grid_size": 9}),
        (OnlineSGPR, {}),
        (CaGP, {}),
    ],
)
@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
def test_a_family_has_the_same_objective(family: Any, options: dict[str, Any], noise: str) -> None:
    data = rows(20)
    Yvar = None if noise == "learned" else data.R.mT
    scale = {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}
    model = family(data.X, data.Y.mT, Yvar, bounds=BOX, **options, **scale)
    profiled = not isinstance(model.mean_module, ZeroMean)
    coordinates = Coordinates(model, profiled)
    closed = model._prepare_fit(coordinates, profiled)
    assert closed is not None
    slow = AscentObjective(partial(with_priors, model, profiled), coordinates)
    u = coordinates.clip(coordinates.get() - 0.3)
    value, gradient, mean = closed(u)
    expected = slow.evaluate(u)
    assert abs(float(value) - expected.value) < 1e-6 * (1.0 + abs(expected.value))
    assert torch.allclose(gradient, expected.gradient, rtol=1e-5, atol=1e-6)
    assert not profiled or torch.allclose(mean, expected.mean)


def with_priors(model: Any, profiled: bool) -> tuple[Tensor, Tensor | None]:
    value, mean = model._objective(profile_mean=profiled)
    return value + log_prior(model), mean


def test_other_objectives_have_none() -> None:
    """Several outputs, kernels of one's own, fewer actions than data, more data than are held."""
    X, two = rows(30).X, rows(30).X
    known = {"bounds": BOX}
    for model in (
        ExactGP(X, two, **known),
        ExactGP(X, two[:, :1], covar_module=own_kernel() + own_kernel(), **known),
        CaGP(X, two[:, :1], actions={"name": "block_sparse", "num_actions": 10}, **known),
        WISKI(X, two[:, :1], grid_size=9, opening=10, **known),
        WISKI(X, two[:, :1], grid_size=9, covar_module=own_kernel(), **known),
    ):
        assert model._prepare_fit(Coordinates(model, True), True) is None
