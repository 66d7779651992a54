"""Policies that choose cells of a pool: with look-ahead by variance, and the WISKI study's.

References:
    [Stanton2021] S. Stanton, W. J. Maddox, I. Delbridge, A. G. Wilson. Kernel Interpolation for
        Scalable Online Gaussian Processes. AISTATS 2021.
"""

from __future__ import annotations

from typing import cast

import torch
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Tensor

from acquisitions import NIPV, build, select_from_pool
from bo_stream.errors import InputError, ShapeError

__all__ = ["POLICIES", "PoolPolicy", "near_most_uncertain"]

POLICIES = ("nipv", "max_variance", "random", "near_most_uncertain")
"""Names of policies over a pool."""


class PoolPolicy:
    """A pool policy: ``(model, test_X, pool_X, q)`` to q pool indices.

    Candidates have the typical noise: the learned one or, for known noise, the mean over the cells
    queried so far. A cell's published standard deviation is not used, because it depends on the
    cell's value, which is unknown before the measurement, and would favour low values.

    Args:
        name: ``nipv``, ``max_variance``, ``random`` or ``near_most_uncertain``.
        chunk_size: Candidates scored at a time.

    Raises:
        InputError: for an unknown name.

    """

    def __init__(self, name: str, chunk_size: int = 4096) -> None:
        if name not in POLICIES:
            raise InputError(
                f"the name of a pool policy, one of {', '.join(POLICIES)}",
                repr(name),
                "Choose one of these, or write a function (model, test_X, pool, q).",
            )
        self.name = name
        self.chunk_size = chunk_size
        self._nipv: NIPV | None = None

    def __call__(self, model: Model, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
        """Indices of the q cells to measure next, in order of choice."""
        if self.name == "random":
            return torch.randperm(len(pool))[:q].to(pool.device)
        if self.name == "near_most_uncertain":
            return near_most_uncertain(model, test_X, pool, q)
        if self.name == "max_variance":
            return select_from_pool(build(self.name, model), pool, q, self.chunk_size)[0]
        acqf = self._nipv
        if acqf is None or acqf.model is not model or not torch.equal(acqf.mc_points, test_X):
            # kept between steps, because sums over the test points are reused
            acqf = self._nipv = cast(NIPV, build(self.name, model, mc_points=test_X))
        return select_from_pool(acqf, pool, q, self.chunk_size)[0]


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
    chosen: list[int] = []
    for i in variance.argsort(descending=True, stable=True)[:q].tolist():
        distance = (pool - test_X[i]).square().sum(-1)
        distance[chosen] = torch.inf
        chosen.append(int(distance.argmin()))
    return torch.tensor(chosen, device=pool.device)
