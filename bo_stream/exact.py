"""The baseline: an exact Gaussian process behind the streaming interface.

It keeps its data by design, so its state and the cost of a step grow with n: that is what the
streaming families are compared with. Fantasies come from the shared conditioned posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Size, Tensor

from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.linalg import chol_psd
from bo_stream.posterior.factor import FactorGaussian, cross_kernel, frozen_kernel
from bo_stream.posterior.paths import prior_path
from bo_stream.posterior.process import Path, PosteriorProcess

__all__ = ["ExactGP"]


@dataclass(frozen=True)
class ExactProcess:
    """Posterior of an exact GP: ``A_x = L^-1 k(X, x)``, mean ``c + A_x' L^-1 (y - c)``."""

    kernel: Kernel
    X: Tensor
    L: Tensor
    w: Tensor
    noise: Tensor
    mean: Tensor

    def at(self, X: Tensor) -> FactorGaussian:
        """The law at points ``batch x q x d``: O(n^2 q).

        One triangular solve for the whole batch: a batched one would copy the factor per batch.
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
        gap = self.w.unsqueeze(-1) - torch.linalg.solve_triangular(
            self.L, noisy.unsqueeze(-1), upper=False
        )
        weights = torch.linalg.solve_triangular(self.L.mT, gap, upper=True)
        return lambda X: prior(X) + (cross_kernel(self.kernel, X, self.X) @ weights).squeeze(-1)


class ExactGP(StreamingGP):
    """Exact GP inference with gpytorch's kernels and likelihoods; keeps all data (state grows with
    n).

    Memory O(n^2) for the posterior's cache, O(n^3) per evidence evaluation and per posterior after
    an `observe`, then O(n^2) a point; m independent outputs.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
        `StreamingGP`.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = ExactGP(X, X.sum(-1, keepdim=True))
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=True
    )
    X: Tensor
    Y: Tensor
    R: Tensor

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            bounds=bounds,
            covar_module=covar_module,
            mean_module=mean_module,
            likelihood=likelihood,
            input_transform=input_transform,
            outcome_transform=outcome_transform,
        )
        empty = torch.empty(0, dtype=torch.float64)
        self._register_state("X", empty.new_empty(0, self._dim))
        self._register_state("Y", empty.new_empty(self.num_outputs, 0))
        self._register_state("R", empty.new_empty(self.num_outputs, 0))
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        R = torch.ones_like(Y) if Yvar is None else Yvar
        new = torch.cat([self.X, X]), torch.cat([self.Y, Y], -1), torch.cat([self.R, R], -1)
        self.X, self.Y, self.R = new

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        self.Y = (self.Y - shift.unsqueeze(-1)) / factor.unsqueeze(-1)
        if self.noise_mode != "learned":
            self.R = self.R / factor.square().unsqueeze(-1)

    def _factor(self) -> tuple[Tensor, Tensor]:
        """Cholesky factor of ``K + D`` (``o x n x n``) and the noise (``o x n``),
        differentiable.
        """
        noise = self._noise_scale().unsqueeze(-1) * self.R
        K = cross_kernel(self.covar_module, self.X, self.X)
        return chol_psd(K + torch.diag_embed(noise)), noise

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        L, noise = self._factor()
        mean = self._prior_mean().detach().clone()
        w = torch.linalg.solve_triangular(
            L, (self.Y - mean.unsqueeze(-1)).unsqueeze(-1), upper=False
        )
        kernel = frozen_kernel(self.covar_module)
        return ExactProcess(kernel, self.X, L, w.squeeze(-1), noise, mean)

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence summed over outputs: O(n^3)."""
        n = self.X.shape[0]
        L, _ = self._factor()
        targets = torch.stack([self.Y, torch.ones_like(self.Y)], -1)
        H = torch.linalg.solve_triangular(L, targets, upper=False)
        best = None
        if profile_mean and n:
            best = ((H[..., 1] * H[..., 0]).sum(-1) / H[..., 1].square().sum(-1)).detach()
        mean = self._prior_mean() if best is None else best
        w = H[..., 0] - mean.unsqueeze(-1) * H[..., 1]
        logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (w.square().sum(-1) + logdet + n * math.log(2.0 * math.pi)).sum(), best
