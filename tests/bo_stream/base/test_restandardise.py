"""Changing the units of the targets is exact where the state depends on the batches, too."""

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import surrogate
from bo_stream.actions import BlockSparse
from bo_stream.growth import FixedGrid
from bo_stream.testing.base import close

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
NODES, TEST = torch.rand(
    37, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
).split([30, 7])
STREAMS = {
    "online_sgpr": {"growth": FixedGrid(NODES)},
    "svdgp": {"growth": FixedGrid(NODES), "tolerance": 1e-12},
    "cagp": {"actions": BlockSparse(32)},  # not compressed: what that keeps depends on units
}


def data(outputs):
    generator = torch.Generator().manual_seed(3)
    X = torch.rand(40, 2, generator=generator, dtype=torch.float64)
    Y = 5.0 + 3.0 * torch.sin(6.0 * X) + torch.randn(40, 2, generator=generator).double()
    Yvar = 0.1 + torch.rand(40, 2, generator=generator, dtype=torch.float64)
    return X, Y[:, :outputs], Yvar[:, :outputs]


def built(family, noise, X, Y, Yvar, transform):
    options = dict(STREAMS[family])
    if noise == "scaled":
        options["likelihood"] = GaussianLikelihood()
    return surrogate(
        family,
        X,
        Y,
        None if noise == "learned" else Yvar,
        bounds=BOUNDS,
        outcome_transform=transform,
        **options,
    )


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize("family", ["online_sgpr", "cagp", "svdgp"])
def test_equals_a_replay(family, noise):
    """It is that of the same batches in the new units."""
    X, Y, Yvar = data(1)
    parts = [[t[a:b] for t in (X, Y, Yvar)] for a, b in ((0, 10), (10, 25), (25, 40))]
    new = Standardize(1)
    new(Y)
    stream = built(family, noise, *parts[0], Standardize(1))
    replay = built(family, noise, X[:0], Y[:0], Yvar[:0], new.eval())
    old = stream.outcome_transform  # the prior mean is a value of the function, too
    replay.mean_module.constant = ((old.means - new.means) / new.stdvs).squeeze()
    for model, batches in ((stream, parts[1:]), (replay, parts)):
        for part in batches:
            batch = part[:2] if noise == "learned" else part
            model.observe(*batch, refit=False)
    replay.mean_module.constant = 0.0
    stream.posterior(X[:3])  # a cache that must not survive
    stream.restandardise(Y)
    for _ in range(2):
        mine, theirs = stream.posterior(TEST), replay.posterior(TEST)
        close(mine.mean, theirs.mean, 1e-9)
        close(mine.variance, theirs.variance, 1e-10)
        close(stream.typical_noise(), replay.typical_noise(), 1e-10)
        for model in (stream, replay):  # from here on too, under other hyperparameters
            model.covar_module.outputscale = 0.7
            model.mean_module.constant = 0.3
        close(stream.make_mll()(), replay.make_mll()(), 1e-10)
        for model in (stream, replay):
            model.observe(*(parts[0][:2] if noise == "learned" else parts[0]), refit=False)
