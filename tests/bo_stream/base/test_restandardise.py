"""Changing the units of the targets is exact: the state equals that of a rebuild."""

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import ExactGP, surrogate
from bo_stream.actions import BlockSparse
from bo_stream.errors import ShapeError, UnsupportedError
from bo_stream.growth import FixedGrid
from bo_stream.testing.base import close
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FAMILIES = {
    "wiski": {"grid_size": 9},
    "wiski on many nodes": {"grid_size": 23},  # 529: an eigenbasis pays from 500 on
    "hsgp": {"num_features": 40},
    "exact": {},
    "node_wiski": {"tolerance": 0.0},
}
NODES, TEST = torch.rand(
    37, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
).split([30, 7])
STREAMS = {
    "online_sgpr": {"growth": FixedGrid(NODES)},
    "svdgp": {"growth": FixedGrid(NODES), "tolerance": 1e-12},
    "cagp": {
        "actions": BlockSparse(8),
        "max_actions": 100,
    },  # what compression keeps depends on units
}
CASES = [("learned", 1), ("learned", 2), ("known", 1), ("known", 2), ("scaled", 1)]


def data(outputs):
    generator = torch.Generator().manual_seed(3)
    X = torch.rand(40, 2, generator=generator, dtype=torch.float64)
    Y = 5.0 + 3.0 * torch.sin(6.0 * X) + torch.randn(40, 2, generator=generator).double()
    Yvar = 0.1 + torch.rand(40, 2, generator=generator, dtype=torch.float64)
    return X, Y[:, :outputs], Yvar[:, :outputs]


def built(family, noise, X, Y, Yvar, transform):
    options = dict((FAMILIES | STREAMS)[family])
    if noise == "scaled":
        options["likelihood"] = GaussianLikelihood()
    return surrogate(
        family.split()[0],
        X,
        Y,
        None if noise == "learned" else Yvar,
        bounds=BOUNDS,
        outcome_transform=transform,
        **options,
    )


@pytest.mark.parametrize(("noise", "outputs"), CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_a_rebuild(family, noise, outputs):
    X, Y, Yvar = data(outputs)
    stream = built(family, noise, X[:10], Y[:10], Yvar[:10], Standardize(outputs))
    parts = (X[10:], Y[10:]) if noise == "learned" else (X[10:], Y[10:], Yvar[10:])
    stream.observe(*parts)
    stream.posterior(X[:3])  # a cache that must not survive
    stream.restandardise(Y)
    fresh = built(family, noise, X, Y, Yvar, Standardize(outputs))
    for mine, theirs in zip(stream.stream.buffers(), fresh.stream.buffers(), strict=True):
        close(mine, theirs, 1e-10)
    mine, theirs = stream.posterior(TEST), fresh.posterior(TEST)
    close(mine.mean, theirs.mean, 1e-10)
    close(mine.variance, theirs.variance, 1e-10)
    close(stream.log_evidence(), fresh.log_evidence(), 1e-10)
    close(stream.typical_noise(), fresh.typical_noise(), 1e-10)


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize("family", ["online_sgpr", "cagp", "svdgp"])
def test_equals_a_replay(family, noise):
    """Where the state depends on the batches it came in: those batches, in the new units."""
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


def test_refuses_what_it_cannot_do():
    X, Y, _ = data(1)
    with pytest.raises(UnsupportedError, match="Standardize"):
        ExactGP(X, Y, **RAW).restandardise(Y)
    model = built("exact", "learned", X, Y, None, Standardize(1))
    with pytest.raises(ShapeError):
        model.restandardise(Y[:, 0])
