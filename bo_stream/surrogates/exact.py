"""The baseline: an exact Gaussian process behind the streaming interface.

It keeps its data, so its state and the cost of a step grow with n. The streaming families are
compared with it. Fantasies come from the shared conditioned posterior.
"""

from __future__ import annotations

from typing import Any, Unpack, cast

import torch
from torch import Tensor

from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.mathematics.evidence import log_evidence
from bo_stream.mathematics.kernels import cross_kernel, frozen_kernel
from bo_stream.mathematics.linalg import LEAST, REPAIR, chol_psd
from bo_stream.mathematics.process import KernelBasis, Process, warn_if_missed
from bo_stream.mathematics.rows import Rows

__all__ = ["ExactGP"]


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

    def _empty_state(self) -> Any:
        o = self.num_outputs
        return Rows.empty(self._dim, o, 1 if self.noise_mode == "learned" else o)

    def _absorb(self, state: Any, rows: Rows) -> Any:
        return state.joined(rows)

    def _rows(self, state: Any) -> Rows:
        """The data that the process is conditioned on."""
        return cast(Rows, state)

    def _factor(self, rows: Rows, least: float = LEAST) -> tuple[Tensor, Tensor]:
        """Cholesky factor of ``K + D`` (``o x n x n``) and the diagonal of D (``o x n``),
        differentiable; ``least`` as in `chol_psd`.
        """
        noise = self._noise_scale().unsqueeze(-1) * rows.R
        K = cross_kernel(self.covar_module, rows.X, rows.X)
        return chol_psd(K + torch.diag_embed(noise), least=least), noise

    @torch.no_grad()
    def _build_process(self, state: Any) -> Process:
        rows, mean = self._rows(state), self._prior_mean().clone()
        L, noise = self._factor(rows)
        e = (rows.Y - mean.unsqueeze(-1)).unsqueeze(-1)
        u = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        kernel = frozen_kernel(self.covar_module)
        process = Process(kernel, KernelBasis(kernel, rows.X, noise), L, None, u, mean)
        warn_if_missed(process, rows.X, rows.Y, noise)
        return process

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence summed over outputs: O(n^3)."""
        rows = self._rows(self.state)
        L, _ = self._factor(rows, REPAIR)
        known = None if profile_mean and len(rows) else self._prior_mean()
        return log_evidence(L, rows.Y, known)
