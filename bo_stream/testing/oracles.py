"""Slow, obvious, dense: what the contract compares surrogates with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DenseGP", "condition", "difference_quotient", "directional_quotient"]


def condition(mean: Tensor, cov: Tensor, y: Tensor, noise: Tensor | float) -> tuple[Tensor, Tensor]:
    """Mean and covariance of ``f_p`` given ``y = f_q + N(0, diag(noise))``, all Gaussian.

    Args:
        mean: ``q + p``.
        cov: ``(q + p) x (q + p)``.
        y: ``q``.
        noise: Variances, ``q`` or one for all.
    """
    q = len(y)
    C = cov[:q, :q] + torch.diag_embed(torch.as_tensor(noise, dtype=cov.dtype).expand(q))
    G = torch.linalg.solve(C, cov[:q, q:]).T
    return mean[q:] + G @ (y - mean[:q]), cov[q:, q:] - G @ cov[:q, q:]


def difference_quotient(f: Callable[[Tensor], Tensor], x: Tensor, h: float = 1e-5) -> Tensor:
    """Gradient of a scalar function by central differences, entry by entry, float64."""
    x = x.detach().clone()
    gradient = torch.zeros_like(x)
    for i in range(x.numel()):
        kept = float(x.view(-1)[i])
        values = []
        for step in (h, -h):
            x.view(-1)[i] = kept + step
            values.append(float(f(x)))
        x.view(-1)[i] = kept
        gradient.view(-1)[i] = (values[0] - values[1]) / (2.0 * h)
    return gradient


def directional_quotient(
    f: Callable[[Tensor], Tensor], x: Tensor, direction: Tensor, h: float = 1e-5
) -> Tensor:
    """Directional derivative of a scalar function by central differences."""
    x = x.detach()
    return (f(x + h * direction) - f(x - h * direction)) / (2.0 * h)


@dataclass(frozen=True)
class DenseGP:
    """Exact Gaussian-process regression of one output by dense algebra, from kernel matrices.

    Attributes:
        covariance: The prior's covariance function, ``n x d`` and ``p x d`` to ``n x p``.
        X: ``n x d``.
        y: ``n``.
        noise: Variances, ``n`` or one for all.
        mean: Constant prior mean.
    """

    covariance: Callable[[Tensor, Tensor], Tensor]
    X: Tensor
    y: Tensor
    noise: Tensor
    mean: Tensor

    def posterior(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``p`` and covariance ``p x p``."""
        J = torch.cat([self.X, Z])
        mean = self.mean.expand(len(J))
        return condition(mean, self.covariance(J, J), self.y, self.noise)

    def evidence(self) -> Tensor:
        """Log density of ``y``."""
        C = self.covariance(self.X, self.X) + torch.diag_embed(self.noise.expand(len(self.y)))
        mean = self.mean.expand(len(self.y))
        return torch.distributions.MultivariateNormal(mean, C).log_prob(self.y)
