"""Ctrl-C at any line of a fit or an observe leaves a CaGP whose parts belong together."""

import copy
import random

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bo_stream import CaGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.testing.wholeness import interrupted, lines_of
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
    """Parts belong together, and nothing better was seen."""
    X, Y = data(16)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    fresh = CaGP(X, Y, covar_module=kernel, actions=policy, **RAW)
    fresh.posterior(X[:2])
    options = {"progress": lambda *_: None} if policy.learned else {}
    whole = lines_of(lambda: copy.deepcopy(fresh).fit(18, **options))
    for stop_at in random.Random(0).sample(range(1, whole), 6):
        m, seen = copy.deepcopy(fresh), []
        if policy.learned:
            options = {"progress": lambda _, value, seen=seen: seen.append(value)}
        interrupted(lambda m=m, options=options: m.fit(18, **options), stop_at)
        assert not m.training
        parts_belong_together(m)
        if seen:
            reached = m.make_mll()().item()
            assert reached >= max(seen) - 1e-6 * abs(max(seen))
        assert m.fit(3).evaluations <= 3


def test_an_interrupted_fit_goes_back_to_the_best_point_of_all_stages():
    m, seen = CaGP(*data(60), actions=BlockSparse(8), **RAW), []

    def progress(_, value):
        seen.append(value)
        if len(seen) == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        m.fit(40, optimizer="adam", lr=0.8, progress=progress)
    assert seen[-1] < max(seen)
    assert abs(m.make_mll()().item() - max(seen)) < 1e-6 * abs(max(seen))
    parts_belong_together(m)
