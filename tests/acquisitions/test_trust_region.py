"""Proposals of a trust region: where they are, and that they find optima."""

import pytest
import torch

from acquisitions import TrustRegionSampling, TrustRegionSearch
from bo_stream import ExactGP, TrustRegionGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.mathematics.region_draws import RegionDraws, candidates, distinct_winners

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
        X = TrustRegionSampling(model).propose(q)
        assert X.shape == (q, D) and len(X.unique(dim=0)) == q
        assert (BOUNDS[0] <= X).all() and (BOUNDS[1] >= X).all()
    with pytest.raises(InputError):
        TrustRegionSampling(model).propose(0)


def test_a_design_comes_first():
    """Sobol points of the whole box until there is a batch; drawn anew each time."""
    model = made(49)
    torch.manual_seed(0)
    X = TrustRegionSampling(model).propose(64)
    assert ((X.amax(0) - X.amin(0)) > 15.0).all() and not model.region.begun
    assert not torch.equal(X, TrustRegionSampling(model).propose(64))


@pytest.mark.parametrize(("noise", "refined"), [(0.1, False), (1e-3, True)])
def test_samples_are_refined_where_there_is_little_noise(noise, refined):
    """Otherwise a sample's best candidate is taken as it is."""
    model = made(60)
    model.fit()
    model.likelihood.noise = noise * model.covar_module.outputscale.detach()
    torch.manual_seed(1)
    X = TrustRegionSampling(model).propose(20)
    torch.manual_seed(1)
    region, window = model.region, model.state.rows
    steps = candidates(region.centre, model.geometry, float(region.size), 2000)
    given = window.Y, window.X - region.centre, model.geometry.lengthscales
    values = RegionDraws.of(model.factor(), *given, 20).at(steps)
    best = model.raw(region.centre + steps[distinct_winners(values, 20)])
    assert ((best - X).abs().amax(-1) > 0.0).float().mean() == refined


def test_an_optimum_among_many():
    """Rastrigin in 10 inputs: 1,000 evaluations end below one local optimum an input."""
    torch.manual_seed(0)
    model, rule = made(50), TrustRegionSearch(BOUNDS)
    for _ in range(20):
        X = rule(model, 50, None)
        model.observe(X, rastrigin(X))
    x, value = model.recommendation
    assert value > -12.0 and abs(value - float(rastrigin(x))) < 1e-9


def test_other_surrogates_are_refused():
    X = torch.rand(5, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="TrustRegionGP"):
        TrustRegionSampling(ExactGP(X, X[:, :1], input_transform=None))
