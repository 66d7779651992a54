"""Scores of predicted means and variances at test points."""

from statistics import NormalDist

from torch import Tensor
from torch.distributions import Normal


def negative_log_densities(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """Negative log density of each observation, in nats; all arguments have ``n`` numbers."""
    return -Normal(mean, variance.sqrt(), validate_args=False).log_prob(y)


def coverage(mean: Tensor, variance: Tensor, y: Tensor, level: float) -> float:
    """Share of the observations inside the central interval of this level."""
    half = NormalDist().inv_cdf(0.5 + 0.5 * level) * variance.sqrt()
    return float(((y - mean).abs() <= half).double().mean())


def scores(mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
    """``rmse``, ``nlpd`` (nats) and ``coverage`` of 95 % intervals."""
    return {
        "rmse": float((y - mean).square().mean().sqrt()),
        "nlpd": float(negative_log_densities(mean, variance, y).mean()),
        "coverage": coverage(mean, variance, y, 0.95),
    }
