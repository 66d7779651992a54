"""A GP with a basis for the mean and another for the covariance, trained as in its paper.

[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity;
as corrected in MATHS 6.1 to 6.3.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.kernels import frozen_kernel
from experiments.common.baselines.baseline import Baseline, shares, trained
from experiments.common.baselines.modules import learned
from experiments.common.baselines.reservoir import Reservoir


@dataclass(frozen=True, eq=False)
class Decoupled:
    """A Gaussian process of prior mean zero: mean basis ``M_a x d``, its coefficients, covariance
    basis ``M_b x d``, and the root of ``B = L L'``.
    """

    alpha: Tensor
    a: Tensor
    beta: Tensor
    L: Tensor


def moments(q: Decoupled, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the function at ``n x d`` points, ``n`` each (MATHS 6.1)."""
    S = torch.linalg.solve_triangular(
        _factor(q, kernel(q.beta, q.beta).to_dense()),
        q.L.mT @ kernel(q.beta, X).to_dense(),
        upper=False,
    )
    mean = kernel(X, q.alpha).to_dense() @ q.a
    return mean, kernel(X, diag=True) - S.square().sum(0)


def gradients(
    q: Decoupled,
    kernel: Kernel,
    noise: float,
    X: Tensor,
    y: Tensor,
    total: int,
    columns: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of the bound in ``a`` and ``L`` (MATHS 6.3), without a graph.

    O(N_m M_a + s M_a + N_m M_b^2 + M_b^3) for a minibatch of N_m rows and s columns: linear in the
    mean basis. Unbiased, if rows and columns are drawn uniformly.

    The minibatch, ``N_m x d`` and ``N_m``, less the prior mean, stands for ``total`` rows, the
    columns of ``K_alpha`` with these indices for all; None: all, O(M_a^2).
    """
    scale, K_x = total / len(X), kernel(X, q.alpha).to_dense()
    g_m = scale / noise * (y - K_x @ q.a)
    if columns is None:
        K_a = kernel(q.alpha, q.alpha).to_dense() @ q.a
    else:
        drawn = kernel(q.alpha, q.alpha[columns]).to_dense() @ q.a[columns]
        K_a = len(q.a) / len(columns) * drawn
    K, K_bx = kernel(q.beta, q.beta).to_dense(), kernel(q.beta, X).to_dense()
    root = torch.linalg.solve_triangular(_factor(q, K), q.L.mT, upper=False)
    C = K - (root @ K).mT @ (root @ K)  # (I + K B)^-1 K
    P = K_bx - (root @ K).mT @ (root @ K_bx)  # (I + K B)^-1 K_bx
    d_B = 0.5 * (scale / noise * P @ P.mT - (C @ q.L) @ (C @ q.L).mT)
    return K_x.mT @ g_m - K_a, 2.0 * d_B @ q.L


def grown(q: Decoupled, alpha: Tensor, beta: Tensor, noise: float) -> Decoupled:
    """The process with points added to both bases.

    The mean stays as it is; the covariance is that given an observation at each new point of its
    basis (MATHS 6.6), for new columns of zeros would be a saddle (E-S4).
    """
    start = torch.eye(len(beta)).to(q.L) / noise**0.5
    return replace(
        q,
        alpha=torch.cat([q.alpha, alpha]),
        a=torch.cat([q.a, q.a.new_zeros(len(alpha))]),
        beta=torch.cat([q.beta, beta]),
        L=torch.block_diag(q.L, start),
    )


def _factor(q: Decoupled, K: Tensor) -> Tensor:
    """``chol(I + L'K L)``."""
    H = q.L.mT @ K @ q.L
    return torch.linalg.cholesky(H + torch.eye(len(H)).to(H))


class StochasticDecoupled(Baseline):
    """Coefficients and root of the covariance climb the bound by Adam, at the paper's rates.

    Step t has the rate ``rate / (1 + 0.1 sqrt t)`` [C.2]. In a stream the bound counts all rows
    seen so far and minibatches come from a uniform reservoir of them (MATHS 6.7). New rows join
    both bases until these are full; then Adam's moments start anew. Hyperparameters are those of
    greatest evidence of at most 600 rows of the first batch, and stay.

    Args:
        mean_basis, covar_basis: The most points of each.
        reservoir: Rows kept.
        minibatch: Rows of one step, and columns of ``K_alpha``.
        rate, seed: Adam's first rate; the seed of all that is random.
        own: Modules with hyperparameters to be taken instead of learned.
    """

    alone = "the stochastic decoupled GP, a baseline that predicts one point at a time"

    def __init__(
        self,
        mean_basis: int = 4096,
        covar_basis: int = 128,
        reservoir: int = 8192,
        minibatch: int = 256,
        rate: float = 0.1,
        seed: int = 0,
        own: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.mean_basis, self.covar_basis = mean_basis, covar_basis
        self.minibatch, self.rate, self.seed, self.own = minibatch, rate, seed, own
        self.steps = 0
        self._rows = Reservoir(reservoir, seed)
        self._q: Decoupled | None = None

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        self._rows.add(X, Y)
        if self._q is None:
            own = learned(X, Y, self.seed) if self.own is None else self.own
            self._kernel = frozen_kernel(own["covar_module"])
            self._noise = float(own["likelihood"].noise)
            self._mean = float(own["mean_module"].constant)
            none, empty = X.new_empty(0, X.shape[1]), X.new_empty(0)
            self._q = Decoupled(none, empty, none, X.new_empty(0, 0))
        room = self.mean_basis - len(self._q.alpha), self.covar_basis - len(self._q.beta)
        order = self._rows.some(len(X), len(X))
        alpha, beta = (X[order[:count]] for count in room)
        if len(alpha) or len(beta):
            self._q = grown(self._q, alpha, beta, self._noise)
            self._adam = torch.optim.Adam([self._q.a, self._q.L], maximize=True)

    def _learn(self, seconds: float) -> None:
        for _ in shares(seconds, self.clock):
            self.step()

    def step(self) -> None:
        """One step of Adam: linear in the mean basis."""
        q = trained(self._q)
        self.steps += 1
        self._adam.param_groups[0]["lr"] = self.rate / (1.0 + 0.1 * self.steps**0.5)
        X, y = self._rows.minibatch(self.minibatch)
        columns, seen = self._rows.some(len(q.a), self.minibatch), self._rows.seen
        centred = y - self._mean
        q.a.grad, q.L.grad = gradients(q, self._kernel, self._noise, X, centred, seen, columns)
        self._adam.step()

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        mean, variance = moments(trained(self._q), self._kernel, X)
        return mean + self._mean, variance + self._noise
