"""The posterior process of a computation-aware GP, frozen.  [CaGP, eq. 5; MATHS 5.1]"""

from __future__ import annotations

from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.products import cross_product
from bo_stream.mathematics.paths import Path, noisy, prior_path

__all__ = ["ActionBasis"]


@dataclass(frozen=True)
class ActionBasis:
    """``S'k(X, x)``: the functionals are combinations of the noisy values at the data.

    Attributes:
        kernel: The kernel, frozen.
        X: ``n x d``.
        S: ``n x i``.
        noise: Noise variances, ``n``.
    """

    kernel: Kernel
    X: Tensor
    S: ActionMatrix
    noise: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """O(n) per point."""
        flat = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
        return flat.unflatten(0, X.shape[:-1]).unsqueeze(-3)

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """From random features of the kernel."""
        return prior_path(self.kernel, outputs, sample_shape, self.X)

    def functionals(self, f: Path) -> Tensor:
        """``S'`` times the noisy values of the sample functions at the data."""
        values = noisy(f(self.X), self.noise)
        columns = self.S.transpose_times(values.flatten(0, -2).mT)
        return columns.mT.unflatten(0, values.shape[:-1])
