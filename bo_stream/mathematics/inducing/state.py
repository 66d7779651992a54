"""State and update of the online sparse GP, in a stable information form (MATHS 3) [Bui, VIPS].

The old posterior over ``a = f(Z_o)`` is a Gaussian likelihood ``l(a)`` times the prior. The
likelihood is kept, not the posterior: it is additive over batches, and a function of function
*values*, hence unchanged when hyperparameters, the inducing points or the prior mean change. In
whitened coordinates ``v = L^-1 (a - m)``

    l(a) = exp(-1/2 v'G v + c'v),   B = I + G,
    kappa = log int N(v; 0, I) l dv = 1/2 c'B^-1 c - 1/2 log|B|.

``B >= I``, so its Cholesky factorisation needs no jitter, and no inverses are subtracted: the
``(S^-1 - K^-1)^-1`` of the published algorithms fails, or has errors of 1e-3 to 1e+1 (MATHS 3.8).

Letters: ``a``, ``o`` the old inducing points and state, ``b``, ``n`` the new ones, ``f`` the batch;
``N`` batch size, ``M`` inducing points; ``d`` noise variances. Everything is float64, in
transformed space, and differentiable in the new hyperparameters, the new mean, the noise and the
new points; the old state is a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = [
    "Batch",
    "SGPRState",
    "dense",
    "diagonal",
    "empty_state",
    "eye",
    "factor_B",
    "joined",
    "log_gaussian_terms",
    "solve",
    "thinned",
]


@dataclass(frozen=True)
class SGPRState:
    """State of an online sparse GP: O(M^2) numbers, whatever n is (MATHS 3.2).

    Attributes:
        Z: Inducing points, ``M x d``.
        L: ``chol(K(Z, Z) + diag(nugget))`` under the last update's kernel, ``M x M``.
        nugget: Variances of the independent noise of the values at Z, ``M``, which makes K positive
            definite in floating point.
        G: Whitened precision of the likelihood of ``f(Z)``, ``M x M``, positive semi-definite.
        c: Whitened linear term, ``M``.
        mean: The constant prior mean ``m_o``, 0-dim.
        kappa: Log normaliser, 0-dim.
        jitter: The nugget of a new point, relative to the mean prior variance at Z.
    """

    Z: Tensor = shaped("M d")
    L: Tensor = shaped("M M")
    nugget: Tensor = shaped("M", "not negative")
    G: Tensor = shaped("M M")
    c: Tensor = shaped("M")
    mean: Tensor = shaped("")
    kappa: Tensor = shaped("")
    jitter: float = 1e-8

    @property
    def size(self) -> int:
        """The number of inducing points ``M``."""
        return self.Z.shape[0]

    def in_units(self, shift: Tensor, factor: Tensor, precision: Tensor) -> SGPRState:
        """The likelihood of values ``(f - shift) / factor``, all of them 0-dim.

        ``precision`` is ``factor^2`` where the noise of the data is in their units, else 1.
        """
        G, c = precision * self.G, precision / factor * self.c
        mean = (self.mean - shift) / factor
        return replace(self, G=G, c=c, mean=mean, kappa=factor_B(G, c)[2])


@dataclass(frozen=True)
class Batch:
    """A batch of data in transformed space, with context for growth policies.

    Attributes:
        X: Points, ``N x d``.
        y: Targets, ``N`` (the prior mean not subtracted).
        noise: Noise variances ``d``, ``N``.
        moments: ``(n, mean, sum of squared deviations)`` of all targets so far, this batch
            included.
        index: Number of batches before this one.
    """

    X: Tensor = shaped("N d")
    y: Tensor = shaped("N")
    noise: Tensor = shaped("N", "positive")
    moments: tuple[float, float, float] | None = None
    index: int = 0

    @property
    def size(self) -> int:
        """The number of points ``N``."""
        return self.X.shape[0]


def thinned(batch: Batch, rows: int) -> Batch:
    """A batch reduced to at most this many rows, evenly spaced."""
    if batch.size <= rows:
        return batch
    keep = torch.linspace(0, batch.size - 1, rows, device=batch.y.device).long()
    return replace(batch, X=batch.X[keep], y=batch.y[keep], noise=batch.noise[keep])


def joined(first: Batch, second: Batch) -> Batch:
    """The rows of two batches, with the context of the second."""
    pairs = ((first.X, second.X), (first.y, second.y), (first.noise, second.noise))
    X, y, noise = (torch.cat(pair) for pair in pairs)
    return replace(second, X=X, y=y, noise=noise)


def dense(kernel: Kernel, X: Tensor, Z: Tensor | None = None) -> Tensor:
    """Kernel matrix ``K(X, Z)`` (``K(X, X)`` without Z), float64."""
    return kernel(X, X if Z is None else Z).to_dense().to(torch.float64)


def diagonal(kernel: Kernel, X: Tensor) -> Tensor:
    """Prior variances at X, ``N``, float64."""
    return kernel(X, diag=True).to(torch.float64)


def empty_state(X: Tensor, mean: Tensor, jitter: float = 1e-8) -> SGPRState:
    """The state before any data; X (``n x d``) gives dimension and device only."""
    zero = X.new_zeros((), dtype=torch.float64)
    square = zero.new_zeros(0, 0)
    Z = zero.new_zeros(0, X.shape[-1])
    nothing = zero.new_zeros(0)
    return SGPRState(Z, square, nothing, square, nothing, mean.to(zero), zero, jitter)


def solve(L: Tensor, B: Tensor) -> Tensor:
    """``L^-1 B`` for a lower triangular L; B is a matrix or a vector."""
    if B.ndim == 1:
        return solve(L, B.unsqueeze(-1)).squeeze(-1)
    return torch.linalg.solve_triangular(L, B, upper=False)


def factor_B(G: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``L_B = chol(I + G)``, ``beta = L_B^-1 c`` and ``kappa`` (MATHS 3.2), O(M^3)."""
    L_B = torch.linalg.cholesky(G + eye(G, G.shape[-1]))
    beta = solve(L_B, c)
    return L_B, beta, 0.5 * beta.square().sum() - L_B.diagonal().log().sum()


def eye(like: Tensor, size: int) -> Tensor:
    """The identity, float64, where ``like`` is."""
    return torch.eye(size, dtype=torch.float64, device=like.device)


def log_gaussian_terms(e: Tensor, d: Tensor) -> Tensor:
    """``sum_i -1/2 [log(2 pi d_i) + e_i^2 / d_i]``."""
    return -0.5 * ((2.0 * math.pi * d).log() + e.square() / d).sum()
