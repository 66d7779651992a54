"""Posteriors in numpy beside `posterior` and autograd, for every family that has them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models.transforms.input import InputStandardize, Log10, Normalize
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor, nn

from bo_stream import (
    HSGP,
    SVDGP,
    WISKI,
    CaGP,
    ExactGP,
    NodeWISKI,
    OnlineSGPR,
    ProjectedWISKI,
    TrustRegionGP,
    WarpedGP,
)
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.mathematics.process import ConditionedProcess

BOX = [-0.5, 2.5]
Make = Callable[..., StreamingGP]


def data(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points of the box, and noisy values in hundreds."""
    generator = torch.Generator().manual_seed(seed)
    X = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(n, d, dtype=torch.float64, generator=generator)
    noise = 0.1 * torch.randn(n, 1, dtype=torch.float64, generator=generator)
    return X, 300.0 + 200.0 * ((2.0 * X).sin().sum(-1, keepdim=True) + noise)


def box(d: int) -> Tensor:
    return torch.tensor(BOX, dtype=torch.float64).unsqueeze(-1).expand(2, d)


def matern(nu: float, d: int = 2) -> Kernel:
    return ScaleKernel(MaternKernel(nu, ard_num_dims=d))


def compressed(*args: Any, **kwargs: Any) -> CaGP:
    return CaGP(*args, **kwargs, actions={"name": "BlockSparse", "num_actions": 15})


def of_few_rows(*args: Any, **kwargs: Any) -> SVDGP:
    return SVDGP(*args, **kwargs, window=20, covar_basis=10, slack=5)


class Halves(nn.Module):
    """A projection that is not linear."""

    def forward(self, U: Tensor) -> Tensor:
        return U[:, :1].square()


# family, number of inputs, number of points, options
CASES: dict[str, tuple[Make, int, int, dict[str, Any]]] = {
    "wiski: few data": (WISKI, 2, 40, {}),
    "wiski: few data on an axis": (WISKI, 1, 30, {"covar_module": matern(2.5, 1)}),
    "wiski: few data, nodes beyond": (
        WISKI,
        1,
        30,
        {"bounds": None, "grid": [torch.linspace(-2.0, 4.0, 30)], "input_transform": None},
    ),
    "wiski: few data, no product": (
        WISKI,
        2,
        30,
        {"grid_size": [9, 8], "covar_module": matern(2.5)},
    ),
    "wiski: eigenfeatures": (WISKI, 2, 400, {"grid_size": 12}),
    "wiski: eigenfeatures, few of many": (WISKI, 3, 400, {"grid_size": [9, 8, 10]}),
    "wiski: values at nodes": (WISKI, 2, 60, {"grid_size": [6, 7], "covar_module": matern(1.5)}),
    "wiski: values at nodes of a cube": (
        WISKI,
        3,
        120,
        {"grid_size": [4, 5, 6], "covar_module": matern(2.5, 3)},
    ),
    "projected": (ProjectedWISKI, 4, 60, {"projection": 2, "grid_size": 8}),
    "projected to an axis": (ProjectedWISKI, 3, 60, {"projection": 1}),
    "hsgp": (HSGP, 1, 40, {}),
    "hsgp with main effects": (HSGP, 3, 60, {"num_features": 60}),
    "hsgp of many inputs": (HSGP, 5, 60, {"num_features": 80}),
    "exact": (ExactGP, 2, 40, {}),
    "exact without units": (ExactGP, 3, 30, {"bounds": None, "outcome_transform": None}),
    "exact, standardised inputs": (ExactGP, 2, 30, {"input_transform": InputStandardize(2)}),
    "exact, precise": (ExactGP, 2, 30, {"noise": 1e-6}),
    "exact, nu = 1/2": (ExactGP, 2, 40, {"covar_module": matern(0.5)}),
    "exact, nu = 3/2": (ExactGP, 2, 40, {"covar_module": MaternKernel(1.5)}),
    "exact, nu = 5/2": (ExactGP, 2, 40, {"covar_module": matern(2.5)}),
    "nodes": (NodeWISKI, 2, 60, {"cap": 30}),
    "sgpr": (OnlineSGPR, 2, 60, {}),
    "cagp": (CaGP, 2, 40, {}),
    "cagp, compressed": (compressed, 2, 60, {}),
    "svdgp": (SVDGP, 2, 60, {}),
    "svdgp, folded": (of_few_rows, 2, 60, {}),
    "trust region": (TrustRegionGP, 3, 40, {}),
    "warped, not yet": (WarpedGP, 2, 30, {}),
}
TOLERANCE = {"sgpr": 1e-7, "exact, nu = 1/2": 1e-7, "exact, precise": 1e-8}
"""gpytorch's kernel with nu = 1/2 has errors of 1e-8 at equal points."""


def built(case: str) -> StreamingGP:
    make, d, n, options = CASES[case]
    X, Y = data(n, d, 1)
    torch.manual_seed(0)
    options = {"bounds": box(d), **options}
    noise = options.pop("noise", None)
    model = make(X, Y, None if noise is None else torch.full_like(Y, noise * 4e4), **options)
    return model


def relative(found: Any, expected: Tensor) -> float:
    wanted = expected.detach().numpy()
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-12))


def agree(model: GaussianModel, d: int, within: float) -> None:
    """Values and gradients of everything."""
    process = model.expanded()
    assert process is not None
    X, T = (data(size, d, seed)[0] for size, seed in ((12, 5), (20, 6)))
    X = X.reshape(4, 3, d).requires_grad_()
    weights = torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
    whole = model.posterior(torch.cat([X, T.expand(4, 20, d)], -2))
    full = whole.distribution.covariance_matrix
    mean, covariance, across = whole.mean[:, :3, 0], full[:, :3, :3], full[:, :3, 3:]
    summed = (across * weights) @ across.mT
    torch.manual_seed(7)
    bars = [torch.randn(part.shape, dtype=torch.float64) for part in (mean, covariance, summed)]
    (slope,) = torch.autograd.grad((mean, covariance, summed), X, bars)
    sums = process.sums_over(T.numpy(), weights.numpy())
    found = process.moments(X.detach().numpy(), sums=sums)
    assert relative(found.mean, mean) < within
    assert relative(found.covariance, covariance) < within
    assert found.sums is not None and relative(found.sums, summed) < within
    assert relative(found.pull(*(bar.numpy() for bar in bars)), slope) < within
    plain = process.moments(X.detach().numpy()[:, :1])
    assert plain.sums is None
    np.testing.assert_allclose(
        plain.covariance, found.covariance[:, :1, :1], 0.0, within * found.covariance.max()
    )
    points = X.detach().reshape(12, d)
    joint, (means, variances) = model.posterior(points), process.marginals(points.numpy())
    assert relative(means, joint.mean[:, 0]) < within
    assert relative(variances, joint.variance[:, 0]) < 1e-3
    together = process.moments(points.numpy()[None])
    assert relative(together.mean[0], joint.mean[:, 0]) < within
    assert relative(together.covariance[0], joint.distribution.covariance_matrix) < within


@pytest.mark.parametrize("case", CASES)
def test_moments_and_gradients_are_those_of_the_posterior(case: str) -> None:
    """Before and after data, after another value of a hyperparameter, and given more data."""
    d, model, within = CASES[case][1], built(case), TOLERANCE.get(case, 1e-9)
    refit = {"refit": False} if isinstance(model, OnlineSGPR) else {}
    agree(model, d, within)
    for size, seed in ((3, 2), (1, 3)):
        X, Y = data(size, d, seed)
        known = None if model.noise_mode == "learned" else torch.full_like(Y, 4.0)
        model.observe(X, Y, known, **refit)
        agree(model, d, within)
    for part in model.covar_module.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = 0.8 * part.lengthscale.detach()
    agree(model, d, within)
    X, Y = data(2, d, 4)
    agree(model.condition_on_observations(X, Y), d, within)


@pytest.mark.parametrize("case", ["wiski: few data", "hsgp", "exact", "nodes"])
def test_data_change_what_is_kept_and_no_more(case: str) -> None:
    """The process before them, with its tables, serves until hyperparameters change."""
    d, model = CASES[case][1], built(case)
    before, first = model.process(), model.expanded()
    model.observe(*data(2, d, 2))
    process, second = model.process(), model.expanded()
    assert first is not None and second is not None and second is not first
    if case != "nodes":  # at its cap
        assert isinstance(process, ConditionedProcess) and process.base is before
        assert process.base.expansion is first.process
    model.likelihood.noise = 2.0 * model.likelihood.noise.detach()
    third = model.expanded()
    assert third is not None and third is not second


@pytest.mark.parametrize("case", CASES)
def test_units_are_lengthscales_in_the_box(case: str) -> None:
    _, d, _, options = CASES[case]
    process = built(case).expanded()
    assert process is not None and process.unit.shape == (d,) and (process.unit > 0.0).all()
    if options.get("bounds", 0) is not None:
        assert (process.unit <= BOX[1] - BOX[0]).all()


def test_units_are_raw_lengths() -> None:
    kernel = RBFKernel(ard_num_dims=2)
    kernel.lengthscale = torch.tensor([[0.2, 7.0]])
    process = ExactGP(*data(9, 2, 1), covar_module=kernel, bounds=box(2)).expanded()
    assert process is not None
    np.testing.assert_allclose(process.unit, [0.6, 3.0], rtol=1e-6)
    parts = [MaternKernel(2.5, active_dims=(k,)) for k in range(2)]
    parts[1].lengthscale = 0.1
    product = WISKI(*data(9, 2, 1), covar_module=parts[0] * parts[1], bounds=box(2)).expanded()
    assert product is not None
    np.testing.assert_allclose(product.unit, [3.0 * math.log(2.0), 0.3], rtol=1e-6)


def test_one_of_several_outcomes() -> None:
    X, Y = data(30, 2, 1)
    for make in (WISKI, HSGP, ExactGP, NodeWISKI):
        model = make(X, torch.cat([Y, Y.flip(0)], -1), bounds=box(2))
        assert model.expanded() is None
        agree(model.subset_output([1]), 2, 1e-9)


def test_without_data() -> None:
    X, Y = data(0, 2, 1)
    for make in (WISKI, HSGP, ExactGP, NodeWISKI, OnlineSGPR, CaGP, SVDGP):
        agree(make(X, Y, bounds=box(2)), 2, 1e-9)


def test_none_where_there_is_no_closed_form() -> None:
    X, Y = data(30, 2, 1)
    logs = Log10([0]), torch.tensor([[0.1, -0.5], [2.5, 2.5]], dtype=torch.float64)
    warped = WarpedGP(X, -(6.0 * (X - 1.0).square().sum(-1, keepdim=True)).exp(), bounds=box(2))
    warped.fit()
    assert warped.is_warped
    models = [
        ExactGP(X, Y, covar_module=PeriodicKernel()),
        ExactGP(X, Y, input_transform=Normalize(2, indices=[0], bounds=box(2))),
        ExactGP(X.clamp_min(0.1), Y, input_transform=logs[0], bounds=logs[1]),
        ProjectedWISKI(X, Y, bounds=box(2), projection=Halves(), grid_size=8),
        WarpedGP(X.round(), Y, bounds=box(2), cat_dims=[0]),
        warped,
    ]
    for model in models:
        assert model.expanded() is None
    model = ExactGP(X, Y, bounds=box(2))
    fantasies = model.condition_on_observations(X[:2], Y[:2].expand(3, 2, 1))
    assert fantasies.expanded() is None
