"""The parts of a trust region against dense algebra and the rules as stated (MATHS 14)."""

import math
from dataclasses import replace

import torch
from gpytorch.kernels import MaternKernel

from bo_stream.mathematics import region as regions
from bo_stream.mathematics.exact import correlations, solved
from bo_stream.mathematics.region import (
    WINDOW,
    Evaluations,
    Geometry,
    TrustRegion,
    TrustRegionState,
    window_of,
)
from bo_stream.mathematics.region_draws import (
    RegionDraws,
    candidates,
    distinct_winners,
    refined,
    worth_refining,
)

BOX = torch.tensor([[0.0, -1.0, 2.0], [1.0, 1.0, 5.0]], dtype=torch.float64)
LENGTHS = torch.tensor([0.3, 1.4, 0.9], dtype=torch.float64)


def rows(n, seed=0, d=3):
    g = torch.Generator().manual_seed(seed)
    X = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(n, d, generator=g, dtype=torch.float64)
    Y = (3.0 * X).sin().sum(-1) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    return Evaluations(X, Y, torch.ones_like(Y))


def dense(X, Z):
    """Matern-5/2 by gpytorch."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=3).double()
    kernel.lengthscale = LENGTHS
    return kernel(X, Z).to_dense().detach()


def factored(data, ratios):
    """The window's factor, mean and amplitude."""
    X = (data.X - data.X.mean(0)).numpy()
    return solved(correlations(X, LENGTHS.numpy()), ratios.numpy(), data.Y.numpy(), k=0.0)


def test_draws_have_the_posterior():
    """Mean and covariance of many samples against the dense posterior."""
    torch.manual_seed(0)
    data, centre = rows(40), BOX.mean(0)
    ratios = torch.full((40,), 0.5, dtype=torch.float64)
    factor = factored(data, ratios)
    X = rows(6, seed=3).X
    given = factor, data.Y, data.X - centre, LENGTHS
    draws = [RegionDraws.of(*given, 500).at(X - centre) for _ in range(8)]
    f = torch.cat(draws, -1).double()
    C, cross = dense(data.X, data.X) + ratios.diag(), dense(X, data.X)
    mean = cross @ C.inverse() @ (data.Y - factor.mean) / factor.variance**0.5
    cov = dense(X, X) - cross @ C.inverse() @ cross.mT
    assert torch.allclose(f.mean(-1), mean, atol=0.05)
    assert torch.allclose(f.cov(), cov, atol=0.05)


def test_candidates_and_winners():
    torch.manual_seed(0)
    geometry, centre = Geometry.of(BOX, LENGTHS), torch.tensor([0.95, 0.0, 3.0]).double()
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
    data, centre = rows(40), torch.tensor([0.95, 0.0, 3.0]).double()
    factor = factored(data, torch.full((40,), 1e-3).double())
    draws = RegionDraws.of(factor, data.Y, data.X - centre, LENGTHS, 30)
    geometry = Geometry.of(BOX, LENGTHS)
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


def test_the_window():
    """The best and the newest of many inside; else the nearest; outcomes clipped from below."""
    data, geometry = rows(1500), Geometry.of(BOX, LENGTHS)
    centre = BOX.mean(0)
    whole = window_of(data, 50, centre, geometry, 1.6)
    held = (whole.X.unsqueeze(1) == data.X).all(-1).any(0)
    inside = ((data.X - centre).abs() <= 1.6 * geometry.shape).all(-1)
    inside[-50:] = True
    best = data.Y.masked_fill(~inside, -math.inf).topk(WINDOW // 4).indices
    newest = inside.nonzero().squeeze(-1)[-WINDOW // 4 :]
    assert len(whole) == WINDOW and held[best].all() and held[newest].all()
    again = window_of(data, 50, centre, geometry, 1.6)
    assert torch.equal(whole.X, again.X)
    near = window_of(data, 50, centre, geometry, 0.05)
    held = (near.X.unsqueeze(1) == data.X).all(-1).any(0)
    away = ((data.X - centre) / LENGTHS).square().sum(-1)
    away[-50:] = -1.0
    assert len(near) == WINDOW and held[away.argsort()[:WINDOW]].all()
    low = replace(rows(9), Y=torch.tensor([-1e9, 0.0, 1, 2, 3, 4, 5, 6, 7]).double())
    assert float(window_of(low, 1, centre, geometry, 0.8).Y.min()) == 3.0 - 2.0 * (7.0 - 3.0)


def told(state, gain, step=0.1, q=4):
    """The state after a batch whose best outcome gains so much over the best, exact."""
    region, width = state.region, BOX[1] - BOX[0]
    X = region.centre + step * width * torch.tensor([[1.0], [-1], [0.5], [0.2]]).double()
    Y = float(region.best) + torch.tensor([gain, -2.0, -3.0, -4.0]).double()
    batch = Evaluations(X, Y, torch.ones_like(Y))
    return regions.absorbed(state, batch, q, lambda r: Geometry.of(BOX, None), None)


def begun():
    state = TrustRegionState.empty(3, torch.empty(0, dtype=torch.float64))
    geometry = Geometry.of(BOX, None)
    state = regions.absorbed(state, rows(8), 50, lambda r: geometry, None)
    assert (
        regions.fit_due(state, 8)
        and not regions.fit_due(state, 9)
        and len(state.rows) == len(state.pending) == 8
    )
    state = regions.fitted(regions.begun(state, geometry))
    assert not regions.fit_due(state, 8) and len(state.pending) == 0
    return state


def test_successes_and_failures():
    """log L moves by a fifth towards log(3 e), e = 2 max |step|; two failures halve it."""
    state = begun()
    new = told(state, 1.0)
    assert math.isclose(float(new.region.size), 0.8**0.8 * 0.6**0.2, rel_tol=1e-12)
    assert torch.equal(new.region.centre, new.archive.X[8])
    assert float(new.region.best) == float(state.region.best) + 1.0
    worse = told(new, 1e-9)
    assert float(worse.region.size) == float(new.region.size)
    worse = told(worse, -1.0)
    assert float(worse.region.size) == float(new.region.size) / 2.0
    assert regions.fit_due(worse, 8) and float(worse.region.best) > float(new.region.best)


def test_stalls_close_a_region_and_open_another():
    """At full size again twice, then polished to 2^-20; the next region knows nothing of it."""
    state, restarts, batches = begun(), 0, 0
    while not len(state.closed.value):
        before = state
        state = told(state, -1.0, step=0.3 * float(state.region.size))
        restarts += float(state.region.size) == 0.8 and float(before.region.size) < 0.1
        batches += 1
        assert batches < 300
    assert restarts == 2 + 1  # and the new region
    assert float(before.region.size) <= 2.0**-19
    assert torch.equal(state.closed.X[0], before.region.centre)
    assert float(state.closed.value[0]) == float(before.region.best)
    assert not state.region.begun and state.seen == 0 and len(state.window) > 0
    late = told(replace(state, region=before.region.changed(fitted=0.0)), 1.0, step=1e-7)
    assert late.seen == 0, "points of the closed region are no design of the next"
    assert float(late.closed.value[0]) == float(before.region.best) + 1.0


def test_a_new_region_is_empty():
    region = TrustRegion.new(torch.zeros(3, dtype=torch.float64))
    assert float(region.size) == 0.8 and not region.begun
