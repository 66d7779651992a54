"""A recommendation refined by polynomials fitted to the outcomes about it (MATHS 12.4)."""

from __future__ import annotations

import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Tensor

from acquisitions.local_polynomial import peaks
from bo_stream.base.gaussian_model import GaussianModel

__all__ = ["refined"]

APART = 0.02
"""Half the distance, in widths of the box, over which slopes and curvatures are measured."""

SHARE = 0.5
"""Share of the surrogate's expected loss below which a polynomial's must be."""

LOWER = 3.0
"""Standard deviations by which the surrogate must find a polynomial's maximiser lower, to reject
it. It overrates its own maximiser, which was chosen for that: on Zakharov's and Levy's functions,
after 20,000 outcomes, polynomials with a third of its regret were up to 2.6 below."""


@torch.no_grad()
def refined(
    model: GaussianModel, best: Tensor, bounds: Tensor, X: Tensor, y: Tensor
) -> Tensor | None:
    """The maximiser of a polynomial near the best point, if it is known better than that.

    Its expected loss must be less than half of the surrogate's, and the surrogate must not find it
    lower than the best point by more than three standard deviations of the difference. 0.1 s for
    40,000 outcomes of three inputs.

    Args:
        model: The surrogate.
        best: Maximiser of its posterior mean, ``d``.
        bounds: ``2 x d``.
        X: Observed points, ``n x d``.
        y: Their outcomes, ``n``, to be maximised.

    Returns:
        The maximiser, and the radii of the polynomial's window, raw: ``2 x d``. None if no
        polynomial is known better, and for a posterior that is not Gaussian.
    """
    low, width, d = bounds[0], bounds[1] - bounds[0], len(best)
    centre = (best - low) / width
    if not bool(((centre > APART) & (centre < 1.0 - APART)).all()):
        return None
    found = peaks((X - low) / width, y, centre)
    found = [peak for peak in found if bool(((peak.x >= 0.0) & (peak.x <= 1.0)).all())]
    if not found:
        return None
    moves = _moves(d).to(centre)
    unit = torch.cat([centre + APART * moves, torch.stack([peak.x for peak in found])])
    points = (low + width * unit).clamp(*bounds)
    posterior = model.posterior(points)
    if not isinstance(posterior, GPyTorchPosterior):  # of a warped process: of few outcomes
        return None
    mean, covariance = posterior.mean[:, 0], posterior.distribution.covariance_matrix
    around = len(moves)
    loss = _expected_loss(mean[:around], covariance[:around, :around])
    for place, peak in enumerate(found, around):
        variance = covariance[0, 0] + covariance[place, place] - 2.0 * covariance[0, place]
        lower = bool(mean[0] - mean[place] > LOWER * variance.clamp_min(0.0).sqrt())
        if peak.loss < SHARE * loss and not lower:
            return torch.stack([points[place], peak.radius * width])
    return None


def _moves(d: int) -> Tensor:
    """No move, one along each input, one back, and one along each two inputs."""
    eye = torch.eye(d)
    pairs = [(eye[i] + eye[k]) for i in range(d) for k in range(i)]
    return torch.cat([torch.zeros(1, d), eye, -eye, *(pair.unsqueeze(0) for pair in pairs)])


def _expected_loss(mean: Tensor, covariance: Tensor) -> float:
    """What a maximiser loses by the error of the slope, from the posterior at `_moves`."""
    d = next(d for d in range(1, len(mean)) if 1 + 2 * d + d * (d - 1) // 2 == len(mean))
    up, down, rest = mean[1 : 1 + d], mean[1 + d : 1 + 2 * d], mean[1 + 2 * d :]
    H = torch.diag(up + down - 2.0 * mean[0])
    pairs = [(i, k) for i in range(d) for k in range(i)]
    for value, (i, k) in zip(rest, pairs, strict=True):
        H[i, k] = H[k, i] = value + mean[0] - up[i] - up[k]
    sizes, V = torch.linalg.eigh(H)
    slope = torch.zeros(d, len(mean)).to(mean)
    slope[:, 1 : 1 + d] = 0.5 * torch.eye(d).to(mean)
    slope[:, 1 + d : 1 + 2 * d] = -slope[:, 1 : 1 + d]
    along = (V.mT @ slope @ covariance @ slope.mT @ V).diagonal()
    return float((0.5 * along / sizes.abs().clamp_min(1e-300)).sum())
