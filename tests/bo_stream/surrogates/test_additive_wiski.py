"""A sum of grids: its law by dense algebra, its groups, and what is refused."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream import WISKI, AdditiveWISKI, DirichletClassifier, load
from bo_stream.errors import (
    BoundsError,
    GridWarning,
    InputError,
    NoiseError,
    StateError,
    UnsupportedError,
)
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.testing.base import assert_same_law, close
from bo_stream.testing.oracles import DenseGP, difference_quotient
from tests.raw import RAW

D = 5
BOUNDS = torch.stack([torch.full((D,), -1.0), torch.arange(1.0, 6.0)]).double()
GROUPS = [[3], [0, 2], [4, 1, 2]]
SIZE = 6


def data(n: int, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, D, generator=generator, dtype=torch.float64)
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * U
    Y = (X.cos().sum(-1, keepdim=True) + torch.arange(outputs)).double() + 0.5
    Y = Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.01 + 0.02 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def kernel() -> AdditiveKernel:
    """Three parts, no two alike."""
    parts = [
        ScaleKernel(RBFKernel(active_dims=(3,))),
        ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2, active_dims=(0, 2))),
        ScaleKernel(RBFKernel(ard_num_dims=3, active_dims=(4, 1, 2))),
    ]
    made = AdditiveKernel(*parts).double()
    for i, p in enumerate(made.parameters()):
        p.data.add_(0.2 * (i + 1))
    return made


def build(n: int, mode: str = "learned", seed: int = 0, outputs: int = 1, **kw: Any) -> Any:
    X, Y, Yvar = data(n, seed, outputs)
    likelihood = GaussianLikelihood() if mode == "scaled" else None
    kw = {"grid_size": SIZE, "bounds": BOUNDS, "likelihood": likelihood, **RAW, **kw}
    kw.setdefault("covar_module", kernel())
    model = AdditiveWISKI(X, Y, None if mode == "learned" else Yvar, **kw)
    model.mean_module.constant.data.fill_(0.3)
    if mode != "known":
        model.likelihood.noise = 0.02 if mode == "learned" else 1.3
    return model


def covariance(X: Tensor, Z: Tensor) -> Tensor:
    """``sum_g W_g K_g W_g'``, each group interpolated and its kernel evaluated on its own."""
    total = torch.zeros(len(X), len(Z)).double()
    for group, part in zip(GROUPS, kernel().kernels, strict=True):
        low, high = BOUNDS[:, group]
        axes = [torch.linspace(a, b, SIZE).double() for a, b in zip(low, high, strict=True)]
        nodes = torch.zeros(SIZE ** len(group), D).double()
        nodes[:, group] = torch.cartesian_prod(*axes).reshape(-1, len(group))
        grid = Grid.covering(BOUNDS[:, group], SIZE)
        W, V = (grid.interpolate(P[:, group]).dense(grid.m) for P in (X, Z))
        total += W @ part(nodes).to_dense().detach() @ V.mT
    return total


@pytest.mark.parametrize("mode", ["learned", "known", "scaled"])
def test_equals_a_dense_gp_of_its_prior(mode: str) -> None:
    model, (X, Y, Yvar), Z = build(40, mode), data(40), data(7, seed=5)[0]
    scale = torch.ones(()) if mode == "known" else model.likelihood.noise.detach()
    D = scale * (torch.ones(40).double() if mode == "learned" else Yvar[:, 0])
    dense = DenseGP(covariance, X, Y[:, 0], D, torch.tensor(0.3).double())
    assert model.groups == GROUPS
    close(model.log_evidence(), dense.evidence(), 1e-6)
    mean, cov = dense.posterior(Z)
    close(model.posterior(Z).mean[:, 0], mean, 1e-6)
    close(model.posterior(Z).distribution.covariance_matrix, cov, 1e-6)
    assert (mean - Y.mean()).abs().max() > 0.1


def test_gradients() -> None:
    model = build(30, "scaled")
    gradients = torch.autograd.grad(model.log_evidence(), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        kept = parameter.data.clone()

        def at(x: Tensor, parameter: Any = parameter) -> Tensor:
            parameter.data = x.clone()
            return model.log_evidence().detach()

        close(gradient, difference_quotient(at, kept), 2e-6)
        parameter.data = kept


def test_the_best_mean() -> None:
    """A row of W sums to the number of groups: a constant is still told."""
    model = build(30)
    value, best = model._objective(profile_mean=True)
    model.mean_module.constant = best
    close(model.log_evidence(), value)
    (slope,) = torch.autograd.grad(model.log_evidence(), [model.mean_module.raw_constant])
    assert abs(float(slope)) < 1e-7


def test_far_outcomes() -> None:
    """Sums are taken about the first batch's mean."""
    X, Y, _ = data(40)
    near, far = build(40), build(0)
    far.mean_module.constant.data.fill_(1e6 + 0.3)
    far.observe(X, Y + 1e6)
    assert float(far.held().origin) > 1e5
    close(far.log_evidence(), near.log_evidence(), 1e-5)
    far = build(0).merge(far)
    far.mean_module.constant.data.fill_(1e6 + 0.3)
    assert float(far.held().origin) > 1e5
    Z = data(7, seed=5)[0]
    close(far.posterior(Z).mean - 1e6, near.posterior(Z).mean, 1e-6)


def test_one_group_is_a_wiski() -> None:
    """The same surrogate where all inputs are one group."""
    X, Y, Yvar = (t[:, :3] if t.shape[1] == D else t for t in data(60))
    options = {"bounds": BOUNDS[:, :3], "grid_size": SIZE, **RAW}
    one = AdditiveWISKI(X, Y, Yvar, groups=[[0, 1, 2]], **options)
    whole = WISKI(X, Y, Yvar, **options)
    one.covar_module.kernels[0].outputscale = whole.covar_module.outputscale.detach()
    close(one.log_evidence(), whole.log_evidence(), 1e-6)
    assert_same_law(one, whole, X[:5], 1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_streams_merge_and_order_does_not_matter(outputs: int) -> None:
    kw: dict[str, Any] = {"covar_module": None, "groups": GROUPS, "outputs": outputs}
    X, Y, Yvar = data(90, outputs=outputs)
    whole, parts = build(90, "known", **kw), [build(0, "known", **kw) for _ in range(3)]
    order = torch.randperm(90, generator=torch.Generator().manual_seed(1))
    for part, rows in zip(parts, order.split(30), strict=True):
        for few in rows.split(7):
            part.observe(X[few], Y[few], Yvar[few])
    merged = parts[0].merge(parts[1]).merge(parts[2])
    close(merged.log_evidence(), whole.log_evidence())
    assert_same_law(merged, whole, X[:5])


def test_streams_of_other_groups_do_not_merge() -> None:
    one, other = build(20), build(20, covar_module=None, groups=[[0], [1]])
    with pytest.raises(StateError, match="groups"):
        one.merge(other)


def test_a_checkpoint_brings_the_groups_back(tmp_path: Any) -> None:
    for model in (build(20), build(20, covar_module=None, groups=GROUPS)):
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert again.groups == GROUPS
        assert torch.equal(again.log_evidence(), model.log_evidence())


def test_left_out_every_input_is_a_group() -> None:
    model = build(30, covar_module=None, grid_size=None)
    assert model.groups == [[k] for k in range(D)]
    assert [grid.sizes for grid in model.held().groups.grids] == [(30,)] * D
    Z = data(2, seed=4)[0]
    ends = torch.stack([Z[0], Z[1], *(torch.where(torch.arange(D) == k, *Z) for k in range(D))])
    mean = model.posterior(ends).mean[:, 0]
    close(mean[2:].sum(), mean[0] + (D - 1) * mean[1], 1e-7)  # a sum of functions of one input


def test_a_kernel_says_its_groups() -> None:
    for part, groups in (
        (PeriodicKernel(active_dims=(1,)) * RBFKernel(active_dims=(4,)), [[1, 4]]),
        (ScaleKernel(RBFKernel(active_dims=(2,))) + RBFKernel(active_dims=(0, 1)), [[2], [0, 1]]),
    ):
        assert build(10, covar_module=part.double()).groups == groups


def test_a_fit_says_that_a_grid_is_too_coarse() -> None:
    model = build(40, covar_module=None, grid_size=5)
    for part in model.covar_module.kernels:
        part.base_kernel.lengthscale = 0.1
        part.requires_grad_(False)
    with pytest.warns(GridWarning, match=r"lengthscale of input 0 is 0\.1.*grid_size") as caught:
        model.fit(1)
        model.fit(1)
    assert sum(w.category is GridWarning for w in caught) == 1


@pytest.mark.parametrize(
    "kw", [{"groups": [[0, 1], [2]]}, {"covar_module": kernel(), "grid_size": SIZE}, {}]
)
def test_classes(kw: Any) -> None:
    """A classifier over sums of grids: labels in two batches, one class late, are as in one."""
    X, Y, _ = data(60)
    labels = (Y[:, 0] > Y.mean()).long()
    labels[50:55] = 2
    made = [
        DirichletClassifier(X[:n], labels[:n], bounds=BOUNDS, surrogate="additive_wiski", **kw)
        for n in (40, 60)
    ]
    late, whole = made[0].observe(X[40:], labels[40:]), made[1]
    assert late.classes == [0, 1, 2]
    assert len({tuple(p.shape[:1]) for p in late.model.covar_module.parameters()}) == 1
    close(late.log_evidence(), whole.log_evidence(), 1e-6)
    close(late.predict_proba(X[:5]), whole.predict_proba(X[:5]), 1e-6)
    assert late.fit(5).value > float(whole.log_evidence())


def test_what_is_refused() -> None:
    X, Y, Yvar = data(10)
    with pytest.raises(BoundsError, match="bounds"):
        AdditiveWISKI(X, Y)
    for groups in ([], [[]], [[5]], [[-1]], [[0, 0]], [[0.0]], [[True]]):
        with pytest.raises(InputError, match="groups of inputs"):
            build(10, covar_module=None, groups=groups)
    with pytest.raises(InputError, match="active_dims"):
        build(10, groups=[[0], [1]])
    with pytest.raises(UnsupportedError, match="at most 3"):
        build(10, covar_module=RBFKernel(ard_num_dims=D))
    with pytest.raises(UnsupportedError, match="stationary"):
        build(10, covar_module=LinearKernel(active_dims=(0,)))
    with pytest.raises(UnsupportedError, match="10000 nodes"):
        build(10, covar_module=None, groups=[[0, 1], [2, 3]], grid_size=80)
    for size in (3, 2.5):
        with pytest.raises(InputError, match="grid_size"):
            build(10, covar_module=None, grid_size=size)
    with pytest.raises(NoiseError, match="floor"):
        build(0, "known").observe(X, Y, 1e-14 * Yvar)
