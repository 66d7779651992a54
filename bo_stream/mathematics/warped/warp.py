"""A warp of outcomes that compresses bad ones, and its posterior in raw units (MATHS 13.1).

For outcomes y to be maximised, with ``top`` the best and ``worst`` the worst of them::

    r = (top - y) / scale,   h = log(1 + r),   w = (centre - h) / spread

Above ``top`` and below ``worst`` the warp continues as a straight line, so that it maps the whole
line onto itself with a continuous slope, and a prediction beyond the observed outcomes is on their
scale. Because the warp increases, a quantile of w becomes that of y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, cast

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.posteriors.transformed import TransformedPosterior
from torch import Tensor

from bo_stream.errors import UnsupportedError

__all__ = [
    "NO_WARP",
    "OutcomeWarp",
    "WarpedPosterior",
    "anchored",
    "log_slopes",
    "unwarped",
    "warped",
]

NO_WARP = (0.0, 0.0, 0.0, 0.0)
"""Coefficients ``top, scale, centre, spread``: a scale of zero stands for no warp. Then centre and
spread (if not zero) are the units in which mean and variance have their priors."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def warped(y: Tensor, coefficients: Tensor) -> Tensor:
    """Warp outcomes of any shape by ``top, scale, centre, spread, worst``."""
    top, scale, centre, spread, worst = coefficients.unbind()
    r, most = (top - y) / scale, (top - worst) / scale
    h = r.clamp(torch.zeros_like(most), most).log1p()
    h = torch.where(r > most, most.log1p() + (r - most) / (1.0 + most), h)
    return (centre - torch.where(r > 0.0, h, r)) / spread


def unwarped(w: Tensor, coefficients: Tensor) -> Tensor:
    """The inverse of `warped`."""
    top, scale, centre, spread, worst = coefficients.unbind()
    h, most = centre - spread * w, (top - worst) / scale
    last = most.log1p()
    r = h.clamp(torch.zeros_like(last), last).expm1()
    r = torch.where(h > last, most + (h - last) * (1.0 + most), r)
    return top - scale * torch.where(h > 0.0, r, h)


def anchored(y: Tensor, coefficients: Tensor) -> Tensor:
    """``top, scale, centre, spread`` of the same scale for outcomes ``n``, n >= 1.

    They are those of a fit that finds this scale: warped outcomes have mean 0 and deviation 1.
    """
    _, scale, _, before = coefficients.unbind()
    h = ((y.max() - y) / scale).log1p()
    spread = h.std(correction=0)
    return torch.stack([y.max(), scale, h.mean(), torch.where(spread > 0.0, spread, before)])


def log_slopes(y: Tensor, coefficients: Tensor) -> Tensor:
    """Sum of the logarithms of the warp's slopes at outcomes, 0-dim."""
    top, scale, _, spread, worst = coefficients.unbind()
    r = ((top - y) / scale).clamp(torch.zeros_like(top), (top - worst) / scale)
    return -(r.log1p() + (scale * spread).log()).sum()


class OutcomeWarp(OutcomeTransform):
    """A frozen outcome transform followed by the warp.

    Args:
        before: The transform of raw outcomes that the warp follows, or None.
        coefficients: ``top, scale, centre, spread, worst``.
    """

    coefficients: Tensor
    _is_linear = False

    def __init__(self, before: OutcomeTransform | None, coefficients: Tensor) -> None:
        super().__init__()
        self.before = before
        self.register_buffer("coefficients", coefficients.detach().clone())
        self.eval()

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Warp raw outcomes ``batch_shape x n x 1``; variances are refused."""
        if Yvar is not None:
            raise UnsupportedError(
                "outcomes without variances under a warp",
                "variances, which a warp does not scale alike",
                "Use warp='none' where the noise is known.",
            )
        return warped(Y if self.before is None else self.before(Y, X=X)[0], self.coefficients), None

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes from warped ones, of any batch shape."""
        y = unwarped(Y, self.coefficients)
        return (y if self.before is None else self.before.untransform(y, X=X)[0]), None

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> Posterior:
        """The posterior of raw outcomes."""
        return WarpedPosterior(posterior, lambda w: self.untransform(w, X=X)[0])

    def subset_output(self, idcs: list[int]) -> Self:
        """The transform itself: there is one output."""
        return self


class WarpedPosterior(TransformedPosterior):
    """The posterior of an increasing function of a Gaussian one, in raw units.

    ``mean`` and ``variance`` are those of the raw outcomes, by Gauss-Hermite quadrature with 48
    nodes: O(48) per entry. ``median`` and `quantile` are exact.

    Args:
        posterior: The Gaussian posterior of one output, ``batch_shape x q x 1``.
        raw: The function, elementwise.
    """

    def __init__(self, posterior: Posterior, raw: Callable[[Tensor], Tensor]) -> None:
        super().__init__(posterior, raw, self._mean_of, self._variance_of)
        self._gaussian, self._raw = posterior, raw

    @property
    def latent(self) -> GPyTorchPosterior:
        """The Gaussian posterior."""
        return cast(GPyTorchPosterior, self._gaussian)

    @property
    def median(self) -> Tensor:
        """The median, ``batch_shape x q x 1``."""
        return self._raw(self.latent.mean)

    def quantile(self, value: Tensor) -> Tensor:
        """Marginal quantiles, ``len(value) x batch_shape x q x 1`` for levels of one dimension."""
        return self._raw(self.latent.quantile(value))

    def _values(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        nodes, weights = (torch.as_tensor(t).to(mean) for t in (_NODES, _WEIGHTS))
        sd = variance.clamp_min(0.0).sqrt()
        shape = (-1, *(1,) * mean.ndim)
        return self._raw(mean + sd * nodes.reshape(shape)), weights.reshape(shape)

    def _mean_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        values, weights = self._values(mean, variance)
        return (values * weights).sum(0)

    def _variance_of(self, mean: Tensor, variance: Tensor) -> Tensor:
        values, weights = self._values(mean, variance)
        return ((values - (values * weights).sum(0)).square() * weights).sum(0)
