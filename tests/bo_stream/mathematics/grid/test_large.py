"""Large grids against dense ones: the same surrogate, held and computed in another way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import (
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream import WISKI, load
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.grid import eigenbasis, evidence, large, reduced
from bo_stream.mathematics.grid import state as grid_state
from bo_stream.mathematics.grid.data_space import RowFactorisation
from bo_stream.mathematics.grid.eigenbasis import Eigenbasis
from bo_stream.mathematics.grid.kernel import product_factors
from bo_stream.mathematics.grid.state import BandState, GridState
from bo_stream.mathematics.sufficient_statistics.evidence import Factorisation
from bo_stream.testing.base import assert_same_law, assert_same_state, close, snapshot
from tests.raw import RAW

SIZES = {1: (20,), 2: (9, 8), 3: (7, 6, 8)}
KERNELS: dict[str, Any] = {
    "RBF": lambda d, b: ScaleKernel(RBFKernel(ard_num_dims=d, batch_shape=b), batch_shape=b),
    "RBF times periodic": lambda d, b: ScaleKernel(
        ProductKernel(RBFKernel(ard_num_dims=d, batch_shape=b), PeriodicKernel(batch_shape=b)),
        batch_shape=b,
    ),
    "Matern by dimension": lambda d, b: ScaleKernel(
        ProductKernel(*(MaternKernel(nu=2.5, active_dims=[i], batch_shape=b) for i in range(d))),
        batch_shape=b,
    ),
}


def points(n: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, d, generator=generator, dtype=torch.float64)


def data(n: int, d: int, outputs: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    X = points(n, d, seed)
    generator = torch.Generator().manual_seed(seed + 100)
    noise = torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    wave = (5.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()
    return X, 0.7 + wave + 0.3 * noise, 0.05 + 0.1 * noise.square()


def build(large_grid: bool, d: int, kernel: str = "RBF", outputs: int = 1, **kw: Any) -> WISKI:
    """A surrogate with unusual hyperparameters that has seen 40 points."""
    known = kw.pop("known", False)
    X, Y, Yvar = data(40, d, outputs)
    batch = Size([outputs] if outputs > 1 else [])
    kw = {"grid_size": SIZES[d], "bounds": torch.tensor([[0.0] * d, [1.0] * d]), **kw}
    nodes = grid_state.DENSE_NODES
    try:
        grid_state.DENSE_NODES = 0 if large_grid else 10**9
        model = WISKI(
            X,
            Y,
            Yvar if known else None,
            covar_module=KERNELS[kernel](d, batch),
            likelihood=GaussianLikelihood(batch_shape=batch),
            **{**RAW, **kw},
        )
    finally:
        grid_state.DENSE_NODES = nodes
    generator = torch.Generator().manual_seed(2)
    for p in model.parameters():
        p.data.add_(0.5 * torch.rand(p.shape, generator=generator, dtype=p.dtype))
    return model


@pytest.fixture(params=["eigenbasis", "rows"])
def route(request: Any, monkeypatch: Any) -> str:
    """Through all eigenvectors that float64 has, or through the rows of W."""
    monkeypatch.setattr(eigenbasis, "SHARES", (1e-13,))
    few = 10**9 if request.param == "rows" else 0
    monkeypatch.setattr(large, "FEW_ROWS", few)
    monkeypatch.setattr(large, "CROSSOVER", 0.0)
    return str(request.param)


def gradients(model: WISKI) -> list[Tensor]:
    value = model.log_evidence()
    return [value, *torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad])]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_as_dense(d: int, kernel: str, known: bool, route: str) -> None:
    """Posterior, evidence and its gradients in every hyperparameter."""
    dense, model = (build(kind, d, kernel, known=known) for kind in (False, True))
    assert isinstance(model.state, BandState) and not isinstance(dense.state, BandState)
    assert_same_law(model, dense, points(9, d, 7), 1e-6)
    for mine, theirs in zip(gradients(model), gradients(dense), strict=True):
        close(mine, theirs, 1e-6)
    assert model.dropped_variance < 1e-6


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_dense_sums_in_an_eigenbasis(d: int, kernel: str, outputs: int, monkeypatch: Any) -> None:
    """Grids of some hundred nodes hold a matrix, and reduce it where eigenvectors are fewer."""
    monkeypatch.setattr(eigenbasis, "SHARES", (1e-13,))
    model, dense = (build(False, d, kernel, outputs) for _ in range(2))
    expected = [dense.posterior(points(9, d, 7)).variance, *gradients(dense)]
    monkeypatch.setattr(evidence, "REDUCED_FROM", 1)
    monkeypatch.setattr(evidence, "REDUCED", 1.01)
    monkeypatch.setattr(evidence, "FEW", 0.0)
    model.refresh()
    values = [model.posterior(points(9, d, 7)).variance, *gradients(model)]
    assert isinstance(model._factorisations()[0], reduced.InEigenbasis)
    for mine, theirs in zip(values, expected, strict=True):
        close(mine, theirs, 1e-6)
    assert dense.dropped_variance == 0.0
    monkeypatch.setattr(evidence, "REDUCED", 0.1)
    model.refresh()
    assert not isinstance(model._factorisations()[0], reduced.InEigenbasis)


@pytest.mark.parametrize("shared", [False, True])
def test_several_outputs(shared: bool, route: str) -> None:
    dense, model = (build(kind, 2, outputs=3) for kind in (False, True))
    if shared:
        for own in (dense, model):
            own.covar_module = copy.deepcopy(build(False, 2).covar_module)
    Z = points(6, 2, 7)
    close(model.posterior(Z).mean, dense.posterior(Z).mean, 1e-6)
    close(model.posterior(Z).variance, dense.posterior(Z).variance, 1e-6)
    for mine, theirs in zip(gradients(model), gradients(dense), strict=True):
        close(mine, theirs, 1e-6)


def test_points_that_come_later(route: str) -> None:
    """Folded in, fantasised about, forgotten, merged and restandardised as on a dense grid."""
    models = []
    for kind in (False, True):
        model, other = build(kind, 2), build(kind, 2)
        model.posterior(points(2, 2, 1))
        model.observe(*data(3, 2, seed=5)[:2])
        assert model.process().folded_points == 3
        Z = points(4, 2, 9)
        sampler = SobolQMCNormalSampler(Size([2]), seed=1)
        values = [model.posterior(Z).mean, model.fantasize(Z[:2], sampler).posterior(Z).variance]
        values.append(model.forget(0.5).log_evidence())
        values.append(model.merge(other).log_evidence())
        values.append(model.posterior(Z).variance)
        models.append((model, values))
    for mine, theirs in zip(models[1][1], models[0][1], strict=True):
        close(mine, theirs, 1e-6)


def test_integrated_variance(route: str) -> None:
    T, Z = points(30, 2, 3), points(4, 2, 9)
    weights = torch.full((30,), 1 / 30, dtype=torch.float64)
    totals, grams = [], []
    for kind in (False, True):
        process = build(kind, 2).process()
        integral, law = process.integral(T, weights), process.at(Z)
        totals.append(integral.total)
        grams.append(integral.gram(law, law))
    close(totals[1], totals[0], 1e-6)
    close(grams[1], grams[0], 1e-6)


def test_sample_functions(route: str) -> None:
    """Their mean and covariance are those of the posterior."""
    model, Z = build(True, 2), points(3, 2, 9)
    torch.manual_seed(0)
    draws = model.process().path(Size([20_000]))(Z)[:, 0]
    law = model.posterior(Z)
    close(draws.mean(0), law.mean[:, 0], 0.02)
    close(draws.T.cov(), law.distribution.covariance_matrix, 0.02)


def test_truncation_is_reported() -> None:
    """Less variance than the grid's prior, by no more than is said."""
    model, Z = build(True, 2), points(200, 2, 9)
    factors = [
        t.detach() for t in product_factors(model.covar_module, model.grid, model.state.b, 1)[0]
    ]
    whole, less = (
        Eigenbasis.of(model.grid, factors[0], factors[1:], share) for share in (0.0, 1e-3)
    )
    assert less.size < whole.size
    lost = whole.features(Z).square().sum(-1) - less.features(Z).square().sum(-1)
    assert (lost > -1e-12).all()
    axes = (
        a + h * torch.arange(n, dtype=torch.float64)
        for a, h, n in zip(model.grid.origin, model.grid.step, model.grid.sizes, strict=True)
    )
    nodes = torch.cartesian_prod(*axes)
    at_nodes = whole.features(nodes).square().sum(-1) - less.features(nodes).square().sum(-1)
    close(at_nodes.max(), less.dropped() * factors[0], 1e-12)


def test_what_was_made_serves_longer_lengthscales(monkeypatch: Any) -> None:
    """A is put on products of eigenvectors once; far shorter lengthscales need it anew."""
    made = []
    of = large.Compressed.of
    monkeypatch.setattr(large.Compressed, "of", lambda *a: made.append(1) or of(*a))
    monkeypatch.setattr(large, "FEW_ROWS", 0)
    monkeypatch.setattr(large, "CROSSOVER", 0.0)
    model, dense = build(True, 2, grid_size=(24, 20)), build(False, 2, grid_size=(24, 20))
    for lengthscale, times in ((0.5, 1), (0.52, 1), (0.8, 1), (0.2, 2)):
        for own in (model, dense):
            own.covar_module.base_kernel.lengthscale = lengthscale
        for mine, theirs in zip(gradients(model), gradients(dense), strict=True):
            close(mine, theirs, 1e-4)
        assert len(made) == times
    model.observe(*data(1, 2, seed=3)[:2])
    model.log_evidence()
    assert len(made) == 3


def test_saved_and_loaded(tmp_path: Any, monkeypatch: Any) -> None:
    model = build(True, 2)
    monkeypatch.setattr(grid_state, "DENSE_NODES", 0)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert_same_state(snapshot(model), snapshot(again))
    with pytest.raises(StateError, match="A of shape"):
        model.load_state_dict(build(False, 2).state_dict())


def test_bytes() -> None:
    model = build(True, 3, grid_size=30)
    assert model.state.A.numel() == 4**3 * 30**3
    before = model.state_bytes
    model.observe(*data(50, 3, seed=8)[:2])
    assert model.state_bytes == before < 2**27


def test_other_kernels_are_refused() -> None:
    X, Y, _ = data(5, 3)
    kw: Any = {"bounds": torch.tensor([[0.0] * 3, [1.0] * 3]), "grid_size": 25, **RAW}
    with pytest.raises(UnsupportedError, match="ProductKernel"):
        WISKI(X, Y, covar_module=MaternKernel(), **kw)
    model = WISKI(X, Y, **kw)
    model.covar_module = MaternKernel()
    with pytest.raises(UnsupportedError, match="product"):
        model.log_evidence()


def test_too_much_is_refused(monkeypatch: Any) -> None:
    """Many eigenvectors, and more points than are held: an error that says so."""
    monkeypatch.setattr(large, "FEW_ROWS", 0)
    monkeypatch.setattr(large, "CROSSOVER", 0.0)
    monkeypatch.setattr(reduced, "MOST", 5)
    monkeypatch.setattr(large, "MOST", 5)
    model = build(True, 2)
    with pytest.raises(StateError, match="coarser"):
        model.log_evidence()


def test_few_points_go_through_rows(monkeypatch: Any) -> None:
    """Fewer points than eigenvectors: exact, nothing is dropped."""
    monkeypatch.setattr(large, "FEW_ROWS", 0)
    model = build(True, 3)
    model.covar_module.base_kernel.lengthscale = 0.1
    assert model.dropped_variance == 0.0
    model.covar_module.base_kernel.lengthscale = 10.0
    assert model.dropped_variance > 0.0


def test_as_much_is_kept_as_the_data_can_tell() -> None:
    """Less noise or more points: more eigenvectors; never more than allowed, if that is enough."""
    grid = build(True, 2, grid_size=(24, 20)).grid
    K = [
        t.detach() for t in product_factors(KERNELS["RBF"](2, Size([])), grid, torch.ones(1), 1)[0]
    ]
    K = [t.double() for t in K]
    one, less = torch.ones((), dtype=torch.float64), []
    for noise, n in ((0.1, 10.0), (0.1, 1e7), (1e-7, 10.0)):
        basis = reduced.chosen_basis(grid, K, noise * one, n * one)
        assert float(basis.dropped() * K[0]) <= 1.5 * noise / n or basis.share == 1e-12
        less.append(basis.size)
    assert less[0] < less[1] <= less[2]
    held_back = Eigenbasis.chosen(grid, K[0], K[1:], 1e-9, less[0])
    assert held_back.size == less[0] and float(held_back.dropped()) < 1e-3
    assert Eigenbasis.chosen(grid, K[0], K[1:], 1e-9, 3).size > 3


def test_the_smallest_form_is_taken(monkeypatch: Any) -> None:
    """On a grid of some hundred nodes: rows of few points, few eigenvectors, or all nodes."""
    monkeypatch.setattr(evidence, "REDUCED_FROM", 1)
    monkeypatch.setattr(evidence, "FEW_ROWS", 10)
    model = build(False, 2)
    forms = []
    for lengthscale, few_rows, few in (
        (2.0, 10, 0.8),
        (0.1, 10, 0.8),
        (2.0, 50, 0.8),
        (0.1, 10, 0),
    ):
        monkeypatch.setattr(evidence, "FEW_ROWS", few_rows)
        monkeypatch.setattr(evidence, "FEW", few)
        model.covar_module.base_kernel.lengthscale = lengthscale
        model.refresh()
        forms.append(type(model._factorisations()[0]))
    rows = RowFactorisation
    assert forms == [reduced.InEigenbasis, rows, rows, Factorisation]


def test_refined_from_a_small_grid_to_a_large_one_and_back(monkeypatch: Any) -> None:
    """The sums change their form with the number of nodes; what is saved is loaded either way."""
    monkeypatch.setattr(eigenbasis, "SHARES", (1e-13,))
    monkeypatch.setattr(large, "FEW_ROWS", 0)
    model, anew = build(False, 2), build(True, 2, grid_size=(11, 12))
    monkeypatch.setattr(grid_state, "DENSE_NODES", 100)
    model.refine((11, 12))
    assert isinstance(model.state, BandState)
    assert_same_law(model, anew, points(9, 2, 7), 1e-9)
    again = build(False, 2)
    monkeypatch.setattr(grid_state, "DENSE_NODES", 100)
    again.load_state_dict(model.state_dict())
    assert_same_law(model, again, points(9, 2, 7), 1e-12)
    model.refine((9, 8))
    assert not isinstance(model.state, BandState)
    assert_same_law(model, build(False, 2), points(9, 2, 7), 1e-9)


def test_the_form_of_the_sums(monkeypatch: Any) -> None:
    """A matrix on few nodes and where it must be, pairs of nodes on many."""
    grid = build(False, 2).grid  # 9 x 8
    for few, most, a_side, product, kind in (
        (100, 100, 20, True, GridState),
        (50, 100, 20, True, BandState),
        (50, 60, 20, True, BandState),
        (50, 100, 8, True, GridState),
        (50, 100, 20, False, GridState),
        (50, 60, 8, True, None),
        (50, 60, 20, False, None),
    ):
        monkeypatch.setattr(grid_state, "DENSE_NODES", few)
        monkeypatch.setattr(grid_state, "MOST_DENSE_NODES", most)
        monkeypatch.setattr(grid_state, "MOST_A_SIDE", a_side)
        if kind is None:
            with pytest.raises(UnsupportedError, match="9 x 8 nodes"):
                grid_state.grid_state(grid, 1, True, 0, product)
        else:
            assert type(grid_state.grid_state(grid, 1, True, 0, product)) is kind
