"""The parts of a trust region against dense algebra and the rules as stated (MATHS 14)."""

import math
from dataclasses import replace

import torch

from bo_stream.mathematics import region as regions
from bo_stream.mathematics.region import WINDOW, Geometry, TrustRegionState, window_of
from bo_stream.mathematics.shapes import Rows

BOX = torch.tensor([[0.0, -1.0, 2.0], [1.0, 1.0, 5.0]], dtype=torch.float64)
WIDTH = BOX[1] - BOX[0]
LENGTHS = torch.tensor([0.3, 1.4, 0.9], dtype=torch.float64)
CUBE = Geometry(BOX[0], WIDTH, WIDTH)


def rows(n, seed=0, d=3):
    g = torch.Generator().manual_seed(seed)
    X = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(n, d, generator=g, dtype=torch.float64)
    Y = (3.0 * X).sin().sum(-1) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    return Rows(X, Y[None], torch.ones(1, n, dtype=torch.float64))


def test_the_window():
    """The best and the newest of many inside; else the nearest; outcomes clipped from below."""
    data, geometry = rows(1500), Geometry(BOX[0], WIDTH, LENGTHS)
    centre = BOX.mean(0)
    whole = window_of(data, 50, centre, geometry, 1.6)
    held = (whole.X.unsqueeze(1) == data.X).all(-1).any(0)
    inside = ((data.X - centre).abs() <= 1.6 * geometry.shape).all(-1)
    inside[-50:] = True
    best = data.y.masked_fill(~inside, -math.inf).topk(WINDOW // 4).indices
    newest = inside.nonzero().squeeze(-1)[-WINDOW // 4 :]
    assert len(whole) == WINDOW and held[best].all() and held[newest].all()
    again = window_of(data, 50, centre, geometry, 1.6)
    assert torch.equal(whole.X, again.X)
    near = window_of(data, 50, centre, geometry, 0.05)
    held = (near.X.unsqueeze(1) == data.X).all(-1).any(0)
    away = ((data.X - centre) / LENGTHS).square().sum(-1)
    away[-50:] = -1.0
    assert len(near) == WINDOW and held[away.argsort()[:WINDOW]].all()
    low = replace(rows(9), Y=torch.tensor([[-1e9, 0.0, 1, 2, 3, 4, 5, 6, 7]]).double())
    assert float(window_of(low, 1, centre, geometry, 0.8).Y.min()) == 3.0 - 2.0 * (7.0 - 3.0)


def told(state, gain, step=0.1, q=4):
    """The state after a batch whose best outcome gains so much over the best, exact."""
    archive, region = state.archive, state.region
    X = region.centre + step * WIDTH * torch.tensor([[1.0], [-1], [0.5], [0.2]]).double()
    best = float(archive.y.max()) if len(archive) else float(state.closed.value.max())
    Y = best + torch.tensor([[gain, -2.0, -3.0, -4.0]]).double()
    return regions.absorbed(state, Rows(X, Y, torch.ones_like(Y)), q, CUBE, None)


def begun():
    state = TrustRegionState.empty(3)
    state = regions.absorbed(state, rows(8), 50, CUBE, None)
    assert (
        regions.fit_due(state, 8)
        and not regions.fit_due(state, 9)
        and len(state.rows) == len(state.pending) == 8
    )
    state = regions.fitted(regions.design_completed(state, CUBE), None)
    assert not regions.fit_due(state, 8) and len(state.pending) == 0
    return state


def test_successes_and_failures():
    """log L moves by a fifth towards log(3 e), e = 2 max |step|; two failures halve it."""
    state = begun()
    new = told(state, 1.0)
    assert math.isclose(float(new.region.size), 0.8**0.8 * 0.6**0.2, rel_tol=1e-12)
    assert torch.equal(new.region.centre, new.archive.X[8])
    assert float(new.archive.y.max()) == float(state.archive.y.max()) + 1.0
    worse = told(new, 1e-9)
    assert float(worse.region.size) == float(new.region.size)
    worse = told(worse, -1.0)
    assert float(worse.region.size) == float(new.region.size) / 2.0
    assert regions.fit_due(worse, 8) and float(worse.archive.y.max()) > float(new.archive.y.max())


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
    assert float(state.closed.value[0]) == float(before.archive.y.max())
    assert not state.region.begun and not len(state.archive) and not len(state.pending)
    assert len(state.window) > 0
    late = told(replace(state, region=before.region.changed(fitted=0.0)), 1.0, step=1e-7)
    assert not len(late.archive) and not len(late.pending)  # no design of the next
    assert float(late.closed.value[0]) == float(before.archive.y.max()) + 1.0
