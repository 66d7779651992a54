"""Ctrl-C at any line of a fit or an observe leaves a CaGP whose parts belong together."""

import copy
import random

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bo_stream import CaGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.testing.wholeness import interrupted, lines_of
from tests.calls import failing
from tests.raw import RAW


def data(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return X, torch.sin(6 * X[:, :1]) + 0.05 * torch.randn(n, 1, generator=generator).double()


def parts_belong_together(m):
    """The posterior is that of another object with the same data, actions and hyperparameters."""
    Xs = data(7, seed=9)[0]
    rebuilt = CaGP(
        m.state.X,
        m.state.Y[:, None],
        covar_module=copy.deepcopy(m.covar_module),
        likelihood=copy.deepcopy(m.likelihood),
        mean_module=copy.deepcopy(m.mean_module),
        actions=m.actions,
        **RAW,
    )
    rebuilt._use_actions(m.S)
    a, b = m.posterior(Xs), rebuilt.posterior(Xs)
    if not m.actions.follows_hyperparameters:
        ones = torch.ones_like(m.state.Y)
        assert torch.allclose(m.S.gram(ones).diagonal(), torch.ones(m.num_actions).double())
    assert torch.allclose(a.mean, b.mean, atol=1e-8)
    assert torch.allclose(a.variance, b.variance, atol=1e-8)


SLOW = pytest.param(ConjugateGradient(4), marks=pytest.mark.slow)


@pytest.mark.parametrize("policy", [BlockSparse(4), SLOW])
def test_an_interrupted_fit(policy):
    """Parts belong together, and the fit has lost nothing."""
    X, Y = data(16)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    fresh = CaGP(X, Y, covar_module=kernel, actions=policy, **RAW)
    fresh.posterior(X[:2])
    before = fresh.make_mll()().item()
    whole = lines_of(lambda: copy.deepcopy(fresh).fit(18))
    for stop_at in random.Random(0).sample(range(1, whole), 6):
        m = copy.deepcopy(fresh)
        interrupted(lambda m=m: m.fit(18), stop_at)
        assert not m.training
        parts_belong_together(m)
        if policy.learned:
            assert m.make_mll()().item() >= before - 1e-9
        assert m.fit(3).evaluations <= 3


def test_an_interrupted_fit_goes_back_to_the_best_point_of_all_stages():
    """Ctrl-C at the start of the second stage, whose new values have lost what was learned."""
    m, once = (CaGP(*data(60), actions=BlockSparse(8), **RAW) for _ in range(2))
    best = once.fit(1).value
    with failing(BlockSparse.build, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        m.fit(60)  # after ten evaluations
    assert m.make_mll()().item() > best + 1.0
    parts_belong_together(m)
