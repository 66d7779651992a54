"""Log expected improvement of the latent, warped function, with slopes in closed form (MATHS 13.2).

A warp that increases keeps the order of outcomes, and improvement may be measured on either side of
it. On the latent side the function is Gaussian, so the improvement has a closed form.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from scipy.special import erfcx, ndtr
from torch import Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.autograd import refused
from bo_stream.mathematics.exact import Array, LatentProcess
from bo_stream.surrogates.warped import WarpedGP

__all__ = ["LatentLogExpectedImprovement", "log_improvement"]

FAR, NEAR = -500.0, 5.0
"""Standardised improvements below which a series is used, and above which ``Phi / phi`` is not."""
LOG_ROOT = 0.5 * math.log(2.0 * math.pi)


class LatentLogExpectedImprovement(AnalyticAcquisitionFunction):
    """Log expected improvement of the latent function over its best value.

    Args:
        model: A `WarpedGP`.
        best_f_latent: Best latent value so far; by default the best observed one without noise, and
            the highest posterior mean at the observed points with noise.
        X_pending: ``n' x d`` raw points under evaluation, believed to have their posterior means.

    Raises:
        UnsupportedError: for other models.
    """

    def __init__(
        self, model: Model, best_f_latent: float | None = None, X_pending: Tensor | None = None
    ) -> None:
        if not isinstance(model, WarpedGP):
            raise UnsupportedError(
                "a WarpedGP", type(model).__name__, "Use botorch's LogExpectedImprovement."
            )
        super().__init__(model=model)
        self.best_f_latent = best_f_latent
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Condition on the posterior means at points under evaluation."""
        self.X_pending: Any = X_pending
        process = cast(WarpedGP, self.model).latent()
        if X_pending is not None and len(X_pending):
            points = cast(WarpedGP, self.model).transformed(X_pending.detach())
            process = process.believing(points.numpy(force=True))
        self._process = process

    @property
    def process(self) -> LatentProcess:
        """The latent process, pending points included."""
        return self._process

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at raw points ``batch_shape x 1 x d``."""
        Z = cast(WarpedGP, self.model).transformed(X).squeeze(-2)
        values: Tensor = _Closed.apply(Z, self)
        return values.to(X)


class _Closed(torch.autograd.Function):
    """Value and gradient in closed form."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, acquisition: LatentLogExpectedImprovement) -> Tensor:
        flat = Z.detach().reshape(-1, Z.shape[-1]).numpy(force=True)
        values, slopes = log_improvement(acquisition.process, flat, acquisition.best_f_latent)
        ctx.save_for_backward(torch.from_numpy(slopes).reshape(Z.shape).to(Z), Z)
        return torch.from_numpy(values).reshape(Z.shape[:-1]).to(Z)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        slopes, Z = ctx.saved_tensors
        gradient = grads[0].unsqueeze(-1) * slopes
        if torch.is_grad_enabled():
            (gradient,) = refused([gradient], [Z], "latent improvement")
        return gradient, None


def log_improvement(
    process: LatentProcess, x: Array, best: float | None = None, *, slopes: bool = True
) -> Any:
    """Log expected improvement at ``p x d`` transformed points, ``p``, and gradients ``p x d``.

    Args:
        process: The latent process.
        x: The points.
        best: The value to improve on; by default the process's best.
        slopes: Whether to return gradients too.
    """
    best = process.best if best is None else best
    if not slopes:
        mean, sd = process.at(x)
        return _log_h((mean - best) / sd)[0] + np.log(sd)
    mean, sd, mean_slope, sd_slope = process.slopes(x)
    u = (mean - best) / sd
    log_h, by_mean, by_sd = _log_h(u)
    gradient = by_mean[:, None] * mean_slope + by_sd[:, None] * sd_slope
    return log_h + np.log(sd), gradient / sd[:, None]


def _log_h(u: Array) -> tuple[Array, Array, Array]:
    """``log h(u)``, ``h = phi(u) + u Phi(u)``; ``Phi / h`` and ``phi / h``, to any negative u."""
    v = np.minimum(u, NEAR)
    mills = math.sqrt(0.5 * math.pi) * erfcx(v * -math.sqrt(0.5))  # Phi / phi
    tail = 1.0 + v * mills  # h / phi
    if u.min() < FAR:
        tail = np.where(v < FAR, np.minimum(v, FAR) ** -2, tail)
    log_h, by_mean, by_sd = np.log(tail) - 0.5 * v * v - LOG_ROOT, mills / tail, 1.0 / tail
    if u.max() > NEAR:
        near, v = u > NEAR, np.maximum(u, NEAR)
        phi, cdf = np.exp(-0.5 * v * v - LOG_ROOT), ndtr(v)
        h = phi + v * cdf
        log_h = np.where(near, np.log(h), log_h)
        by_mean, by_sd = np.where(near, cdf / h, by_mean), np.where(near, phi / h, by_sd)
    return log_h, by_mean, by_sd
