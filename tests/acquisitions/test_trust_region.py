"""Proposals of a trust region: where they are, and that they find optima."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel

from acquisitions import TrustRegionSearch, View
from acquisitions.domain import Domain
from acquisitions.thompson import distinct_winners
from acquisitions.trust_region import region_samples
from bo_stream import ExactGP, TrustRegionGP
from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.exact import solved
from bo_stream.mathematics.radial import RadialCovariance
from bo_stream.mathematics.region import (
    Geometry,
    RegionDraws,
    candidates,
    refined,
    worth_refining,
)

D = 10
BOUNDS = torch.tensor([[10.0], [30.0]], dtype=torch.float64).expand(2, D)


def rastrigin(X):
    """Maximised at 18, where it is zero; 10^10 local optima."""
    z = (X - 18.0) / 4.0
    return -(10.0 * D + (z.square() - 10.0 * (2.0 * torch.pi * z).cos()).sum(-1, keepdim=True))


def made(n, **kw):
    X = BOUNDS[0] + 20.0 * torch.quasirandom.SobolEngine(D, True, seed=0).draw(n).double()
    return TrustRegionGP(X, rastrigin(X), bounds=BOUNDS, noise="none", **kw)


def test_points_are_new_and_in_the_box():
    model = made(50)
    for q in (1, 7, 600):
        X = region_samples(model, q)
        assert X.shape == (q, D) and len(X.unique(dim=0)) == q
        assert (BOUNDS[0] <= X).all() and (BOUNDS[1] >= X).all()


def test_a_design_comes_first():
    """Sobol points of the whole box until there is a batch; drawn anew each time."""
    model = made(49)
    torch.manual_seed(0)
    X = region_samples(model, 64)
    assert ((X.amax(0) - X.amin(0)) > 15.0).all() and not model.region.begun
    assert not torch.equal(X, region_samples(model, 64))


@pytest.mark.parametrize(("noise", "better"), [(0.1, False), (1e-3, True)])
def test_samples_are_refined_where_there_is_little_noise(noise, better):
    """Otherwise a sample's best candidate is taken as it is."""
    model = made(60)
    model.fit()
    model.likelihood.noise = noise * model.covar_module.outputscale.detach()
    torch.manual_seed(1)
    X = region_samples(model, 20)
    torch.manual_seed(1)
    region, window = model.region, model.state.rows
    steps = candidates(region.centre, model.geometry, float(region.size), 2000)
    given = window.y, window.X - region.centre, model.geometry.lengthscales
    values = RegionDraws.of(model.factor(), *given, 20).at(steps)
    best = model.raw(region.centre + steps[distinct_winners(values, 20)])
    assert ((best - X).abs().amax(-1) > 0.0).float().mean() == better


def test_an_optimum_among_many():
    """Rastrigin in 10 inputs: 1,000 evaluations end below one local optimum an input."""
    torch.manual_seed(0)
    none = Observations(BOUNDS[:0], BOUNDS[:0, :1])
    model, rule = made(50), TrustRegionSearch()
    for _ in range(20):
        view = View(model, none, Domain.of(BOUNDS), BOUNDS[:0], BOUNDS[:0])
        X = rule.propose(view, 50).points
        model.observe(X, rastrigin(X))
    x, value = model.recommendation
    assert value > -12.0 and abs(value - float(rastrigin(x))) < 1e-9


def test_other_surrogates_are_refused():
    X = torch.rand(5, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="TrustRegionGP"):
        region_samples(ExactGP(X, X[:, :1], input_transform=None), 1)


BOX = torch.tensor([[0.0, -1.0, 2.0], [1.0, 1.0, 5.0]], dtype=torch.float64)
LENGTHS = torch.tensor([0.3, 1.4, 0.9], dtype=torch.float64)
GEOMETRY = Geometry(BOX[0], BOX[1] - BOX[0], LENGTHS)


def rows(n, seed=0):
    """Points in a box of three inputs, and outcomes."""
    g = torch.Generator().manual_seed(seed)
    X = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(n, 3, generator=g, dtype=torch.float64)
    return X, (3.0 * X).sin().sum(-1) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)


def dense(X, Z):
    """Matern-5/2 by gpytorch."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=3).double()
    kernel.lengthscale = LENGTHS
    return kernel(X, Z).to_dense().detach()


def factored(X, Y, ratios):
    """The window's factor, mean and amplitude."""
    R = RadialCovariance(1.0 / LENGTHS.numpy()).matrix((X - X.mean(0)).numpy())
    return solved(R, ratios.numpy(), Y.numpy(), k=0.0)


def test_draws_have_the_posterior():
    """Mean and covariance of many samples against the dense posterior."""
    torch.manual_seed(0)
    (Z, Y), centre = rows(40), BOX.mean(0)
    ratios = torch.full((40,), 0.5, dtype=torch.float64)
    factor = factored(Z, Y, ratios)
    X, _ = rows(6, seed=3)
    given = factor, Y, Z - centre, LENGTHS
    draws = [RegionDraws.of(*given, 500).at(X - centre) for _ in range(8)]
    f = torch.cat(draws, -1).double()
    C, cross = dense(Z, Z) + ratios.diag(), dense(X, Z)
    mean = cross @ C.inverse() @ (Y - factor.mean) / factor.variance**0.5
    cov = dense(X, X) - cross @ C.inverse() @ cross.mT
    assert torch.allclose(f.mean(-1), mean, atol=0.05)
    assert torch.allclose(f.cov(), cov, atol=0.05)


def test_candidates_and_winners():
    torch.manual_seed(0)
    geometry, centre = GEOMETRY, torch.tensor([0.95, 0.0, 3.0]).double()
    volume = (geometry.shape / (BOX[1] - BOX[0])).prod()
    assert math.isclose(float(volume), 1.0, rel_tol=1e-12)
    steps = candidates(centre, geometry, 0.5, 500)
    assert (steps.abs() <= 0.25 * geometry.shape).all() and ((steps != 0).any(-1)).all()
    inside = (centre + steps >= BOX[0]) & (centre + steps <= BOX[1])
    assert inside.all() and (steps == 0).any()
    values = torch.tensor([[3.0, 3.0, 1.0], [2.0, 2.0, 3.0], [1.0, 0.0, 4.0]])
    assert distinct_winners(values, 3) == [0, 1, 2]


def test_refined_steps():
    """Every sample at its own steps, which improve it and stay in the region and the box."""
    torch.manual_seed(0)
    (Z, Y), centre = rows(40), torch.tensor([0.95, 0.0, 3.0]).double()
    factor = factored(Z, Y, torch.full((40,), 1e-3).double())
    draws = RegionDraws.of(factor, Y, Z - centre, LENGTHS, 30)
    geometry = GEOMETRY
    steps = candidates(centre, geometry, 0.5, 30)
    own = draws.each_at(steps.view(30, 1, 3).expand(-1, 20, -1))
    before = draws.at(steps).diagonal()
    assert torch.allclose(own, before.unsqueeze(-1).expand(-1, 20), atol=1e-5)
    assert worth_refining(factor, 30) and not worth_refining(factor, 31)
    after = refined(draws, steps, before, centre, geometry, 0.5)
    gains = draws.at(after).diagonal() - before
    assert (gains > -1e-5).all() and (gains > 1e-3).float().mean() > 0.9
    assert (after.abs() <= 0.25 * geometry.shape + 1e-12).all()
    assert (centre + after >= BOX[0] - 1e-12).all() and (centre + after <= BOX[1] + 1e-12).all()
