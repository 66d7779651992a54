"""WISKI against dense algebra: the SKI prior W K W' written out, and nothing of the package's."""

import copy
import itertools
from typing import Any

import pytest
import torch
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Size, Tensor

from bo_stream import WISKI
from bo_stream.mathematics.process import ConditionedProcess
from bo_stream.testing.base import assert_same_posterior, close
from bo_stream.testing.oracles import DenseGP
from tests.bo_stream.surrogates.wiski_oracle import (
    BOUNDS,
    SIZES,
    build,
    data,
    dense_rows,
    folded_row,
    keys_row,
    nodes_for,
    padded_nodes,
    points,
)
from tests.raw import RAW

GOLDEN = 1e-6  # relative to 1 + |value|, for noise of at least a tenth of the amplitude


def ski(
    kernel: Kernel, axes: list[Tensor], output: int | None = None, row_of: Any = folded_row
) -> Any:
    """The prior ``k(x, z) = w_x' K w_z``."""
    U = torch.cartesian_prod(*axes).reshape(-1, len(axes))

    def covariance(X: Tensor, Z: Tensor) -> Tensor:
        K = kernel(U).to_dense()
        K = K[output] if output is not None and K.ndim == 3 else K
        return dense_rows(X, axes, row_of) @ K @ dense_rows(Z, axes, row_of).T

    return covariance


def oracle(model: WISKI, X: Tensor, Y: Tensor, Yvar: Tensor | None, o: int = 0) -> DenseGP:
    """The dense GP of one output, with the model's own hyperparameters (differentiable)."""
    axes = nodes_for(BOUNDS[:, : X.shape[1]], SIZES[X.shape[1]])
    batched = model.num_outputs > 1
    noise: Any = torch.ones(())
    if model.noise_mode != "known":
        noise = model.likelihood.noise.reshape(-1).expand(model.num_outputs)[o]
    if Yvar is not None:
        noise = noise * Yvar[:, o]
    mean = torch.zeros(())
    if not isinstance(model.mean_module, ZeroMean):
        mean = model.mean_module.constant.reshape(-1).expand(model.num_outputs)[o]
    covariance = ski(model.covar_module, axes, o if batched else None)
    return DenseGP(covariance, X, Y[:, o], noise, mean.double())


# -- cases ---------------------------------------------------------------------------------------


KERNELS: dict[str, Any] = {
    "RBF": lambda d: RBFKernel(),
    "scaled ARD RBF": lambda d: ScaleKernel(RBFKernel(ard_num_dims=d)),
    "Matern 1/2": lambda d: MaternKernel(nu=0.5),
    "scaled ARD Matern 3/2": lambda d: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=d)),
    "scaled ARD Matern 5/2": lambda d: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=d)),
    "scaled periodic": lambda d: ScaleKernel(PeriodicKernel(ard_num_dims=d)),
    "scaled rational quadratic": lambda d: ScaleKernel(RQKernel(ard_num_dims=d)),
    "piecewise polynomial": lambda d: ScaleKernel(PiecewisePolynomialKernel(q=2)),
    "product": lambda d: ScaleKernel(
        ProductKernel(*(MaternKernel(nu=2.5, active_dims=[i]) for i in range(d)))
    ),
    "product of scaled": lambda d: ProductKernel(
        ScaleKernel(RBFKernel(ard_num_dims=d)), ScaleKernel(PeriodicKernel())
    ),
    "additive": lambda d: AdditiveKernel(
        ScaleKernel(RBFKernel(ard_num_dims=d)),
        *(ScaleKernel(MaternKernel(nu=1.5, active_dims=[i])) for i in range(d)),
    ),
    "scaled additive": lambda d: ScaleKernel(
        AdditiveKernel(*(RBFKernel(active_dims=[i]) for i in range(d)))
    ),
}
QUICK = [(2, "scaled ARD RBF", noise) for noise in ("learned", "known", "scaled")]
QUICK += [(2, name, "learned") for name in ("scaled ARD Matern 5/2", "product of scaled")]
QUICK += [(d, name, "known") for d in (1, 3) for name in ("scaled ARD RBF", "additive")]
NOISES = ("learned", "known", "scaled")

CASES = [
    pytest.param(
        d,
        name,
        noise,
        id=f"{d}-D, {name}, {noise}",
        marks=[] if (d, name, noise) in QUICK else [pytest.mark.slow],
    )
    for d, name, noise in itertools.product((1, 2, 3), KERNELS, NOISES)
]


@pytest.fixture(params=["held", "statistics"])
def opening(request: Any) -> dict[str, int]:
    """All points held, or none: then evidence and posterior come from the statistics alone."""
    return {} if request.param == "held" else {"opening": 0}


@pytest.mark.parametrize(("d", "name", "noise"), CASES)
def test_golden(d: int, name: str, noise: str, opening: dict[str, int]) -> None:
    """Mean, covariance, evidence, its gradients and fantasies are those of the dense SKI GP."""
    model, X, Y, Yvar = build(d, KERNELS[name](d), noise, **opening)
    dense = oracle(model, X, Y, Yvar)
    Z = points(9, d, 7)
    mean, cov = dense.posterior(Z)
    posterior = model.posterior(Z)
    close(posterior.mean[:, 0], mean, GOLDEN)
    close(posterior.distribution.covariance_matrix, cov, GOLDEN)

    value, expected = model.log_evidence(), dense.evidence()
    assert value.shape == ()
    close(value, expected, GOLDEN)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for mine, theirs in zip(
        torch.autograd.grad(value, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        close(mine, theirs, GOLDEN)

    sampler = SobolQMCNormalSampler(Size([3]), seed=1)
    given, Y_f = (
        model.fantasize(Z[:2], sampler),
        sampler(model.posterior(Z[:2], observation_noise=True)),
    )
    typical = (model.posterior(Z[:1], observation_noise=True).variance - posterior.variance[:1])[0]
    with_fantasies = DenseGP(
        dense.covariance,
        torch.cat([X, Z[:2]]),
        torch.cat([Y[:, 0], Y_f[1, :, 0]]),
        torch.cat([dense.noise.expand(len(X)), typical.expand(2)]),
        dense.mean,
    )
    mean, cov = with_fantasies.posterior(Z)
    close(given.posterior(Z).mean[1, :, 0], mean, GOLDEN)
    close(given.posterior(Z).distribution.covariance_matrix[1], cov, GOLDEN)


@pytest.mark.parametrize("level", [1e-2, 1e-3, 1e-4])
def test_small_noise(level: float, opening: dict[str, int]) -> None:
    """Below a tenth of the amplitude: 1e-4."""
    model, X, Y, Yvar = build(2, KERNELS["scaled ARD RBF"](2), "learned", **opening)
    model.likelihood.noise = max(level, 1.001e-4)
    dense = oracle(model, X, Y, Yvar)
    Z = points(9, 2, 7)
    mean, cov = dense.posterior(Z)
    close(model.posterior(Z).mean[:, 0], mean, 1e-4)
    close(model.posterior(Z).distribution.covariance_matrix, cov, 1e-4)
    close(model.log_evidence(), dense.evidence(), 1e-4)


@pytest.mark.parametrize("name", ["scaled ARD RBF", "scaled ARD Matern 5/2"])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.05, 50.0])
def test_extreme_lengthscales(name: str, lengthscale: float) -> None:
    """A kernel matrix that is diagonal, or numerically of rank one; no subnormal numbers."""
    model, X, Y, Yvar = build(2, KERNELS[name](2), "learned")
    model.covar_module.base_kernel.lengthscale = lengthscale
    dense = oracle(model, X, Y, Yvar)
    Z = points(9, 2, 7)
    mean, cov = dense.posterior(Z)
    close(model.posterior(Z).mean[:, 0], mean, GOLDEN)
    close(model.posterior(Z).distribution.covariance_matrix, cov, GOLDEN)
    close(model.log_evidence(), dense.evidence(), GOLDEN)
    model.log_evidence().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    process = model.process()
    for S in vars(process).values():
        assert not torch.is_tensor(S) or not ((S != 0) & (S.abs() < 1e-300)).any()


def test_profiled_mean() -> None:
    """A fit writes the closed-form optimum of the constant mean: the evidence is flat there."""
    model, X, Y, Yvar = build(2, KERNELS["scaled ARD RBF"](2), "learned")
    model.fit()
    (slope,) = torch.autograd.grad(model.log_evidence(), model.mean_module.raw_constant)
    assert abs(float(slope)) < 1e-8
    (slope,) = torch.autograd.grad(
        oracle(model, X, Y, Yvar).evidence(), model.mean_module.raw_constant
    )
    assert abs(float(slope)) < 1e-5


def test_zero_mean() -> None:
    model, X, Y, Yvar = build(2, None, "learned", mean_module=ZeroMean())
    close(model.log_evidence(), oracle(model, X, Y, Yvar).evidence(), GOLDEN)


@pytest.mark.parametrize("noise", NOISES)
def test_no_data(noise: str) -> None:
    """Nothing seen: the SKI prior, and an evidence of one."""
    model, X, Y, Yvar = build(2, None, noise)
    empty = WISKI(
        X[:0],
        Y[:0],
        None if Yvar is None else Yvar[:0],
        bounds=BOUNDS[:, :2],
        grid_size=SIZES[2],
        likelihood=None if noise == "known" else GaussianLikelihood(),
        **RAW,
    )
    Z = points(9, 2, 7)
    prior = ski(empty.covar_module, nodes_for(BOUNDS[:, :2], SIZES[2]))(Z, Z)
    close(empty.posterior(Z).distribution.covariance_matrix, prior, GOLDEN)
    assert abs(empty.log_evidence().item()) < 1e-9
    assert empty.fit().evaluations >= 1


@pytest.mark.parametrize("noise", NOISES)
def test_a_conditioned_posterior_is_a_rebuild(noise: str) -> None:
    """Posteriors conditioned on new points, against those built from the statistics."""
    model, *_ = build(2, None, noise, n=5)
    Z = points(9, 2, 7)
    rebuilt, most = copy.deepcopy(model), 0
    for seed, count in enumerate([1, 3, 1, 7, 1, 30, 2, 1, 1, 3] * 3, start=10):
        batch = data(count, 2, noise, seed=seed)
        model.posterior(Z)
        model.observe(*batch)
        rebuilt.observe(*batch)
        process = model.process()
        most = max(most, len(process.X) if isinstance(process, ConditionedProcess) else 0)
    assert 30 < most <= WISKI.conditions_up_to
    rebuilt.refresh()
    assert_same_posterior(model, rebuilt, Z, 1e-9)


@pytest.mark.parametrize("noise", ["learned", "known"])
def test_an_offset_costs_no_digits(noise: str, opening: dict[str, int]) -> None:
    """Sums are taken about the first batch's mean, also across a merge."""
    offset = float(2**20)  # exact in binary: both models see the same residuals
    values = []
    for far in (0.0, offset):
        X, Y, Yvar = data(20, 2, noise)
        Y = (2.0**24 * Y).round() / 2.0**24 + far
        kw: Any = {"bounds": BOUNDS[:, :2], "grid_size": SIZES[2], **opening}
        parts = [
            WISKI(X[i], Y[i], None if Yvar is None else Yvar[i], **{**RAW, **kw})
            for i in (slice(0, 8), slice(8, 20))
        ]
        model = parts[0].merge(parts[1])
        model.mean_module.constant = 0.5 + far
        dist = model.posterior(points(6, 2, 7))
        values.append((model.log_evidence(), dist.mean - far, dist.variance))
        model.fit(3)
        values[-1] += (model.mean_module.constant - far,)
    for near, away in zip(*values, strict=True):
        close(away, near, 1e-8)


# -- the grid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_grid_argument(d: int, opening: dict[str, int]) -> None:
    """Nodes given one by one are not folded: Keys' own weights, with nodes beyond the points."""
    X, Y, _ = data(15, d, "learned")
    axes, kernel = padded_nodes(BOUNDS[:, :d], SIZES[d]), KERNELS["scaled ARD RBF"](d)
    model = WISKI(X, Y, grid=axes, covar_module=kernel, **{**RAW, **opening})
    assert model.grid.sizes == SIZES[d] and not model.grid.folded
    covariance, Z = ski(kernel, axes, row_of=keys_row), points(9, d, 7)
    dense = DenseGP(covariance, X, Y[:, 0], model.likelihood.noise, torch.zeros(()).double())
    mean, cov = dense.posterior(Z)
    close(model.posterior(Z).mean[:, 0], mean, GOLDEN)
    close(model.posterior(Z).distribution.covariance_matrix, cov, GOLDEN)
    close(model.log_evidence(), dense.evidence(), GOLDEN)
