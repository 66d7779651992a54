"""The baseline: an exact Gaussian process behind the streaming interface.

It keeps its data, so its state and the cost of a step grow with n. The streaming families are
compared with it. Fantasies come from the shared conditioned posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.mathematics.evidence import log_evidence
from bo_stream.mathematics.kernels import cross_kernel, frozen_kernel
from bo_stream.mathematics.linalg import LEAST, REPAIR, chol_psd
from bo_stream.mathematics.precise import warn_if_missed
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.shapes import shaped

__all__ = ["ExactGP", "exact_process"]


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


def exact_process(
    kernel: Kernel, X: Tensor, L: Tensor, targets: Tensor, noise: Tensor, mean: Tensor
) -> Process:
    """Posterior of an exact GP.

    Args:
        kernel: The kernel, frozen.
        X: ``n x d``.
        L: Cholesky factor of ``K + D``, ``o x n x n``.
        targets: ``o x n``.
        noise: The diagonal of D, ``o x n``.
        mean: Constant prior means, ``o``.
    """
    e = (targets - mean.unsqueeze(-1)).unsqueeze(-1)
    u = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
    return Process(kernel, KernelBasis(kernel, X, noise), L, None, u, mean)


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

    conditions_up_to = 64

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

    def _absorb(self, state: ExactState, X: Tensor, Y: Tensor, R: Tensor) -> ExactState:
        columns = (state.Y, Y), (state.R, R.expand(Y.shape))
        return ExactState(torch.cat([state.X, X]), *(torch.cat(pair, -1) for pair in columns))

    def _targets(self, state: ExactState) -> Tensor:
        """What the process models, ``o x n``."""
        return state.Y

    def _noise(self, state: ExactState) -> Tensor:
        """Noise variances, ``o x n``, differentiable."""
        return self._noise_scale().unsqueeze(-1) * state.R

    def _factor(self, state: ExactState, least: float = LEAST) -> tuple[Tensor, Tensor]:
        """Cholesky factor of ``K + D`` (``o x n x n``) and the noise (``o x n``),
        differentiable; ``least`` as in `chol_psd`.
        """
        noise = self._noise(state)
        K = cross_kernel(self.covar_module, state.X, state.X)
        return chol_psd(K + torch.diag_embed(noise), least=least), noise

    def _build_process(self, state: ExactState) -> Process:
        L, noise = self._factor(state)
        kernel, mean = frozen_kernel(self.covar_module), self._prior_mean().detach().clone()
        process = exact_process(kernel, state.X, L, self._targets(state), noise, mean)
        warn_if_missed(process, state.X, self._targets(state), self._noise(state))
        return process

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence summed over outputs: O(n^3)."""
        state = cast(ExactState, self.state)
        L, _ = self._factor(state, REPAIR)
        known = None if profile_mean and len(state.X) else self._prior_mean()
        return log_evidence(L, self._targets(state), known)
