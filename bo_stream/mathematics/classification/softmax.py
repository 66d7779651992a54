"""Class probabilities of Gaussian latent values (MATHS 2.6)."""

from __future__ import annotations

import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

__all__ = ["normal_draws", "softmax_draws"]


def normal_draws(num_samples: int, classes: int, like: Tensor) -> Tensor:
    """Quasi-random normal numbers, ``num_samples x classes``, the same at every call: probabilities
    are repeatable and smooth in the points.
    """
    Z: Tensor = draw_sobol_normal_samples(d=classes, n=num_samples, seed=0, dtype=torch.float64)
    return Z.to(like)


def softmax_draws(mean: Tensor, variance: Tensor, Z: Tensor) -> Tensor:
    """Softmax of draws from ``N(mean, variance)``, independent across classes.

    Args:
        mean: ``batch_shape x C``.
        variance: ``batch_shape x C``.
        Z: ``S x C`` standard normal numbers.

    Returns:
        ``S x batch_shape x C``.
    """
    draws = Z.reshape(len(Z), *[1] * (mean.ndim - 1), Z.shape[-1])
    return torch.softmax(mean + variance.clamp_min(0.0).sqrt() * draws, -1)
