"""Streams with known hyperparameters, and the dense algebra they are held against."""

import gpytorch
import torch

from bo_stream import SVDGP
from bo_stream.growth import FixedGrid
from bo_stream.mathematics.inducing import dense, noisy_kernel
from tests.bo_stream.mathematics.sgpr_cases import se_kernel
from tests.raw import RAW

NOISE = 0.04
MEAN = 0.3


def rows(n, d=2, seed=0):
    """Points, targets and noise variances of a smooth function."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    D = NOISE * torch.exp(0.5 * torch.randn(n, generator=g, dtype=torch.float64))
    y = torch.sin(5.0 * X).sum(-1) + D.sqrt() * torch.randn(n, generator=g, dtype=torch.float64)
    return X, y, D


def kernel(d=2, ls=0.4):
    return se_kernel(1.3, (ls,) * d)


def stream(X, y, D=None, cuts=(), Z=None, **kw):
    """A surrogate with fixed hyperparameters that has seen the rows, in the parts given by cuts."""
    if Z is not None:
        kw.setdefault("growth", FixedGrid(Z))
    if D is None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = torch.tensor(NOISE, dtype=torch.float64)
        kw["likelihood"] = likelihood
    kw.setdefault("covar_module", kernel(X.shape[-1]))
    Y, Yvar = y.unsqueeze(-1), None if D is None else D.unsqueeze(-1)
    mean = gpytorch.means.ConstantMean().double()
    mean.constant = torch.tensor(MEAN, dtype=torch.float64)
    nothing = None if Yvar is None else Yvar[:0]
    model = SVDGP(X[:0], Y[:0], nothing, mean_module=mean, **{**RAW, **kw})
    for a, b in zip((0, *cuts), (*cuts, len(X)), strict=True):
        model.observe(X[a:b], Y[a:b], None if Yvar is None else Yvar[a:b])
    return model


def exact(K_xX, K_xx, K_XX, e, D):
    """Mean (less the prior's) and covariance of a Gaussian process given noisy values."""
    gain = torch.linalg.solve(K_XX + torch.diag(D), K_xX.mT).mT
    return gain @ e, K_xx - gain @ K_xX.mT


def sgpr(k, X, e, D, Z, Xs, Xt):
    """Titsias' posterior from the textbook: means at Xs, covariances between Xs and Xt."""
    K = noisy_kernel(k, Z, 1e-8)
    K_zx, K_zs, K_zt = dense(k, Z, X), dense(k, Z, Xs), dense(k, Z, Xt)
    S = torch.linalg.inv(K + (K_zx / D) @ K_zx.mT)
    prior = dense(k, Xs, Xt) - K_zs.mT @ torch.linalg.solve(K, K_zt)
    return K_zs.mT @ S @ (K_zx @ (e / D)), prior + K_zs.mT @ S @ K_zt
