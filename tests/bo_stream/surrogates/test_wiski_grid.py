"""Which grids WISKI takes and makes, what they interpolate, and which kernels it refuses."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from torch import Tensor

from bo_stream import WISKI, ProjectedWISKI
from bo_stream.errors import (
    BoundsError,
    InputError,
    NoiseError,
    ShapeError,
    StateError,
    UnsupportedError,
)
from bo_stream.testing.base import assert_same_state, snapshot
from tests.bo_stream.surrogates.wiski_oracle import (
    BOUNDS,
    data,
    nodes_for,
    padded_nodes,
)
from tests.raw import RAW


def test_a_grid_given_is_not_one_made_of_the_bounds() -> None:
    """Even of the same nodes: their saved states are told apart."""
    X, Y, _ = data(6, 2, "learned")
    wide = torch.tensor([[-9.0, -9.0], [9.0, 9.0]]).double()
    made = WISKI(X[:0], Y[:0], bounds=wide, grid_size=10, **RAW)
    given = WISKI(X, Y, grid=[torch.linspace(-9.0, 9.0, 10)] * 2, **RAW)
    assert (made.grid.sizes, made.grid.origin) == (given.grid.sizes, given.grid.origin)
    assert made.grid != given.grid
    with pytest.raises(StateError):
        made.load_state_dict(given.state_dict())


def test_default_grids() -> None:
    for d, sizes in ((1, (100,)), (2, (30, 30))):
        X, Y, _ = data(4, d, "learned")
        assert WISKI(X, Y, bounds=BOUNDS[:, :d], **RAW).grid.sizes == sizes


def test_the_grid_covers_the_transformed_bounds() -> None:
    from botorch.models.transforms import Normalize

    X, Y, _ = data(4, 2, "learned")
    model = WISKI(
        X,
        Y,
        bounds=BOUNDS[:, :2],
        grid_size=9,
        input_transform=Normalize(2, bounds=BOUNDS[:, :2]),
        outcome_transform=None,
    )
    for low, step in zip(model.grid.origin, model.grid.step, strict=True):
        assert abs(low) < 1e-12 and abs(low + 8 * step - 1.0) < 1e-12


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bounds": BOUNDS[:, :2], "grid": nodes_for(BOUNDS[:, :2], (9, 8))}, InputError),
        ({}, InputError),
        ({"grid": padded_nodes(BOUNDS[:, :2], (9, 8)), "grid_size": 9}, InputError),
        ({"grid": nodes_for(BOUNDS[:, :2], (9, 8))}, BoundsError),
        ({"grid": nodes_for(BOUNDS[:, :1], (9,))}, ShapeError),
        ({"grid": [torch.tensor([0.0, 1.0, 3.0, 9.0, 12.0])] * 2}, InputError),
        ({"grid": [torch.linspace(1.0, 0.0, 9)] * 2}, InputError),
        ({"grid": [torch.linspace(0.0, 0.1, 9)] * 2}, BoundsError),
        ({"bounds": BOUNDS[:, :2], "grid_size": 3}, InputError),
        ({"bounds": BOUNDS[:, :2], "grid_size": [9, 9, 9]}, InputError),
    ],
    ids=["both", "neither", "grid and size", "not beyond the data", "too few axes", "uneven",
         "falling", "data off it", "too small", "too many sizes"],
)  # fmt: skip
def test_bad_grids(change: dict[str, Any], error: type) -> None:
    X, Y, _ = data(6, 2, "learned")
    with pytest.raises(error, match=r"Expected .*; got .*\. .+"):
        WISKI(X, Y, **{**RAW, **change})


def test_four_dimensions_are_refused() -> None:
    """With the memory it would take, and what to use instead."""
    X, Y = torch.rand(5, 4, dtype=torch.float64), torch.rand(5, 1, dtype=torch.float64)
    bounds = torch.tensor([[0.0] * 4, [1.0] * 4])
    with pytest.raises(UnsupportedError, match=r"GiB.*OnlineSGPR"):
        WISKI(X, Y, bounds=bounds, **RAW)
    grid = [torch.linspace(-1.0, 2.0, 8)] * 4
    with pytest.raises(UnsupportedError, match=r"GiB"):
        WISKI(X, Y, grid=grid, **RAW)


class Squared(RBFKernel):
    """An RBF kernel of the squares of inputs: not stationary, though gpytorch says so."""

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Any:
        return super().forward(x1.square(), x2.square(), **params)


class Growing(Kernel):
    """A kernel whose variance rises along the first input, with RBF correlations."""

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        left, right = 1.0 + 0.02 * x1[..., 0], 1.0 + 0.02 * x2[..., 0]
        distance = self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag=diag)
        scale = left * right if diag else left.unsqueeze(-1) * right.unsqueeze(-2)
        return scale * (-0.5 * distance.square()).exp()


@pytest.mark.parametrize(
    "kernel", [LinearKernel(), PolynomialKernel(2), Squared(), Growing()], ids=type
)
def test_kernels_that_are_not_stationary_are_refused(kernel: Kernel) -> None:
    X, Y, _ = data(6, 2, "learned")
    for k in (kernel, ScaleKernel(kernel), RBFKernel() + kernel, RBFKernel() * kernel):
        with pytest.raises(UnsupportedError, match="stationary .* Use ExactGP or NodeWISKI"):
            WISKI(X, Y, bounds=BOUNDS[:, :2], grid_size=8, covar_module=k, **RAW)
        with pytest.raises(UnsupportedError, match="stationary"):
            ProjectedWISKI(X, Y, bounds=BOUNDS[:, :2], grid_size=8, covar_module=k, **RAW)


def spectral_mixture() -> Kernel:
    kernel = SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)
    kernel.mixture_means = torch.tensor([[[0.3, 1.0]], [[1.5, 0.2]]])
    kernel.mixture_scales = torch.tensor([[[0.4, 0.6]], [[0.5, 0.3]]])
    return kernel


STATIONARY = {
    "Matern": lambda: MaternKernel(1.5, ard_num_dims=2),
    "rational quadratic": RQKernel,
    "spectral mixture": spectral_mixture,
    "periodic, a period for each input": lambda: PeriodicKernel(ard_num_dims=2),
    "of one input": lambda: ScaleKernel(MaternKernel(active_dims=[1])),
    "sum over inputs": lambda: RBFKernel(active_dims=[0]) + MaternKernel(active_dims=[1]),
    "product over inputs": lambda: RBFKernel(active_dims=[0]) * PeriodicKernel(active_dims=[1]),
    "product with one of all inputs": lambda: MaternKernel() * RBFKernel(active_dims=[1]),
    "subclass": lambda: type("Mine", (RBFKernel,), {})(),
}


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("place", [0.0, 1e5])
def test_the_prior_at_the_nodes_is_the_kernels(name: str, place: float) -> None:
    kernel = STATIONARY[name]().double()
    bounds = torch.tensor([[place, -1.0], [place + 2.0, 1.0]], dtype=torch.float64)
    nothing = torch.empty(0, 2, dtype=torch.float64), torch.empty(0, 1, dtype=torch.float64)
    model = WISKI(*nothing, bounds=bounds, grid_size=[7, 5], covar_module=kernel, **RAW)
    axes = [torch.linspace(*b, n, dtype=b.dtype) for b, n in zip(bounds.T, (7, 5), strict=True)]
    nodes = torch.cartesian_prod(*axes)
    prior = model.posterior(nodes).distribution.covariance_matrix
    assert torch.allclose(prior, kernel(nodes).to_dense(), atol=1e-6)


def test_a_posterior_off_the_users_grid_is_refused() -> None:
    X, Y, _ = data(6, 2, "learned")
    model = WISKI(X, Y, grid=padded_nodes(BOUNDS[:, :2], (9, 8)), **RAW)
    before = snapshot(model)
    with pytest.raises(BoundsError):
        model.observe(X + 5.0, Y)
    with pytest.raises(BoundsError):
        model.posterior(X + 5.0)
    assert all(
        torch.equal(v, before[k]) for k, v in model.state_dict().items() if k != "_extra_state"
    )


def test_a_sum_with_a_constant_is_stationary() -> None:
    X, Y, _ = data(12, 2, "learned")
    kernel = ScaleKernel(ConstantKernel() + RBFKernel(ard_num_dims=2))
    model = WISKI(X, Y, bounds=BOUNDS[:, :2], grid_size=12, covar_module=kernel, **RAW)
    assert model.fit().value > -100.0
    with pytest.raises(UnsupportedError, match="stationary"):
        WISKI(X, Y, bounds=BOUNDS[:, :2], covar_module=LinearKernel() + RBFKernel(), **RAW)


def test_noise_that_would_drown_all_other_data_is_refused_beforehand() -> None:
    """In sums of float64 such a weight would leave nothing of the rest, for good."""
    X, Y, Yvar = data(12, 2, "known")
    model = WISKI(X, Y, Yvar, bounds=BOUNDS[:, :2], grid_size=10, **RAW)
    before = snapshot(model)
    with pytest.raises(NoiseError, match="prior variance"):
        model.observe(X[:1], Y[:1], torch.full_like(Y[:1], 1e-18))
    assert_same_state(before, snapshot(model))
    model.observe(X[:1], Y[:1], torch.full_like(Y[:1], 1e-9))
    assert (model.posterior(X[:1]).mean - Y[:1]).abs() < 1e-3
