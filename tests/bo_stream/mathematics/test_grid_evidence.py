"""The routes to evidence and posterior: each is dense algebra with the prior ``W K W'``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Size, Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.expanded import ExpandedProcess
from bo_stream.mathematics.grid import matrix_of
from bo_stream.mathematics.grid_evidence import _roots, check_size
from bo_stream.mathematics.grid_kernel import (
    CholeskyRoot,
    DataProcess,
    Eigenbasis,
    NodeProcess,
    features_of,
    whole_roots,
)
from bo_stream.mathematics.kernels import product_factors
from bo_stream.mathematics.process import conditioned_on
from bo_stream.testing.base import close
from tests.bo_stream.mathematics.grid_cases import (
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
    if name == "RBF" or d == 2
]


@pytest.mark.parametrize(("d", "name", "route"), CASES)
def test_every_route_is_dense_algebra(d: int, name: str, route: str) -> None:
    """Evidence, its gradients in every hyperparameter, posterior mean and covariance."""
    own, Z = Stream(kernel(name, d), SIZES[d], route=route), points(9, d, 7)
    dense = own.dense()
    value, expected = own.evidence(), dense.evidence()
    close(value, expected, 1e-6)
    for mine, theirs in zip(own.gradients(value), own.gradients(expected), strict=True):
        close(mine, theirs, 1e-6)
    at_Z = own.process().at(Z)
    mean, covariance = dense.posterior(Z)
    close(at_Z.mean[0], mean, 1e-6)
    close(at_Z.covariance(at_Z)[0], covariance, 1e-6)
    close(at_Z.variance()[0], covariance.diagonal(), 1e-6)


@pytest.mark.parametrize(
    ("route", "shared"), [(r, shared) for r in ROUTES for shared in (False, True)]
)
def test_several_outputs(route: str, shared: bool) -> None:
    """With hyperparameters of their own, and with one kernel for all."""
    own, Z = (
        Stream(kernel("RBF", 2, 1 if shared else 2), SIZES[2], outputs=2, route=route),
        points(6, 2, 7),
    )
    value, expected = own.evidence(), sum(own.dense(o).evidence() for o in range(2))
    close(value, expected, 1e-6)
    for mine, theirs in zip(own.gradients(value), own.gradients(expected), strict=True):
        close(mine, theirs, 1e-6)
    at_Z = own.process().at(Z)
    for o in range(2):
        mean, covariance = own.dense(o).posterior(Z)
        close(at_Z.mean[o], mean, 1e-6)
        close(at_Z.covariance(at_Z)[o], covariance, 1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_a_process_given_more_points(route: str) -> None:
    """The process given more points is the process of all points."""
    few, all_ = (Stream(kernel("RBF", 2), SIZES[2], n, route=route) for n in (30, 40))
    all_.R[:, :30], all_.Y[:, :30] = few.R, few.Y
    X, Y, R = all_.X[30:], all_.Y[:, 30:], all_.R[:, 30:]
    process, Z = few.process(), points(4, 2, 9)
    noise = (few.s2.detach() * R).expand(Y.shape)
    for part in (slice(0, 7), slice(7, 10)):  # one after the other
        process = conditioned_on(process, X[part], Y[:, part], noise[:, part])
    mean, covariance = all_.dense().posterior(Z)
    at_Z = process.at(Z)
    close(at_Z.mean[0], mean, 1e-6)
    close(at_Z.covariance(at_Z)[0], covariance, 1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_integrated_products_of_covariances(route: str) -> None:
    process, T, Z = (
        Stream(kernel("RBF", 2), SIZES[2], route=route).process(),
        points(30, 2, 3),
        points(4, 2, 9),
    )
    weights = torch.linspace(0.1, 1.0, 30, dtype=torch.float64)
    integral, at_Z, at_T = process.integral(T, weights), process.at(Z), process.at(T)
    cov = at_Z.covariance(at_T)
    close(integral.total, at_T.variance() @ weights, 1e-9)
    close(integral.gram(at_Z, at_Z), (cov * weights) @ cov.mT, 1e-9)
    close(integral.gram_diagonal(at_Z), cov.square() @ weights, 1e-9)


def test_sums_over_more_points_than_features() -> None:
    """They are on features, also given more points; the posterior stays the same.

    The tolerance is that of the features: they leave out a millionth of the noise variance.
    """
    own = Stream(kernel("RBF", 2), (14, 12), n=45, route="data")
    process, T, Z = own.process(), points(300, 2, 3), points(4, 2, 9)
    weights = torch.linspace(0.1, 1.0, 300, dtype=torch.float64)
    ones = torch.ones(1, 4).double()
    assert process.for_sums(5) is process
    for each in (process, conditioned_on(process, points(4, 2, 5), ones, ones)):
        form = each.for_sums(300)
        integral, at_Z, mine, at_T = form.integral(T, weights), each.at(Z), form.at(Z), each.at(T)
        assert len(integral.weights) < 300
        close(mine.mean, at_Z.mean, 1e-6)
        close(mine.covariance(mine), at_Z.covariance(at_Z), 1e-6)
        cov = at_Z.covariance(at_T)
        close(integral.total, at_T.variance() @ weights, 1e-6)
        close(integral.gram(mine, mine), (cov * weights) @ cov.mT, 1e-6)
        close(integral.gram_diagonal(mine), cov.square() @ weights, 1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("d", "route"), [(d, route) for d in (2, 3) for route in ROUTES])
def test_values_at_the_nodes_of_a_kernel_that_is_no_product(
    d: int, route: str, outputs: int
) -> None:
    """Covariances of batches and sums of their products, also given more points once and twice; of
    all outputs and of one.
    """
    own = Stream(kernel("Matern", d, outputs), SIZES[d], outputs=outputs, route=route)
    whole = own.process()
    assert isinstance(whole, NodeProcess)
    T, weights = points(30, d, 3), torch.linspace(0.1, 1.0, 30, dtype=torch.float64)
    ones = torch.ones(outputs, 2).double()
    once = conditioned_on(whole, points(2, d, 5), ones, ones)
    batch = conditioned_on(once, points(6, d, 6).reshape(3, 2, d), ones, ones)
    for process in (whole, once, batch, whole.outputs([outputs - 1])):
        sums, t = process.integral(T, weights), process.at(T)
        a, b = process.at(points(12, d, 7).reshape(3, 4, d)), process.at(points(5, d, 8))
        ab, at, bt = a.covariance(b), a.covariance(t), b.covariance(t)
        close(ab, b.covariance(a).mT, 1e-12)
        close(a.covariance(a).diagonal(dim1=-2, dim2=-1), a.variance(), 1e-12)
        close(a.operator().to_dense(), a.covariance(a), 1e-12)
        close(sums.total, (t.variance() * weights).sum(-1), 1e-12)
        close(sums.gram(a, b), (at * weights) @ bt.mT, 1e-9)
        close(sums.gram(a, a), (at * weights) @ at.mT, 1e-9)
        close(sums.gram_diagonal(a), (at.square() * weights).sum(-1), 1e-9)
    part, Z = whole.outputs([outputs - 1]), points(7, d, 9)
    for process in (part, conditioned_on(part, points(2, d, 5), ones[:1], ones[:1])):
        box = torch.ones(d).double().numpy()
        means, variances = ExpandedProcess(process.expansion, box, 0.0 * box, box).marginals(
            Z.numpy()
        )
        close(torch.from_numpy(means), process.at(Z).mean[0], 1e-9)
        close(torch.from_numpy(variances), process.at(Z).variance()[0], 1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_values_at_the_nodes_are_differentiable_twice(route: str) -> None:
    own = Stream(kernel("Matern", 2, 2), SIZES[2], outputs=2, route=route)
    process, ones = own.process(), torch.ones(2, 2).double()
    Z = points(4, 2, 7).reshape(2, 2, 2).requires_grad_()
    for each in (process, conditioned_on(process, points(2, 2, 5), ones, ones)):
        sums = each.integral(points(30, 2, 3), torch.ones(30).double())

        def values(Z: Tensor) -> tuple[Tensor, ...]:
            a = each.at(Z)  # noqa: B023
            gram, diagonal = sums.gram(a, a), sums.gram_diagonal(a)  # noqa: B023
            return a.mean, a.variance(), a.covariance(a), gram, diagonal

        assert torch.autograd.gradcheck(values, (Z,))
        assert torch.autograd.gradgradcheck(values, (Z,))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("route", ROUTES)
def test_sample_functions_have_the_posteriors_moments(route: str, name: str) -> None:
    process, Z = Stream(kernel(name, 2), SIZES[2], route=route).process(), points(3, 2, 9)
    torch.manual_seed(0)
    draws = process.path(Size([20_000]))(Z)[:, 0]
    at_Z = process.at(Z)
    close(draws.mean(0), at_Z.mean[0], 0.02)
    close(draws.T.cov(), at_Z.covariance(at_Z)[0], 0.02)


def test_a_process_that_moves_is_on_features_of_the_nodes() -> None:
    """However few the observations are; nothing is left out then."""
    own, Z = Stream(kernel("RBF", 2), (24, 24), 40), points(9, 2, 7)
    few, moves = own.process().at(Z), own.process(moves=True)
    assert isinstance(own.process(), DataProcess) and moves.kernel is None
    close(moves.at(Z).mean, few.mean, 1e-8)
    close(moves.at(Z).variance(), few.variance(), 1e-6)


# -- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lengthscale", "n", "opening", "kind"),
    [
        ("RBF", 2.0, 20, 4096, None),
        ("RBF", 2.0, 400, 4096, Eigenbasis),
        ("RBF", 0.02, 400, 4096, None),
        ("RBF", 0.02, 400, 0, Eigenbasis),
        ("Matern", 2.0, 400, 4096, None),
        ("Matern", 2.0, 470, 4096, CholeskyRoot),
        ("Matern", 2.0, 20, 0, CholeskyRoot),
    ],
)
def test_the_cheapest_route_is_taken(
    name: str, lengthscale: float, n: int, opening: int, kind: type | None
) -> None:
    """Few observations, few eigenvectors, or all nodes (24 x 24)."""
    own = Stream(kernel(name, 2), (24, 24), n, route="data" if opening else "roots")
    own.kernel.base_kernel.lengthscale = lengthscale  # type: ignore[union-attr]
    with torch.no_grad():
        roots = _roots(own.state, own.prior, n)
    assert kind is None if roots is None else type(roots[0]) is kind
    process = own.process()
    assert isinstance(process, NodeProcess) is (name == "Matern")
    assert isinstance(process, DataProcess) is (name == "RBF" and kind is None)


def test_what_is_left_out_is_little() -> None:
    """From 500 nodes on, eigenvectors that do not matter given the data are left out."""
    own = Stream(kernel("RBF", 2), (24, 24), 400)
    value = own.evidence()
    with torch.no_grad():
        (basis,) = _roots(own.state, own.prior, 400) or ()
    assert basis.size < 300 and 0.0 < float(basis.dropped()) < 1e-3
    assert (value - own.dense().evidence()).abs() < 0.02


def test_as_much_is_kept_as_the_data_can_resolve() -> None:
    """Less noise or more points: more eigenvectors; never more than allowed, if that is enough."""
    own, kept = Stream(kernel("RBF", 2), (24, 24), 400, route="roots"), []
    for noise, weight in ((0.1, 1e-1), (0.1, 1e5), (1e-7, 1e-1)):
        own.s2 = torch.tensor([noise]).double()
        own.state = replace(own.state, A=weight * own.state.A)
        with torch.no_grad():
            (basis,) = _roots(own.state, own.prior, 400) or ()
        own.state = replace(own.state, A=own.state.A / weight)
        tolerated = 1.5 * noise / (weight * (1.0 / own.R).sum())
        assert float(basis.dropped() * basis.amplitude) <= tolerated or noise == 1e-7
        kept.append(basis.size)
    assert kept[0] < kept[1] <= kept[2]
    (amplitude,), factors = product_factors(own.kernel, basis.grid.axes(own.X), 1)
    K = [factor[0].detach() for factor in factors]
    held_back = Eigenbasis.chosen(basis.grid, amplitude.detach(), K, 1e-9, kept[0])
    assert held_back.size == kept[0] and float(held_back.dropped()) < 1e-3
    assert Eigenbasis.chosen(basis.grid, amplitude.detach(), K, 1e-9, 3).size > 3


def test_the_share_dropped_is_that_of_the_prior_variance_at_the_nodes() -> None:
    grid = unit_grid(SIZES[2])
    (amplitude,), factors = product_factors(kernel("RBF", 2), grid.axes(torch.ones(1).double()), 1)
    amplitude, spectra = (
        amplitude.detach(),
        [torch.linalg.eigh(factor[0].detach()) for factor in factors],
    )
    whole, less = (Eigenbasis.of(grid, amplitude, spectra, share) for share in (0.0, 1e-3))
    assert less.size < whole.size

    def lost(Z: Any) -> Any:
        more, fewer = (
            features_of(grid, [basis]).features(Z).square().sum(-1) for basis in (whole, less)
        )
        return more - fewer

    assert (lost(points(200, 2, 9)) > -1e-12).all()
    nodes = torch.cartesian_prod(*(torch.linspace(0.0, 1.0, g).double() for g in SIZES[2]))
    close(lost(nodes).max(), less.dropped() * amplitude, 1e-12)


def test_large_grids_are_dense_algebra_too() -> None:
    own = Stream(kernel("RBF", 2), (48, 40), route="roots")
    close(own.evidence(), own.dense().evidence(), 1e-4)


@pytest.mark.parametrize("d", SIZES)
def test_statistics_under_an_eigenbasis(d: int) -> None:
    """From pairs of nodes as from the matrix; eigenvectors are left out."""
    own = Stream(kernel("RBF", d), SIZES[d])
    (amplitude,), factors = product_factors(own.kernel, own.state.grid.axes(own.X), 1)
    spectra = [torch.linalg.eigh(factor[0].detach()) for factor in factors]
    basis = Eigenbasis.of(own.state.grid, amplitude.detach(), spectra, 1e-4)
    nodes = torch.cartesian_prod(
        *(torch.linspace(0.0, 1.0, g, dtype=torch.float64) for g in SIZES[d])
    )
    F = features_of(own.state.grid, [basis]).features(nodes.reshape(-1, d))
    assert basis.size < own.state.grid.m
    stats, A = basis.under(own.state.statistics()[0]), matrix_of(own.state.A[0], SIZES[d])
    close(stats.A.tril(), (F.T @ A @ F).tril(), 1e-10)
    close(stats.b, F.T @ own.state.b[0], 1e-10)


@pytest.mark.parametrize("name", ["RBF", "Matern"])
def test_few_observations_that_are_partly_forgotten(name: str) -> None:
    """Their covariance serves, at its cost; the same as from the sums."""
    own, sums = (Stream(kernel(name, 2), SIZES[2], outputs=2, route=route) for route in ROUTES)
    for stream in (own, sums):
        stream.state = stream.state.discounted(0.7)
    assert _roots(own.state, own.prior, own.n) is None
    value, expected = own.evidence(), sums.evidence()
    close(value, expected, 1e-6)
    for mine, theirs in zip(own.gradients(value), sums.gradients(expected), strict=True):
        close(mine, theirs, 1e-6)
    mine, theirs = (each.process().at(points(6, 2, 7)) for each in (own, sums))
    close(mine.mean, theirs.mean, 1e-6)
    close(mine.variance(), theirs.variance(), 1e-6)


def test_what_large_grids_refuse() -> None:
    own = Stream(kernel("RBF", 3), (17, 17, 17))
    own.kernel.base_kernel.lengthscale = 0.02  # type: ignore[union-attr]
    assert _roots(own.state, own.prior, own.n) is None
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
    grid, singular = unit_grid((4,)), torch.full((1, 4, 4), value, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):  # so that BoTorch does, too
        whole_roots(grid, [torch.ones(1), singular])
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        Eigenbasis.chosen(grid, torch.tensor(1.0), list(singular), 1e-9, 4)
