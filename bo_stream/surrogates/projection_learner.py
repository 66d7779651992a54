"""Learning a grid's projection from buffered points, by their evidence (MATHS 2.5)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from bo_stream.base.fitting.fit import fit_model
from bo_stream.mathematics.grid.projected import (
    LinearProjection,
    ModuleProjection,
    ProjectedGrid,
    ProjectedKernel,
)
from bo_stream.surrogates.exact import ExactGP

__all__ = ["LEARNED_FROM", "ProjectionLearner", "thinned"]

LEARNED_FROM = 600
"""Maximum number of points used for the evidence or the predictive density;"""
LOOKED_AT = 300
"""and while starts are compared."""
OTHERS, FIRST_LOOK = 7, 25
"""Number of starts besides the current projection, and evaluations per start."""
TRUST = 3.0
"""Largest change of the logarithm of a hyperparameter while the projection is learned."""

Points = tuple[Tensor, Tensor, Tensor]
"""Inputs ``n x d``, targets ``o x n``, and noise variances before any learned scale, ``s x n``."""


@dataclass(frozen=True)
class ProjectionLearner:
    """Optimises an exact GP with the grid's covariance over projection and hyperparameters.

    Attributes:
        kernel: The initial kernel on the projection's values; not changed.
        mean: The initial mean; not changed.
        likelihood: The initial likelihood, not changed; None if the noise is known.
    """

    kernel: Kernel
    mean: Mean
    likelihood: Likelihood | None

    def best(
        self,
        grid: ProjectedGrid,
        projection: LinearProjection | ModuleProjection,
        points: Points,
        most: int,
    ) -> ProjectedKernel:
        """The projection of highest evidence, and its kernel.

        Several starts are compared, the current projection among them, and the best is continued.
        O(n^3) per evaluation, with at most 600 points.

        Args:
            grid: The grid with the current projection.
            projection: The kind of projection.
            points: The buffered points.
            most: Evaluations of the final ascent.
        """
        few, data = thinned(LOOKED_AT, *points), thinned(LEARNED_FROM, *points)
        others = projection.others(torch.Generator().manual_seed(0), OTHERS)
        starts = [replace(grid, phi=phi.to(grid.phi)) for phi in (grid.phi, *others)]
        seen = [self._ascended(start, few, min(most, FIRST_LOOK)) for start in starts]
        best = max(seen, key=lambda looked: looked[0])[1]
        start = replace(self, kernel=best.base_kernel)
        return start._ascended(replace(grid, phi=best.phi.detach()), data, most)[1]

    def _ascended(
        self, grid: ProjectedGrid, points: Points, most: int
    ) -> tuple[float, ProjectedKernel]:
        """The evidence reached by an ascent from a grid's projection, and the result."""
        X, Y, R = points
        model = ExactGP(
            X,
            Y.mT,
            R.expand(Y.shape).mT,
            covar_module=ProjectedKernel(copy.deepcopy(self.kernel), grid),
            mean_module=copy.deepcopy(self.mean),
            likelihood=copy.deepcopy(self.likelihood),
            input_transform=None,
            outcome_transform=None,
        )
        value = torch.inference_mode(False)(fit_model)(model, most, TRUST).value
        return value, cast(ProjectedKernel, model.covar_module)


def thinned(most: int, X: Tensor, Y: Tensor, R: Tensor) -> Points:
    """At most ``most`` of n points, evenly spaced in order of arrival."""
    some = torch.linspace(0, len(X) - 1, min(len(X), most), device=X.device).round().long()
    return X[some], Y[:, some], R[:, some]
