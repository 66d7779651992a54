"""Learning the functions that a grid is over from points at hand, by their evidence (MATHS 2.5)."""

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

__all__ = ["LEARNED_FROM", "Learner", "thinned"]

LEARNED_FROM = 600
"""Points, at most, of which the evidence or the predictive density is climbed;"""
LOOKED_AT = 300
"""and at most, while starts are compared."""
OTHERS, FIRST_LOOK = 7, 25
"""Starts beside the projection of now, and evaluations that each start gets."""
TRUST = 3.0
"""Largest change of a hyperparameter's logarithm while the projection is learned."""

Points = tuple[Tensor, Tensor, Tensor]
"""Inputs ``n x d``, targets ``o x n``, and noise variances before any learned scale, ``s x n``."""


@dataclass(frozen=True)
class Learner:
    """Climbs of an exact GP with the grid's own covariance, the projection among its parameters.

    Attributes:
        kernel: Of the projection's values: where climbs start; like the others it stays as it is.
        mean: Likewise.
        likelihood: Likewise; None where the noise is known.
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
        """The projection of highest evidence, and the kernel that goes with it.

        The projection of now and some others are looked at, and the best goes on: O(n^3) an
        evaluation, of at most 600 points.

        Args:
            grid: The nodes, and the projection of now.
            projection: What kind it is.
            points: Those at hand.
            most: Evaluations of the last climb.
        """
        few, data = thinned(LOOKED_AT, *points), thinned(LEARNED_FROM, *points)
        others = projection.others(torch.Generator().manual_seed(0), OTHERS)
        starts = [replace(grid, phi=phi.to(grid.phi)) for phi in (grid.phi, *others)]
        seen = [self._climbed(start, few, min(most, FIRST_LOOK)) for start in starts]
        best = max(seen, key=lambda looked: looked[0])[1]
        start = replace(self, kernel=best.base_kernel)
        return start._climbed(replace(grid, phi=best.phi.detach()), data, most)[1]

    def _climbed(
        self, grid: ProjectedGrid, points: Points, most: int
    ) -> tuple[float, ProjectedKernel]:
        """The evidence that a climb from a projection ends at, and where."""
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
        value = torch.enable_grad()(fit_model)(model, most, TRUST).value
        return value, cast(ProjectedKernel, model.covar_module)


def thinned(most: int, X: Tensor, Y: Tensor, R: Tensor) -> Points:
    """At most so many of n points, evenly spread over the order in which they came."""
    some = torch.linspace(0, len(X) - 1, min(len(X), most), device=X.device).round().long()
    return X[some], Y[:, some], R[:, some]
