"""Functions that a grid may be over, and those that are refused."""

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor, nn

from bo_stream.errors import InputError
from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.projected import LearnedProjection, ProjectedKernel
from bo_stream.testing.base import close
from tests.bo_stream.surrogates.projected_cases import D, build, data, frozen_rows


def test_linear_functions_just_fill_the_unit_cube() -> None:
    h = LearnedProjection(2, D)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * D)
    for phi in (h.start, *h.others(2)):
        Z = h(corners, phi)
        close(torch.stack([Z.amin(0), Z.amax(0)]), torch.tensor([[0.0] * 2, [1.0] * 2]).double())
        close(h(corners, 7.0 * phi), Z, 1e-12)


def test_the_covariance_that_is_learned_from_is_that_of_the_grid() -> None:
    model, X = build(9, outputs=2), data(9)[0]
    for outputs, kernel in ((2, model.covar_module), (1, ScaleKernel(MaternKernel(nu=1.5)))):
        own = ProjectedKernel(kernel.double(), model.grid)
        K = cross_kernel(own, X, X).reshape(outputs, 9, 9)
        nodes = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, g).double() for g in (9, 8)])
        rows = frozen_rows(model, X)
        dense = (rows @ kernel(nodes).to_dense() @ rows.mT).reshape(outputs, 9, 9)
        close(K, dense, 1e-6)
        free = own.phi.detach().clone().requires_grad_()
        weights = torch.randn(9, 9, dtype=torch.float64)

        def total(phi: Tensor, own: Any = own, weights: Tensor = weights) -> Tensor:
            own._parameters["phi"] = phi
            return (cross_kernel(own, X, X) * weights).sum()

        assert torch.autograd.gradcheck(total, free, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (0, "1 to 3"),
        (4, "1 to 3"),
        (2.0, "1 to 3"),
        (True, "1 to 3"),
        (nn.Linear(D, 2), "values from"),
        (nn.Sequential(nn.Linear(D, 4), nn.Sigmoid()), "of shape"),
        (nn.Flatten(0), "of shape"),
    ],
)
def test_projections_that_are_none_are_refused(given: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        build(4, projection=given)


@pytest.mark.parametrize("rate", [-0.1, 1.5, math.nan, "fast"])
def test_rates_that_are_none_are_refused(rate: Any) -> None:
    with pytest.raises(InputError, match="rate"):
        build(4, rate=rate)


def test_a_module_without_parameters_stays_what_it_is() -> None:
    class Ends(nn.Module):
        def forward(self, U: Tensor) -> Tensor:
            return U[..., [0, -1]]

    model = build(12, projection=Ends(), opening=4)
    model.observe(*data(4, seed=1)[:2])
    model.fit(5)
    assert len(model.grid.phi) == 0
    close(model.projected(data(3)[0]), (data(3)[0][:, [0, -1]] + 1.0) / 3.0, 1e-12)
