"""How fine a grid has to be, and fits that see to it."""

import math
import warnings
from typing import Any

import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)

from bo_stream import WISKI, ExactGP, ProjectedWISKI
from bo_stream.errors import GridWarning
from bo_stream.mathematics.grid import Interpolation
from bo_stream.mathematics.grid_evidence import MOST, fitting_sizes, kernel_lengths
from tests.bo_stream.surrogates.refine_cases import BOUNDS, build, data
from tests.calls import failing
from tests.raw import RAW


def rough(n: int, **kw: Any) -> WISKI:
    """A surrogate of a function that nine nodes do not resolve, at lengthscales that say so."""
    model = build(n, **kw)
    model.covar_module.base_kernel.lengthscale = torch.tensor([0.15, 0.6]).double()
    return model


# -- how fine ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (ScaleKernel(RBFKernel(ard_num_dims=2)), [0.3, 1.7]),
        (AdditiveKernel(*(ScaleKernel(RBFKernel(active_dims=[i])) for i in (0, 1))), [0.3, 1.7]),
        (ScaleKernel(RBFKernel(ard_num_dims=2) + ConstantKernel()), [0.3, 1.7]),
        (RBFKernel(active_dims=[1]), [math.inf, 1.7]),
        (MaternKernel(0.5, ard_num_dims=2), [0.5 * 0.3, 0.5 * 1.7]),
        (PeriodicKernel(active_dims=[0]), [0.1507, math.inf]),
    ],
    ids=["RBF", "additive", "with a constant", "of one input", "Matern", "periodic"],
)
def test_lengths_of_kernels(kernel: Any, expected: list[float]) -> None:
    """Where a kernel has fallen as an RBF has after its lengthscale."""
    for module in kernel.modules():
        if isinstance(module, PeriodicKernel):
            module.lengthscale, module.period_length = 1.0, 1.0
        elif getattr(module, "has_lengthscale", False):
            dims = [0, 1] if module.active_dims is None else module.active_dims.tolist()
            module.lengthscale = torch.tensor([0.3, 1.7])[dims]
    widths = torch.tensor([2.0, 1.5]).double()
    lengths = kernel_lengths(kernel.double(), widths, 2)
    torch.testing.assert_close(lengths, torch.tensor(expected).double(), rtol=2e-3, atol=0)


def test_the_shortest_length_over_outputs() -> None:
    kernel = RBFKernel(ard_num_dims=2, batch_shape=torch.Size([2])).double()
    kernel.lengthscale = torch.tensor([[[0.3, 1.7]], [[1.0, 0.4]]]).double()
    lengths = kernel_lengths(kernel, torch.ones(2).double(), 2)
    torch.testing.assert_close(lengths, torch.tensor([0.3, 0.4]).double(), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([0.33, 0.33, 0.33], [10, 10, 10]),
        ([0.1, 0.1, 0.1], [16, 16, 16]),
        ([0.03, 0.03, 0.03], [16, 16, 16]),
        ([0.07, 0.2, 0.25], [23, 10, 10]),
        ([math.inf, math.inf, 0.05], [10, 10, 31]),
        ([math.inf, math.inf, 0.02], [6, 6, 76]),
        ([0.2, 0.2], [30, 30]),
        ([0.02, 0.2], [76, 30]),
        ([0.005], [301]),
        ([1e-6], [4096]),
    ],
)  # fmt: skip
def test_sizes_that_fit(lengths: list[float], sizes: list[int]) -> None:
    """A spacing at most two thirds of each lengthscale, as far as the most nodes allow."""
    ones = torch.ones(len(lengths)).double()
    found = fitting_sizes(ones.new_tensor(lengths), ones)
    assert found == sizes
    assert math.prod(found) <= MOST


def test_a_grid_too_coarse_says_so() -> None:
    model = build(40)
    model.covar_module.base_kernel.lengthscale = 1.0
    assert model.grid_too_coarse is None
    model = rough(40)
    said = model.grid_too_coarse
    assert said is not None and "input 0 is 0.15, and nodes are 0.25 apart" in said
    assert "input 1" not in said
    model.refine()
    assert model.grid.step[0] <= 0.15 / 1.5 and model.grid_too_coarse is None


def test_lost_evidence_says_so() -> None:
    """Lengthscales may look fine, and the kernel's own evidence be far better: small noise."""
    X = data(60)[0]
    model = WISKI(X, (3.0 * X).sin().sum(-1, keepdim=True), bounds=BOUNDS, grid_size=6, **RAW)
    model.covar_module.base_kernel.lengthscale = 0.6
    model.likelihood.noise = 2e-4
    said = model.grid_too_coarse
    assert said is not None and "nats higher" in said and "lengthscale" not in said
    assert model.refine(30).grid_too_coarse is None


def test_a_fit_warns_once() -> None:
    X, Y, _ = data(80, wave=14.0)
    model = WISKI(X, Y, bounds=BOUNDS, grid_size=7, **RAW)
    model.covar_module.base_kernel.lengthscale = 0.1
    with pytest.warns(GridWarning, match=r"too coarse.*too narrow.*Call `refine`") as caught:
        model.fit(2)
    assert caught[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        model.fit(2)


# -- by itself -----------------------------------------------------------------------------------


def auto(n: int, **kw: Any) -> WISKI:
    X, Y, _ = data(n, wave=14.0)
    model = WISKI(X, Y, bounds=BOUNDS, grid_size="auto", **{**RAW, **kw})
    fix(model, [0.05, 0.4])
    return model


def fix(model: WISKI, lengthscale: list[float]) -> None:
    """Lengthscales that a fit leaves as they are."""
    kernel = model.covar_module.base_kernel
    kernel.lengthscale = torch.tensor(lengthscale).double()
    kernel.raw_lengthscale.requires_grad_(False)


def test_a_fit_refines() -> None:
    model = auto(40)
    model.fit(1)
    assert model.grid.sizes[0] > 40 > model.grid.sizes[1]
    assert model.num_observed == 40
    sizes = model.grid.sizes
    fix(model, [0.4, 0.05])
    model.fit(1)
    assert model.grid.sizes == sizes  # at most once for each doubling of the data
    X, Y, _ = data(40, seed=1, wave=14.0)
    model.observe(X, Y)
    fix(model, [0.4, 0.05])
    model.fit(1)
    assert model.grid.sizes[0] < 40 < model.grid.sizes[1]


def test_a_fit_refines_only_while_points_are_held() -> None:
    model = auto(41, opening=40)
    with pytest.warns(GridWarning, match=r"too coarse.*Rebuild it with"):
        model.fit(1)
    assert model.grid.sizes == (30, 30)


def test_a_fit_leaves_a_grid_that_fits() -> None:
    X, Y, _ = data(40)
    model = WISKI(X, Y, bounds=BOUNDS, grid_size="auto", **RAW)
    model.fit()
    assert model.grid.sizes == (30, 30)


def test_a_fit_interrupted_while_it_refines() -> None:
    model = auto(40)
    stop = failing(Interpolation.transpose_times, KeyboardInterrupt())
    with stop, pytest.raises(KeyboardInterrupt):
        model.fit(1)
    assert model.grid.sizes == (30, 30) and model.state.b.shape == (1, 900)
    assert model.log_evidence().isfinite()
    assert model.fit(1).evaluations == 1
    assert model.grid.sizes[0] > 40


# -- precise data ----------------------------------------------------------------------------------


def waves(n: int, seed: int = 0, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * U
    Y = (4.0 * X[:, :1]).sin() + X[:, 1:].square()
    return X, Y + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)


def error(model: Any) -> float:
    Z, truth = waves(200, seed=1)
    return float((model.posterior(Z).mean - truth).square().mean().sqrt())


def test_precise_data_refine_the_grid() -> None:
    """As far as the noise asks: an exact process is hardly better."""
    X, Y = waves(50)
    noise = torch.full_like(Y, 1e-8)
    model = WISKI(X, Y, noise, bounds=BOUNDS, grid_size="auto")
    with warnings.catch_warnings(action="error"):
        model.fit()
    exact = ExactGP(X, Y, noise, bounds=BOUNDS)
    exact.fit()
    assert model.grid.sizes[0] > 40 and model.grid.m <= MOST
    assert model.grid_too_coarse is None
    assert error(model) < 2.0 * error(exact)
    fixed = WISKI(X, Y, noise, bounds=BOUNDS, grid_size=30)
    with pytest.warns(GridWarning, match=r"exact GP's evidence.*Call `refine`"):
        fixed.fit(30)
    assert error(fixed) > 3.0 * error(exact)


def test_lengthscales_shortened_by_a_coarse_grid_say_so() -> None:
    """Where these explain the data, only a kernel with longer ones shows what the grid loses."""
    X, Y = waves(60)
    model = WISKI(X, Y, torch.full_like(Y, 1e-10), bounds=BOUNDS, grid_size=30)
    model.covar_module.base_kernel.lengthscale = torch.tensor([0.1, 0.12])
    said = model.grid_too_coarse
    assert said is not None and "nats higher" in said and "lengthscale" not in said


def test_the_most_nodes_that_do_not_suffice_warn_once() -> None:
    X = waves(150)[0]
    Y = (9.0 * X).sin().sum(-1, keepdim=True)
    model = WISKI(X, Y, torch.full_like(Y, 1e-10), bounds=BOUNDS, grid_size="auto")
    fix(model, [0.12, 0.12])
    with pytest.warns(GridWarning, match=r"nats higher.*Use ExactGP or NodeWISKI"):
        model.fit(10)
    assert MOST // 2 < model.grid.m <= MOST
    with warnings.catch_warnings(action="error"):
        model.fit(10)


@pytest.mark.parametrize("grid_size", ["auto", 20])
def test_noisy_data_need_no_finer_grid(grid_size: Any) -> None:
    X, Y = waves(100, noise=0.1)
    model = WISKI(X, Y, bounds=BOUNDS, grid_size=grid_size)
    before = model.grid.sizes
    with warnings.catch_warnings(action="error", category=GridWarning):
        model.fit()
    assert model.grid.sizes == before


def test_precise_data_refine_a_projected_grid() -> None:
    X, Y = waves(50)
    noise = torch.full_like(Y, 1e-8)
    options: Any = {"bounds": BOUNDS, "projection": 2, "grid_size": "auto"}
    model = ProjectedWISKI(X, Y, noise, **options)
    model.fit(20)
    assert model.grid.m > 900 and model.grid_too_coarse is None
