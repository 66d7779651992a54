"""Observations in transformed space, as batches bring them and as states keep them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows:
    """Points, targets and noise of n observations.

    Attributes:
        X: Points, ``n x d``.
        Y: Targets, ``o x n``.
        R: Noise variances before any learned scale, ``s x n``: ``s`` is 1 if outputs share them,
            as where the noise is learned, and they are ones.
    """

    X: Tensor = shaped("n d")
    Y: Tensor = shaped("o n")
    R: Tensor = shaped("s n", "positive")

    @classmethod
    def empty(cls, dim: int, outputs: int = 1, noises: int = 1) -> Rows:
        """No observations of ``dim`` inputs, on the CPU."""
        X = torch.zeros(0, dim, dtype=torch.float64)
        return Rows(X, X.new_zeros(outputs, 0), X.new_zeros(noises, 0))

    @property
    def y(self) -> Tensor:
        """Targets of the first output, ``n``."""
        return self.Y[0]

    @property
    def r(self) -> Tensor:
        """Noise variances of the first output, ``n``."""
        return self.R[0]

    def __len__(self) -> int:
        return self.X.shape[-2]

    def __getitem__(self, index: Any) -> Self:
        """Some of the rows, by a slice, a mask or indices."""
        return replace(self, X=self.X[index], Y=self.Y[:, index], R=self.R[:, index])

    def joined(self, other: Rows) -> Self:
        """These rows, then others."""
        X = torch.cat([self.X, other.X])
        Y, R = torch.cat([self.Y, other.Y], -1), torch.cat([self.R, other.R], -1)
        return replace(self, X=X, Y=Y, R=R)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The rows with targets ``(y - shift) / factor`` (each ``o``), and known noise to match."""
        shift, factor = shift.unsqueeze(-1), factor.unsqueeze(-1)
        R = self.R / factor.square() if known_noise else self.R
        return replace(self, Y=(self.Y - shift) / factor, R=R)
