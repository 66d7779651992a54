"""The routes to evidence and posterior: each is dense algebra with the prior ``W K W'``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Size

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.conditioned import conditioned_on
from bo_stream.mathematics.grid.compressed import Compressed
from bo_stream.mathematics.grid.data_space import DataSpaceFactorisation
from bo_stream.mathematics.grid.eigenbasis import Eigenbasis
from bo_stream.mathematics.grid.eigenbasis_evidence import EigenbasisFactorisation, chosen_basis
from bo_stream.mathematics.grid.evidence import Route, dropped_share
from bo_stream.mathematics.grid.kernel import product_factors
from bo_stream.mathematics.grid.state import GridState, check_size
from bo_stream.mathematics.process import Process
from bo_stream.mathematics.sufficient_statistics.evidence import RootFactorisation
from bo_stream.testing.base import close
from tests.bo_stream.mathematics.grid.grid_cases import (
    KERNELS,
    ROUTES,
    SIZES,
    Stream,
    kernel,
    points,
    unit_grid,
)

CASES = [
    (d, name, route)
    for d in (1, 2, 3)
    for name in KERNELS
    for route in ROUTES
    if (name == "RBF" or d == 2) and (name != "Matern" or route in ("data", "nodes"))
]


@pytest.mark.parametrize(("d", "name", "route"), CASES)
def test_every_route_is_dense_algebra(d: int, name: str, route: Route) -> None:
    """Evidence, its gradients in every hyperparameter, posterior mean and covariance."""
    own, Z = Stream(kernel(name, d), SIZES[d]), points(9, d, 7)
    dense = own.dense()
    (value, _), expected = own.evidence(route), dense.evidence()
    close(value, expected, 1e-6)
    for mine, theirs in zip(own.gradients(value), own.gradients(expected), strict=True):
        close(mine, theirs, 1e-6)
    at_Z = own.process(route).at(Z)
    mean, covariance = dense.posterior(Z)
    close(at_Z.mean[0], mean, 1e-6)
    close(at_Z.covariance(at_Z)[0], covariance, 1e-6)
    close(at_Z.variance()[0], covariance.diagonal(), 1e-6)


@pytest.mark.parametrize(
    ("route", "shared"), [*((r, False) for r in ROUTES), ("data", True), ("eigenbasis", True)]
)
def test_several_outputs(route: Route, shared: bool) -> None:
    """With hyperparameters of their own, and with one kernel for all."""
    own, Z = (
        Stream(kernel("RBF", 2, 1 if shared else 2), SIZES[2], outputs=2),
        points(6, 2, 7),
    )
    value, expected = own.evidence(route)[0], sum(own.dense(o).evidence() for o in range(2))
    close(value, expected, 1e-6)
    for mine, theirs in zip(own.gradients(value), own.gradients(expected), strict=True):
        close(mine, theirs, 1e-6)
    at_Z = own.process(route).at(Z)
    for o in range(2):
        mean, covariance = own.dense(o).posterior(Z)
        close(at_Z.mean[o], mean, 1e-6)
        close(at_Z.covariance(at_Z)[o], covariance, 1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_a_process_given_more_points(route: Route) -> None:
    """The process given more points is the process of all points."""
    few, all_ = (Stream(kernel("RBF", 2), SIZES[2], n) for n in (30, 40))
    all_.R[:, :30], all_.Y[:, :30] = few.R, few.Y
    X, Y, R = all_.X[30:], all_.Y[:, 30:], all_.R[:, 30:]
    process, Z = few.process(route), points(4, 2, 9)
    noise = (few.s2.detach() * R).expand(Y.shape)
    for part in (slice(0, 7), slice(7, 10)):  # one after the other
        process = conditioned_on(process, X[part], Y[:, part], noise[:, part])
    mean, covariance = all_.dense().posterior(Z)
    at_Z = process.at(Z)
    close(at_Z.mean[0], mean, 1e-6)
    close(at_Z.covariance(at_Z)[0], covariance, 1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_integrated_products_of_covariances(route: Route) -> None:
    process, T, Z = (
        Stream(kernel("RBF", 2), SIZES[2]).process(route),
        points(30, 2, 3),
        points(4, 2, 9),
    )
    weights = torch.linspace(0.1, 1.0, 30, dtype=torch.float64)
    integral, at_Z, at_T = process.integral(T, weights), process.at(Z), process.at(T)
    cov = at_Z.covariance(at_T)
    close(integral.total, at_T.variance() @ weights, 1e-9)
    close(integral.gram(at_Z, at_Z), (cov * weights) @ cov.mT, 1e-9)
    close(integral.gram_diagonal(at_Z), cov.square() @ weights, 1e-9)


@pytest.mark.parametrize("route", ROUTES)
def test_sample_functions_have_the_posteriors_moments(route: Route) -> None:
    process, Z = Stream(kernel("RBF", 2), SIZES[2]).process(route), points(3, 2, 9)
    torch.manual_seed(0)
    draws = process.path(Size([20_000]))(Z)[:, 0]
    at_Z = process.at(Z)
    close(draws.mean(0), at_Z.mean[0], 0.02)
    close(draws.T.cov(), at_Z.covariance(at_Z)[0], 0.02)


@pytest.mark.parametrize("route", ["data", "eigenbasis"])
def test_moments_of_few_points_come_from_fewer_numbers_than_nodes(route: Route) -> None:
    """On a grid that has both forms they agree, with their derivatives, also given more points."""
    own = Stream(kernel("RBF", 2), (14, 12), n=45)
    process = own.process(route)
    assert isinstance(process, Process)
    for _ in range(2):
        Z = points(15, 2, 9).reshape(5, 3, 2)
        at_Z, compact = process.at(Z), process.moments(Z, slopes=False)
        close(compact.mean, at_Z.mean[:, 0], 1e-8)
        close(compact.covariance, at_Z.covariance(at_Z)[:, 0], 1e-8)
        sloped = process.moments(Z, slopes=True)
        Zg = Z.clone().requires_grad_()
        dist = process.at(Zg)
        bars = torch.randn(5, 3).double(), torch.randn(5, 3, 3).double()
        (expected,) = torch.autograd.grad(
            (dist.mean[:, 0] * bars[0]).sum() + (dist.covariance(dist)[:, 0] * bars[1]).sum(), Zg
        )
        close(sloped.pull(*bars), expected, 1e-6)
        ones = torch.ones(1, 4).double()
        process = conditioned_on(process, points(4, 2, 5), ones, ones)


# -- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lengthscale", "n", "opening", "kind"),
    [
        ("RBF", 2.0, 20, 4096, DataSpaceFactorisation),
        ("RBF", 2.0, 400, 4096, EigenbasisFactorisation),
        ("RBF", 0.02, 400, 4096, DataSpaceFactorisation),
        ("RBF", 0.02, 400, 0, EigenbasisFactorisation),
        ("Matern", 2.0, 400, 4096, DataSpaceFactorisation),
        ("Matern", 2.0, 470, 4096, RootFactorisation),
        ("Matern", 2.0, 20, 0, RootFactorisation),
    ],
)
def test_the_cheapest_route_is_taken(
    name: str, lengthscale: float, n: int, opening: int, kind: type
) -> None:
    """Few observations, few eigenvectors, or all nodes (24 x 24)."""
    own = Stream(kernel(name, 2), (24, 24), n)
    if not opening:
        grid = own.state.grid
        empty = GridState.before_data(grid, 1, False, 0, product=True)
        own.state = empty.absorb_at(own.X, own.Y, own.R, 0)
    own.kernel.base_kernel.lengthscale = lengthscale  # type: ignore[union-attr]
    assert type(own.evidence()[1][0]) is kind


def test_what_is_left_out_is_little_and_reported() -> None:
    """From 500 nodes on, eigenvectors that do not matter given the data are left out."""
    own = Stream(kernel("RBF", 2), (24, 24), 400)
    value, made = own.evidence("eigenbasis")
    whole, all_made = own.evidence("nodes")
    assert 0.0 < dropped_share(made) < 1e-3 and dropped_share(all_made) == 0.0
    assert made[0].basis.size < 300
    assert (value - whole).abs() < 0.02


def test_as_much_is_kept_as_the_data_can_resolve() -> None:
    """Less noise or more points: more eigenvectors; never more than allowed, if that is enough."""
    grid = unit_grid((24, 24))
    K = [t.detach() for t in product_factors(kernel("RBF", 2), grid, torch.ones(1).double(), 1)[0]]
    one, kept = torch.ones((), dtype=torch.float64), []
    for noise, n in ((0.1, 10.0), (0.1, 1e7), (1e-7, 10.0)):
        basis = chosen_basis(grid, K, noise * one, n * one, 4000)
        assert float(basis.dropped() * K[0]) <= 1.5 * noise / n or basis.share == 1e-12
        kept.append(basis.size)
    assert kept[0] < kept[1] <= kept[2]
    held_back = Eigenbasis.chosen(grid, K[0], K[1:], 1e-9, kept[0])
    assert held_back.size == kept[0] and float(held_back.dropped()) < 1e-3
    assert Eigenbasis.chosen(grid, K[0], K[1:], 1e-9, 3).size > 3


def test_the_share_dropped_is_that_of_the_prior_variance_at_the_nodes() -> None:
    grid = unit_grid(SIZES[2])
    factors = product_factors(kernel("RBF", 2), grid, torch.ones(1).double(), 1)[0]
    amplitude, *K = (t.detach() for t in factors)
    whole, less = (Eigenbasis.of(grid, amplitude, K, share) for share in (0.0, 1e-3))
    assert less.size < whole.size

    def lost(Z: Any) -> Any:
        return whole.features(Z).square().sum(-1) - less.features(Z).square().sum(-1)

    assert (lost(points(200, 2, 9)) > -1e-12).all()
    nodes = torch.cartesian_prod(*(torch.linspace(0.0, 1.0, g).double() for g in SIZES[2]))
    close(lost(nodes).max(), less.dropped() * amplitude, 1e-12)


def test_compressed_statistics_serve_longer_lengthscales() -> None:
    """A is put on products of eigenvectors once; far shorter lengthscales need it anew."""
    own = Stream(kernel("RBF", 2), (24, 20))
    A, compressed = own.state.matrix(0), None
    for lengthscale, serves in ((0.5, True), (0.52, True), (0.8, True), (0.2, False)):
        own.kernel.base_kernel.lengthscale = lengthscale  # type: ignore[union-attr]
        amplitude, *K = product_factors(own.kernel, own.state.grid, own.state.b, 1)[0]
        basis, wider = (Eigenbasis.of(own.state.grid, amplitude, K, s) for s in (1e-14, 1e-16))
        compressed = compressed or Compressed.of(own.state.A[0], wider)
        gram = compressed.gram(basis)
        assert (gram is not None) is serves
        if gram is not None:
            close(gram.tril(), basis.of_nodes(basis.of_nodes(A).mT).tril(), 1e-8)


def test_large_grids_are_dense_algebra_too() -> None:
    own = Stream(kernel("RBF", 2), (48, 40))
    value, made = own.evidence("eigenbasis")
    close(value, own.dense().evidence(), 1e-4)
    assert len(own.compressed.compressed) == 1 and not own.compressed.matrices


def test_what_large_grids_refuse() -> None:
    own = Stream(kernel("Matern", 2), (101, 100))
    with pytest.raises(UnsupportedError, match="product"):
        own.evidence()
    own = Stream(kernel("RBF", 3), (17, 17, 17))
    own.kernel.base_kernel.lengthscale = 0.02  # type: ignore[union-attr]
    assert isinstance(own.evidence()[1][0], DataSpaceFactorisation)
    own.n = 5_000  # more than are held
    with pytest.raises(StateError, match="coarser"):
        own.evidence()


@pytest.mark.parametrize(
    ("sizes", "product", "possible"),
    [
        ((100, 100), False, True),
        ((101, 100), False, False),
        ((1001, 5), True, True),
        ((1000, 1000), True, True),
        ((10_001,), True, False),
    ],
)
def test_how_many_nodes_are_possible(sizes: tuple[int, ...], product: bool, possible: bool) -> None:
    """More for a kernel that is a product over inputs."""
    if possible:
        return check_size(unit_grid(sizes), product)
    with pytest.raises(UnsupportedError, match="nodes"):
        check_size(unit_grid(sizes), product)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_singular_kernel_matrix_is_a_failed_factorisation(value: float) -> None:
    """A fit steps back from hyperparameters that raise it; an IndexError would end the fit."""
    grid, singular = unit_grid((4,)), torch.full((4, 4), value, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError):
        Eigenbasis.of(grid, torch.tensor(1.0), [singular], 1e-9)
