"""Policies that choose points without look-ahead: baselines for integrated variance.

They are largest variance, random choice, and the WISKI study's policy for surrogates that cannot
fantasize: candidates near the most uncertain test points [Stanton2021].

References:
    [MacKay1992] D. J. C. MacKay. Information-based objective functions for active data selection.
        Neural Computation 4(4), 1992.
    [Stanton2021] S. Stanton, W. J. Maddox, I. Delbridge, A. G. Wilson. Kernel Interpolation for
        Scalable Online Gaussian Processes. AISTATS 2021.
"""

from __future__ import annotations

from typing import cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.transforms import concatenate_pending_points, t_batch_mode_transform
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import ShapeError, UnsupportedError
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["MaxVariance", "Random", "near_most_uncertain"]


class MaxVariance(AcquisitionFunction):
    """Entropy of the candidates' noisy observations; at q = 1 it increases with the variance.

    The value is ``1/2 log det (cov(X, X) + D)``, summed over outputs, in transformed units. For
    several points it is MacKay's total information gain [MacKay1992], which spreads them.
    Candidates have the typical noise. An evaluation costs one joint posterior and a ``q x q``
    Cholesky factor.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one.
        X_pending: ``n' x d`` points under evaluation.
    """

    def __init__(self, model: GaussianModel, X_pending: Tensor | None = None) -> None:
        if not isinstance(model, GaussianModel):
            raise UnsupportedError(
                "a surrogate of bo_stream",
                type(model).__name__,
                "Use botorch's qPosteriorStandardDeviation for other models.",
            )
        super().__init__(model=model)
        self.set_X_pending(X_pending)

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x q x d`` raw points: ``batch_shape``."""
        model = cast(GaussianModel, self.model)
        f = model.process().at(model.transformed(X))
        noise = model.typical_noise().unsqueeze(-1).expand(f.mean.shape[-2:])
        L = chol_psd(f.covariance(f) + torch.diag_embed(noise))
        return L.diagonal(dim1=-2, dim2=-1).log().sum((-1, -2)).to(X)


class Random(AcquisitionFunction):
    """A new uniform number for each set of candidates and call, with zero gradient.

    Under `optimize_acqf` the result is one of the raw samples; over a pool it is a random choice.
    Draws come from torch's global generator.

    Args:
        model: Any model; only its output shape matters to BoTorch.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model=model)
        self.set_X_pending(None)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Uniform numbers, ``batch_shape``."""
        return torch.rand(X.shape[:-2], dtype=X.dtype).to(X.device) + 0.0 * X.sum((-1, -2))


def near_most_uncertain(model: Model, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
    """The pool's points nearest to the q most uncertain test points; no point is chosen twice.

    This is the policy of the WISKI study for surrogates without fantasies [Stanton2021]. It uses
    marginal variances. O(P) variances, and O(q N d) for a pool of N.

    Args:
        model: Any BoTorch model; variances of several outputs are summed.
        test_X: ``P x d`` raw test points.
        pool: ``N x d`` raw candidates.
        q: Number of points, at most P and N.

    Returns:
        ``q`` indices into the pool, by decreasing uncertainty; ties go to the lowest index.

    Raises:
        ShapeError: if there are fewer test points or candidates than q.
    """
    if q > min(len(test_X), len(pool)):
        raise ShapeError(
            f"at least {q} test points and candidates",
            f"{len(test_X)} and {len(pool)}",
            "Lower q.",
        )
    with torch.no_grad():
        posterior = cast(GPyTorchPosterior, model.posterior(test_X))
        variance = posterior.variance.sum(-1)
    taken = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    chosen = []
    for i in variance.argsort(descending=True, stable=True)[:q].tolist():
        distance = (pool - test_X[i]).square().sum(-1)
        nearest = int(distance.masked_fill(taken, torch.inf).argmin())
        taken[nearest] = True
        chosen.append(nearest)
    return torch.tensor(chosen, device=pool.device)
