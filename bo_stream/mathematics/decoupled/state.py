"""State of a decoupled stream (MATHS 6.8): inducing points for the covariance, a window of rows for
the mean.

With ``L L' = K(Z, Z)`` (and a nugget) and ``A = L^-1 K(Z, X)``, all data are in the covariance as

    cov(x, z) = k(x, z) - A_x'A_z + A_x'(I + G)^-1 A_z,    G = G_D + A_R D_R^-1 A_R',

where ``G_D`` holds the data that have left the window, and the window's rows R have coefficients w
in the mean. In the letters of MATHS 6.1: ``alpha = Z u R``, ``beta = Z``, ``B = L^-T G L^-1``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.decoupled.sample import Sample
from bo_stream.mathematics.inducing.bounds import merged_moments, moments_of
from bo_stream.mathematics.inducing.state import Batch, SGPRState, empty_state
from bo_stream.mathematics.shapes import nested, shaped

__all__ = ["DecoupledState", "Hyperparameters", "Window"]


@dataclass(frozen=True)
class Hyperparameters:
    """Frozen hyperparameters.

    Attributes:
        kernel: The kernel.
        mean: The constant prior mean, 0-dim.
        scale: Scale of the noise held, 0-dim.
        numbers: All of them as numbers, for comparison.
    """

    kernel: Kernel
    mean: Tensor
    scale: Tensor
    numbers: Tensor


@dataclass(frozen=True)
class Window:
    """Rows on which the mean is exact, followed by free room.

    Attributes:
        X: Points, ``r x d``.
        y: Targets, ``r`` (the prior mean not subtracted).
        noise: Noise variances before any learned scale, ``r``.
        w: Coefficients in the mean, ``r``.
        A: ``L^-1 K(Z, X)``, ``M x r``.
        K: ``k_D(X, X)``, covariances given what was folded, ``r x r``.
        held: Number of rows in use, 0-dim.
    """

    X: Tensor = shaped("r d")
    y: Tensor = shaped("r")
    noise: Tensor = shaped("r", "positive")
    w: Tensor = shaped("r")
    A: Tensor = shaped("M r")
    K: Tensor = shaped("r r")
    held: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int) -> Self:
        """No rows, and no room."""
        X = torch.zeros(0, dim, dtype=torch.float64)
        none, square = X.new_zeros(0), X.new_zeros(0, 0)
        return cls(X, none, none, none, square, square, torch.zeros((), dtype=torch.int64))

    @property
    def size(self) -> int:
        """Number of rows in use."""
        return int(self.held)

    def rows(self) -> Window:
        """Views of the rows in use."""
        n = self.size
        lines = self.X[:n], self.y[:n], self.noise[:n], self.w[:n]
        return Window(*lines, self.A[:, :n], self.K[:n, :n], self.held)

    def batch(self, scale: Tensor) -> Batch:
        """The rows in use as data, with scaled noise."""
        own = self.rows()
        return Batch(own.X, own.y, scale * own.noise)

    def with_room(self, rows: int) -> Window:
        """A copy with room for this many rows in all."""
        n, own = self.size, self.rows()
        free = rows - n
        X = torch.cat([own.X, own.X.new_zeros(free, own.X.shape[-1])])
        y, w = (torch.cat([part, part.new_zeros(free)]) for part in (own.y, own.w))
        noise = torch.cat([own.noise, own.noise.new_ones(free)])
        A, K = self.A.new_empty(len(self.A), rows), self.K.new_empty(rows, rows)
        A[:, :n], A[:, n:] = own.A, 0.0
        K[:n, :n], K[n:], K[:n, n:] = own.K, 0.0, 0.0
        return Window(X, y, noise, w, A, K, self.held)

    def kept(self, index: Tensor, rows: int) -> Window:
        """Some of the rows, with room for this many in all."""
        own = self.rows()
        lines = own.X[index], own.y[index], own.noise[index], own.w[index]
        held = torch.full_like(self.held, len(index))
        few = Window(*lines, own.A[:, index], own.K[index][:, index], held)
        return few if rows == len(index) else few.with_room(rows)


@dataclass(frozen=True)
class DecoupledState:
    """State of the stream: O(M^2 + r^2) numbers, whatever n is.

    Attributes:
        past: Inducing points, and the likelihood of their values by rows that left the window:
            ``G_D`` and ``c_D`` of MATHS 6.8.
        G: Whitened precision of all data, ``M x M``.
        L_B: ``chol(I + G)``, ``M x M``.
        L_D: ``chol(I + G_D)``, ``M x M``.
        window: The rows that have not left.
        sample: Rows that hyperparameters are learned from.
        folded: Number of rows that have left the window, 0-dim.
        batches: Number of batches absorbed, 0-dim.
        target_moments: Number, mean and squared deviations of all targets absorbed.
        made_with: The hyperparameters that factors and coefficients were made with, ``p``.
    """

    past: SGPRState = nested()
    G: Tensor = shaped("M M")
    L_B: Tensor = shaped("M M")
    L_D: Tensor = shaped("M M")
    window: Window = nested()
    sample: Sample = nested()
    folded: Tensor = shaped("", "not negative")
    batches: Tensor = shaped("", "not negative")
    target_moments: Tensor = shaped("3")
    made_with: Tensor = shaped("p")

    @classmethod
    def empty(cls, dim: int, jitter: float, prior: Hyperparameters) -> Self:
        """Before any data."""
        zero = torch.zeros((), dtype=torch.float64)
        past = empty_state(zero.new_zeros(0, dim), prior.mean.to(zero), jitter)
        window, sample = Window.empty(dim), Sample.none(dim)
        counts = zero.long(), zero.long(), zero.new_zeros(3)
        return cls(
            past,
            past.G,
            past.G.clone(),
            past.G.clone(),
            window,
            sample,
            *counts,
            prior.numbers.to(zero),
        )

    def moments(self) -> tuple[float, float, float]:
        """Number, mean and squared deviations of all targets absorbed."""
        n, mean, squares = self.target_moments.tolist()
        return n, mean, squares

    def counted(self, y: Tensor) -> Self:
        """With one more batch of targets counted."""
        moments = merged_moments(self.moments(), moments_of(y))
        known = self.target_moments.new_tensor(moments)
        return replace(self, target_moments=known, batches=self.batches + 1)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The rows, and the likelihood of the folded rows, for targets ``(y - shift) / factor``;
        `renewed` computes the rest.
        """
        s, f = shift, factor
        precision = f.square() if known_noise else torch.ones_like(f)

        def lines(own: Window | Sample) -> Any:
            return {"y": (own.y - s) / f, "noise": own.noise / precision}

        n, mean, squares = self.target_moments
        return replace(
            self,
            past=self.past.in_units(s, f, precision),
            window=replace(self.window, **lines(self.window)),
            sample=replace(self.sample, **lines(self.sample)),
            target_moments=torch.stack([n, (mean - s) / f, squares / f.square()]),
            made_with=torch.zeros_like(self.made_with),
        )
