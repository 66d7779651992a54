"""Contract: the pieces of a latent process agree with its dense covariance.

What a family hands to the base (`bo_stream.mathematics.process`): variances, cross-covariances,
products and operators, and sums over test points, each with a short cut of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bo_stream.mathematics.process import conditioned_on
from bo_stream.testing.base import Contract, close

__all__ = ["ProcessContract"]

KINDS = ["surrogate", "two outputs", "conditioned", "conditioned, two outputs", "part"]


class ProcessContract(Contract):
    """`GaussianModel.process()`: of the surrogate, conditioned, and of some of the outputs."""

    def process(self, kind: str) -> Any:
        """A process of this kind, and the batch shape that broadcasts with it."""
        outputs = 2 if "two" in kind or kind == "part" else 1
        model = self.build(outputs=self.outputs_of(outputs))
        if kind == "part":
            return model.subset_output([1]).process()
        if "conditioned" in kind:
            Y = self.points(3, 2, seed=8).repeat(1, 1, 2)[..., :outputs]
            model = model.condition_on_observations(self.points(3, 2, seed=7), Y)
        return model.process()

    def at(self, *shape: int, seed: int) -> Tensor:
        """Points in transformed space (there is no transform here)."""
        return self.points(*shape, seed=seed).double()

    @pytest.mark.parametrize("kind", KINDS)
    def test_pieces_of_a_process(self, kind: str) -> None:
        process = self.process(kind)
        self.assert_pieces_agree(process)
        self.assert_points_broadcast(process)
        self.assert_sums_agree(process)

    def assert_pieces_agree(self, process: Any) -> None:
        """Each piece is a part of the dense covariance."""
        A, B = self.at(3, 4, seed=51), self.at(3, 5, seed=52)
        a, b, both = process.at(A), process.at(B), process.at(torch.cat([A, B], -2))
        dense = both.covariance(both)
        close(a.mean, both.mean[..., :4])
        close(a.covariance(b), dense[..., :4, 4:])
        close(b.covariance(a), dense[..., 4:, :4])
        close(a.covariance(a), dense[..., :4, :4])
        for latent, cov in ((a, dense[..., :4, :4]), (both, dense)):
            diagonal = cov.diagonal(dim1=-2, dim2=-1)
            close(latent.variance(), diagonal)
            close(latent.operator().to_dense(), cov)
            close(latent.operator().diagonal(dim1=-2, dim2=-1), diagonal)
        M = self.at(dense.shape[-3], 5, seed=53)
        close(a.covariance(b, M), dense[..., :4, 4:] @ M)
        close(b.covariance(a, M[..., :4, :]), dense[..., 4:, :4] @ M[..., :4, :])

    def assert_points_broadcast(self, process: Any) -> None:
        """Unbatched points against a batch of points."""
        A, B = self.at(4, seed=51), self.at(3, 5, seed=52)
        a, b = process.at(A), process.at(B)
        every = process.at(A.expand(3, -1, -1))
        close(a.covariance(b), every.covariance(b))
        close(b.covariance(a), b.covariance(every))

    def assert_sums_agree(self, process: Any) -> None:
        """Sums over points, which families have in closed form."""
        T, weights = self.at(30, seed=54), torch.linspace(0.1, 1.0, 30, dtype=torch.float64)
        sums = process.integral(T, weights)
        t, a, b = (process.at(Z) for Z in (T, self.at(3, 4, seed=51), self.at(3, 5, seed=52)))
        close(torch.as_tensor(sums.total), (t.variance() * weights).sum(-1))
        gram = (a.covariance(t) * weights) @ t.covariance(b)
        close(sums.gram(a, b), gram)
        own = (a.covariance(t).square() * weights).sum(-1)
        close(sums.gram_diagonal(a), own)
        close(sums.gram(a, b), gram)  # from covariances that may be kept by now
        X = self.at(2, seed=56)
        zeros = torch.zeros(t.mean.shape[-2], 2, dtype=torch.float64)
        for known in (process, conditioned_on(process, X, zeros, zeros + 0.1)):
            pool, t, sums = known.pool(self.at(6, seed=55)), known.at(T), known.integral(T, weights)
            cov = pool.covariance(t)  # the second time from those kept before data were added
            close(sums.gram_diagonal(pool), (cov.square() * weights).sum(-1))
            close(sums.gram(pool, known.at(X)), (cov * weights) @ t.covariance(known.at(X)))
