"""The baseline: an exact Gaussian process behind the streaming interface.

It keeps its data, so its state and the cost of a step grow with n. The streaming families are
compared with it. Fantasies come from the shared conditioned posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack, cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.base.fitting.evidence import log_evidence
from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.mathematics.linalg import LEAST, REPAIR, chol_psd
from bo_stream.mathematics.posterior.expansion import Expansion
from bo_stream.mathematics.posterior.factor import FactorGaussian, cross_kernel, frozen_kernel
from bo_stream.mathematics.posterior.paths import prior_path, solved, times
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path, PosteriorProcess
from bo_stream.mathematics.shapes import shaped

__all__ = ["ExactGP"]

BORDERED = 64
"""Largest number of points by which the posterior's factor is bordered; for more it is rebuilt."""


@dataclass(frozen=True)
class ExactState:
    """All data: points, targets, and noise variances before any learned scale."""

    X: Tensor = shaped("n d")
    Y: Tensor = shaped("o n")
    R: Tensor = shaped("o n", "positive")

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> ExactState:
        """The data with targets ``(y - shift) / factor`` and known noise scaled to match."""
        R = self.R / factor.square().unsqueeze(-1) if known_noise else self.R
        return ExactState(self.X, (self.Y - shift.unsqueeze(-1)) / factor.unsqueeze(-1), R)


@dataclass(frozen=True)
class ExactProcess(ExpandedProcess):
    """Posterior of an exact GP: ``A_x = L^-1 k(X, x)``, mean ``c + A_x' L^-1 (y - c)``."""

    kernel: Kernel
    X: Tensor
    L: Tensor
    w: Tensor
    noise: Tensor
    mean: Tensor

    def at(self, X: Tensor) -> FactorGaussian:
        """The joint posterior at points ``batch x q x d``: O(n^2 q).

        A single triangular solve for the whole batch, since a batched one would copy the factor.
        """
        K = cross_kernel(self.kernel, X.reshape(-1, X.shape[-1]), self.X)
        A_t = torch.linalg.solve_triangular(self.L.mT, K, upper=True, left=False)
        mean = self.mean.unsqueeze(-1) + (A_t @ self.w.unsqueeze(-1)).squeeze(-1)
        shape = X.shape[:-1]
        A = A_t.unflatten(-2, shape).movedim(0, -3).mT
        return FactorGaussian(mean.unflatten(-1, shape).movedim(0, -2), X, self.kernel, A)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on random features of the prior."""
        prior = prior_path(self.kernel, self.X.shape[-1], self.mean, sample_shape, self.X)
        values = prior(self.X)
        noisy = values + self.noise.sqrt() * torch.randn_like(values) - self.mean.unsqueeze(-1)
        gap = self.w - solved(self.L, noisy, upper=False)
        weights = solved(self.L.mT, gap, upper=True)
        return lambda X: prior(X) + times(cross_kernel(self.kernel, X, self.X), weights)

    def expansion(self, before: Expansion | None) -> Expansion:
        """The expansion in kernel functions at the data."""

        def values(X: Tensor, first: int) -> Tensor:
            return cross_kernel(self.kernel, self.X[first:], X)

        return Expansion(self.kernel, self.L, None, values, (self.X, self.L))

    def bordered(self, X: Tensor, Y: Tensor, noise: Tensor) -> ExactProcess:
        """The process given more data (``q x d``, ``o x q``, ``o x q``): O(n^2 q)."""
        n, cross = len(self.X), cross_kernel(self.kernel, self.X, X)
        below = torch.linalg.solve_triangular(self.L, cross, upper=False).mT
        corner = cross_kernel(self.kernel, X, X) + torch.diag_embed(noise) - below @ below.mT
        L = self.L.new_zeros(len(self.L), n + len(X), n + len(X))
        L[:, :n, :n], L[:, n:, :n], L[:, n:, n:] = self.L, below, chol_psd(corner)
        gap = Y - self.mean.unsqueeze(-1) - (below @ self.w.unsqueeze(-1)).squeeze(-1)
        w = torch.linalg.solve_triangular(L[:, n:, n:], gap.unsqueeze(-1), upper=False)
        w = torch.cat([self.w, w.squeeze(-1)], -1)
        D, points = torch.cat([self.noise, noise], -1), torch.cat([self.X, X])
        return ExactProcess(self.kernel, points, L, w, D, self.mean)


class ExactGP(StreamingGP):
    """Exact GP inference with gpytorch's kernels and likelihoods; it keeps all data.

    Memory O(n^2) for the posterior's cache. An evaluation of the evidence, and the first posterior
    under new hyperparameters, take O(n^3). After an `observe` of q points (at most 64) the next
    posterior takes O(n^2 q), then O(n^2) per point. Outputs are independent.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module``, ``mean_module``, ``likelihood``, ``input_transform``,
            ``outcome_transform``: see `CommonOptions`.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = ExactGP(X, X.sum(-1, keepdim=True))
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True,
        bytes_constant=False,
        updates_without_drift=300,
        multi_output=True,
        keeps_data=True,
    )

    _update_limit = BORDERED

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self._begin(train_X, train_Y, train_Yvar)

    def _empty_state(self) -> ExactState:
        empty = torch.empty(0, dtype=torch.float64)
        targets = empty.new_empty(self.num_outputs, 0)
        return ExactState(empty.new_empty(0, self._dim), targets, targets.clone())

    def _absorb(
        self, state: ExactState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> ExactState:
        columns = (state.Y, Y), (state.R, R.expand(Y.shape))
        return ExactState(torch.cat([state.X, X]), *(torch.cat(pair, -1) for pair in columns))

    def _targets(self, state: ExactState) -> Tensor:
        """What the process models, ``o x n``."""
        return state.Y

    def _factor(self, state: ExactState, least: float = LEAST) -> tuple[Tensor, Tensor]:
        """Cholesky factor of ``K + D`` (``o x n x n``) and the noise (``o x n``),
        differentiable; ``least`` as in `chol_psd`.
        """
        noise = self._noise_scale().unsqueeze(-1) * state.R
        K = cross_kernel(self.covar_module, state.X, state.X)
        return chol_psd(K + torch.diag_embed(noise), least=least), noise

    def _build_process(self, state: ExactState) -> ExactProcess:
        L, noise = self._factor(state)
        mean = self._prior_mean().detach().clone()
        w = torch.linalg.solve_triangular(
            L, (self._targets(state) - mean.unsqueeze(-1)).unsqueeze(-1), upper=False
        )
        kernel = frozen_kernel(self.covar_module)
        return ExactProcess(kernel, state.X, L, w.squeeze(-1), noise, mean)

    def _update_process(
        self, process: PosteriorProcess, X: Tensor, Y: Tensor, R: Tensor
    ) -> ExactProcess:
        """Border the factor: O(n^2 q)."""
        noise = self._noise_scale().unsqueeze(-1) * R
        return cast(ExactProcess, process).bordered(X, Y, noise.expand(Y.shape))

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence summed over outputs: O(n^3)."""
        state = cast(ExactState, self.state)
        L, _ = self._factor(state, REPAIR)
        known = None if profile_mean and len(state.X) else self._prior_mean()
        return log_evidence(L, self._targets(state), known)
