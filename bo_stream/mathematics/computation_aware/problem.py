"""Data under a prior, for posteriors, fits and action policies.  [CaGP, eqs. 9, 11; MATHS 5]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.objective import Projected, chol_of
from bo_stream.mathematics.computation_aware.products import symmetric_product

__all__ = ["Loss", "Prior", "RegressionProblem"]

Loss = Literal["elbo", "projected"]


@dataclass(frozen=True)
class Prior:
    """A Gaussian process prior and its noise scale.

    Attributes:
        kernel: The kernel.
        mean: The constant mean, ``1``; differentiable.
        noise: Scale of the noise variances of the data, ``1``; differentiable.
        hyperparameters: All hyperparameter values, flat, for comparison.
    """

    kernel: Kernel
    mean: Tensor
    noise: Tensor
    hyperparameters: Tensor


@dataclass(frozen=True)
class RegressionProblem:
    """n data and their prior.

    Attributes:
        X: Inputs, ``n x d``.
        y: Targets, ``n``.
        noise: Noise variances d_j, ``n``.
        kernel: The prior's kernel.
        mean: The prior's constant mean c, ``1``.
    """

    X: Tensor
    y: Tensor
    noise: Tensor
    kernel: Kernel
    mean: Tensor

    def factor(self, S: ActionMatrix) -> Tensor:
        """L = chol(S'(K + D)S), ``i x i``. O(n^2) kernel values, O(n i) memory."""
        B = symmetric_product(self.kernel, self.X, S)
        return chol_of(S.transpose_times(B) + S.gram(self.noise), repair=True)

    def bound(
        self,
        S: ActionMatrix,
        loss: Loss = "elbo",
        profile_mean: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One of the two losses as a log likelihood, differentiable in the prior and in S.

        Args:
            S: Actions, ``n x i``.
            loss: ``"elbo"``, or ``"projected"``: the likelihood of S'y alone.
            profile_mean: Whether to take the constant mean that maximises the bound instead of the
                prior's.

        Returns:
            The value, 0-dim, and that mean (``1``, without gradient; None unless ``profile_mean``
            and there are data). O(n^2) kernel values, O(n i^2) time, O(n i) memory.
        """
        if not self.X.shape[0]:
            parts = [self.noise, self.mean, *self.kernel.parameters()]
            return self.y.new_zeros(()) + 0.0 * sum(part.double().sum() for part in parts), None
        projected = Projected.of(symmetric_product(self.kernel, self.X, S), S, self.noise)
        best = projected.best_constant(self.y).detach().reshape(1) if profile_mean else None
        e = self.y - (self.mean if best is None else best)
        if loss == "projected":
            return projected.log_likelihood(e), best
        prior_variance = self.kernel(self.X, diag=True).double().reshape(-1)
        return projected.elbo(prior_variance, e), best
