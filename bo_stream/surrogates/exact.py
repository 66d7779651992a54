"""The baseline: an exact Gaussian process behind the streaming interface.

It keeps its data, so its state and the cost of a step grow with n. The streaming families are
compared with it. Fantasies come from the shared conditioned posterior.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack, cast

import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream.base import units
from bo_stream.base.fitting import Correlated
from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, S, StreamingGP
from bo_stream.errors import InputError, UnsupportedError, check_choice
from bo_stream.mathematics.data_evidence import correlations_at
from bo_stream.mathematics.evidence import rows_evidence
from bo_stream.mathematics.kernels import CategoricalMatern, cross_kernel, frozen_kernel
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import KernelBasis, Process, warn_if_missed
from bo_stream.mathematics.shapes import Rows

__all__ = ["ExactGP", "MaternGP"]


class DataGP(StreamingGP[S]):
    """An exact Gaussian process given data that its state keeps."""

    @abstractmethod
    def _rows(self, state: S) -> Rows:  # type: ignore[misc]
        """The data that the process is conditioned on."""

    @torch.no_grad()
    def _build_process(self, state: S) -> Process:  # type: ignore[misc]
        rows, mean = self._rows(state), self._prior_mean().clone()
        noise = self._noise_scale().unsqueeze(-1) * rows.R
        L = chol_psd(cross_kernel(self.covar_module, rows.X, rows.X) + noise.diag_embed())
        e = (rows.Y - mean.unsqueeze(-1)).unsqueeze(-1)
        u = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        kernel = frozen_kernel(self.covar_module)
        process = Process(kernel, KernelBasis(kernel, rows.X, noise), L, None, u, mean)
        warn_if_missed(process, rows.X, rows.Y, noise)
        return process

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence summed over outputs: O(n^3)."""
        return rows_evidence(self._rows(self.state), self._prior(), profile_mean)


class ExactGP(DataGP[Rows]):
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

    def _empty_state(self) -> Rows:
        o = self.num_outputs
        return Rows.empty(self._dim, o, 1 if self.noise_mode == "learned" else o)

    def _absorb(self, state: Rows, rows: Rows) -> Rows:
        return state.joined(rows)

    def _rows(self, state: Rows) -> Rows:
        return state

    def _rows_of_fit(self) -> tuple[Rows, Correlated]:
        return self.state, correlations_at


class MaternGP(DataGP[S]):
    """An exact GP of one output with its own kernel, mean and noise, the base of `WarpedGP` and
    `TrustRegionGP`.

    Args:
        train_X: ``n x d`` raw inputs.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None.
        common: Options of every family.
        noise: ``"learned"``, or ``"none"`` for evaluations that are exact.
        noise_model: The likelihood, without ``train_Yvar``.
        cat_dims: Indices of inputs that are categories.
        start: First lengthscales and variance, if not gpytorch's.

    Raises:
        InputError: for unknown options.
        UnsupportedError: for other modules.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None,
        common: CommonOptions,
        *,
        noise: str = "learned",
        noise_model: GaussianLikelihood | None = None,
        cat_dims: Sequence[int] = (),
        start: float | None = None,
    ) -> None:
        check_choice("noise", noise, "learned", "none")
        dim, _ = units.sizes_of(train_X, train_Y)
        if not set(cat_dims) <= set(range(dim)):
            raise InputError(f"cat_dims from 0 to {dim - 1}", f"{cat_dims}", "Correct them.")
        fixed = ["covar_module", "mean_module"] + ["likelihood"] * (train_Yvar is None)
        foreign = [name for name in fixed if common.get(name) is not None]
        if foreign:
            raise UnsupportedError(
                f"a {type(self).__name__} with its own kernel, mean and noise",
                ", ".join(foreign),
                "Leave them out, or use ExactGP, which takes others.",
            )
        kind = partial(CategoricalMatern, cat_dims) if cat_dims else partial(MaternKernel, 2.5)
        kernel = ScaleKernel(kind(ard_num_dims=dim))
        if start is not None:
            kernel.base_kernel.lengthscale, kernel.outputscale = start, start
        common = {**common, "covar_module": kernel}
        if train_Yvar is None:
            common["likelihood"] = noise_model
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.noise, self.cat_dims = noise, tuple(cat_dims)
        self._num_free = sum(p.requires_grad for p in self.parameters())

    @property
    def _fits_in_closed_form(self) -> bool:
        """Whether the noise is not known, and no hyperparameter was frozen."""
        free = sum(p.requires_grad for p in self.parameters())
        return self.noise_mode == "learned" and free == self._num_free

    def _values(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lengthscales ``d``, variance, and the noise scale over it: float64, differentiable."""
        kernel = cast(ScaleKernel, self.covar_module)
        lengthscales = cast(Tensor, kernel.base_kernel.lengthscale).double().reshape(-1)
        variance = cast(Tensor, kernel.outputscale).double()
        return lengthscales, variance, self._noise_scale()[0] / variance

    def _set_values(self, lengthscales: Any, variance: float, ratio: float, mean: float) -> None:
        """Set the hyperparameters, the noise as a multiple of the variance; undone if the change
        in progress fails.
        """
        self._lock.restores(self.parameters())
        number, kernel = self._like.new_tensor, cast(ScaleKernel, self.covar_module)
        kernel.base_kernel.lengthscale = torch.as_tensor(lengthscales).to(self._like)
        kernel.outputscale, self.likelihood.noise = number(variance), number([variance * ratio])
        self._set_prior_mean(number([mean]))
