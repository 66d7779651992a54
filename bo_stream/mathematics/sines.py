"""Sine functions on a box around the bounds of the inputs, and their prior variances [Solin].

The functions vanish at the walls of a box somewhat wider than the bounds. In one dimension, for the
unit interval and half width ``L``, they are ``sin(pi a (x - 1/2 + L) / (2 L)) / sqrt(L)`` for a =
1, 2, ...; in several dimensions they are products of these (MATHS 2.9). Main effects are functions
of one input each (MATHS 12.1).

The prior variance of a sine is the spectral density of the kernel at its frequency, over the volume
of the bounds (MATHS 2.9, 12.1).

Functions on sines are maximised on a whole grid first (MATHS 12.3): they are contracted with the
features axis after axis, so that a value costs few operations.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.expanded import Functions, ProductFunctions, SineTable
from bo_stream.mathematics.grid import ProductFeatures
from bo_stream.mathematics.kernels import Scaled, scaled
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "Basis",
    "MainEffects",
    "Spectrum",
    "best_on_grid",
    "default_kernel",
    "default_likelihood",
    "least_indices",
    "log_variances",
    "main_effects",
    "parts_of",
    "spectrum",
]

LEAST_HALF, MARGIN, LONGEST = 0.6, 1.2, 1.0
"""The half width is 1/2 + `MARGIN` lengthscales (each at most `LONGEST`), at least `LEAST_HALF`,
in widths of the bounds."""


@dataclass(frozen=True)
class Basis:
    """The sine functions of some multi-indices.

    Attributes:
        alpha: Multi-indices, ``f x d``, counted from 1; a zero stands for the constant 1 in place
            of that input's sine. First come the main effects, whose indices have one positive
            entry, input after input, then the functions of all inputs.
        half: Half widths of the box, in widths of the bounds.
        lengthscales: The lengthscales it was chosen for, in units of the inputs.
        low: Lower bounds.
        width: Widths of the bounds.
    """

    alpha: Tensor = shaped("f d", "not negative")
    half: Tensor = shaped("d", "positive")
    lengthscales: Tensor = shaped("d", "positive")
    low: Tensor = shaped("d")
    width: Tensor = shaped("d", "positive")

    @classmethod
    def choose(
        cls,
        lengthscales: Tensor,
        low: Tensor,
        width: Tensor,
        count: int,
        main: int = 0,
        *,
        half: float | None = None,
        highest: int | None = None,
    ) -> Basis:
        """The ``count`` functions of all inputs with the largest prior variance.

        Args:
            lengthscales: Of the kernel, ``d``.
            low: Lower bounds, ``d``.
            width: Widths of the bounds, ``d``.
            count: Number of functions of all inputs.
            main: Number of main effects of each input.
            half: Half width of the box in every input; by default one that suits the lengthscales.
            highest: The highest index of any input in functions of all inputs.
        """
        lengths = lengthscales / width
        around = (0.5 + MARGIN * lengths.clamp_max(LONGEST)).clamp_min(LEAST_HALF)
        around = around if half is None else torch.full_like(around, half)
        steps = (lengths * math.pi / (2.0 * around)).tolist()
        joint = torch.tensor(least_indices(steps, count, highest), device=low.device)
        one = torch.arange(1, main + 1, device=low.device)
        alone = torch.block_diag(*one.expand(len(low), -1).unsqueeze(-1))
        alpha = torch.cat([alone, joint])
        return cls(alpha, around, lengthscales.clone(), low.clone(), width.clone())

    def same_as(self, other: Basis) -> bool:
        """Whether the functions are the same."""
        names = ("alpha", "half", "low", "width")
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in names)

    @cached_property
    def main(self) -> int:
        """Number of main effects of each input."""
        return int((self.alpha == 0).any(-1).sum()) // self.alpha.shape[-1]

    @property
    def joint(self) -> Tensor:
        """Multi-indices of the functions of all inputs."""
        return self.alpha[self.main * self.alpha.shape[-1] :]

    @cached_property
    def highest(self) -> int:
        """The highest index of any input."""
        return int(self.alpha.max())

    @lasting_property
    def columns(self) -> tuple[Tensor, ...]:
        """For each input, every function's column of `tables`."""
        return tuple(self.alpha.T.contiguous())

    @property
    def rate(self) -> Tensor:
        """Radians per unit of the inputs of the first sines, ``d``."""
        return math.pi / (2.0 * self.half * self.width)

    def phases(self, X: Tensor) -> Tensor:
        """The angles whose multiples' sines are taken, for points ``batch x q x d``."""
        return ((X - self.low) / self.width - 0.5 + self.half) * (math.pi / (2.0 * self.half))

    def tables(self, X: Tensor) -> Tensor:
        """For each input the constant and the sines, at points ``p x d``.

        Returns:
            ``d x (1 + highest index) x p``: to pick rows is cheap, columns is not.
        """
        multiples = torch.arange(1, self.highest + 1, dtype=X.dtype, device=X.device).unsqueeze(-1)
        waves = (multiples * self.phases(X).mT.unsqueeze(-2)).sin()
        waves = waves * self.half.rsqrt()[:, None, None]
        return torch.nn.functional.pad(waves, (0, 0, 1, 0), value=1.0)

    def functions(self) -> Functions:
        """The functions in numpy, with derivatives."""
        phase = (self.half - 0.5) * (math.pi / (2.0 * self.half)) - self.rate * self.low
        parts = torch.stack([self.rate, phase, self.half.rsqrt()], -1).tolist()
        tables = [SineTable(rate, start, scale, self.highest) for rate, start, scale in parts]
        return ProductFunctions(tables, self.alpha.mT.numpy(force=True).copy())

    def features(self, X: Tensor) -> Tensor:
        """The functions at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        tables = zip(self.tables(X.reshape(-1, X.shape[-1])), self.columns, strict=True)
        factors = (table.index_select(0, column) for table, column in tables)
        return reduce(torch.mul, factors).mT.unflatten(0, X.shape[:-1])


def least_indices(
    steps: list[float], count: int, highest: int | None = None
) -> list[tuple[int, ...]]:
    """The ``count`` multi-indices of least ``sum_k (steps_k alpha_k)^2``, ties by the first index.

    Sums that differ by rounding are ties, so that the choice is the same on all machines.

    Args:
        steps: One for each dimension.
        count: At most ``highest`` to the power of the number of dimensions.
        highest: The highest index of each dimension, or None for any.
    """
    dim, most = len(steps), math.inf if highest is None else highest
    first = sum(s * s for s in steps)

    def key(alpha: tuple[int, ...]) -> float:
        return round(sum((s * a) ** 2 for s, a in zip(steps, alpha, strict=True)) / first, 9)

    ones = (1,) * dim
    chosen: list[tuple[int, ...]] = []
    waiting = [(key(ones), ones, 0)]
    while len(chosen) < count:
        _, alpha, last = heapq.heappop(waiting)
        chosen.append(alpha)
        for k in range(last, dim):
            further = (*alpha[:k], alpha[k] + 1, *alpha[k + 1 :])
            if further[k] <= most:
                heapq.heappush(waiting, (key(further), further, k))
    return chosen


# -- priors --------------------------------------------------------------------------------------

LENGTHSCALE, MAIN_LENGTHSCALE, LENGTHSCALE_SD = 0.3, 0.1, 0.8
VARIANCE, MAIN_VARIANCE, VARIANCE_SD = 0.5, 0.1, 1.5
NOISE, NOISE_SD, LEAST_NOISE = 0.5, 2.0, 1e-6
"""Modes and standard deviations of the logarithms, in widths of the bounds and variances of
standardised outcomes."""


class MainEffects(Kernel):
    """Sum over the inputs of one Matern-9/2 kernel of each, with a common lengthscale.

    Under a rougher one the many sines of main effects follow noise.
    """

    has_lengthscale = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nu = 4.5  # as other kernels have it, which checkpoints compare

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        apart = x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)
        r = 3.0 * (apart / (self.lengthscale if diag else self.lengthscale.unsqueeze(-1))).abs()
        polynomial = 1.0 + r * (1.0 + r * (3.0 / 7.0 + r * (2.0 / 21.0 + r / 105.0)))
        value: Tensor = (-r).exp() * polynomial
        return value.sum(-1)


@dataclass(frozen=True)
class Spectrum:
    """Prior variances of sines as a function of hyperparameters.

    Attributes:
        nu: Smoothness; infinite for RBF.
        squares: Squared frequencies, ``f x d``; ``f x 1`` for functions of one input.
        volume: Logarithm of the volume of the bounds, or of the width of one input, ``f``.
    """

    nu: float
    squares: Tensor
    volume: Tensor

    def logs(self, lengths: Tensor, variance: Tensor) -> Tensor:
        """Logarithms of the prior variances, ``o x f``, differentiable.

        Args:
            lengths: Logarithms of the lengthscales, ``o x d``, or ``o x 1`` if inputs share one.
            variance: Logarithms of the kernel's variance, ``o x 1``.
        """
        d = self.squares.shape[-1]
        lengths = lengths.expand(-1, d)
        squares = (2.0 * lengths).exp() @ self.squares.mT
        total = lengths.sum(-1, keepdim=True) + variance - self.volume
        if math.isinf(self.nu):
            return total + 0.5 * (d * math.log(2.0 * math.pi) - squares)
        constant = d * math.log(2.0) + 0.5 * d * math.log(math.pi)
        constant += self.nu * math.log(2.0 * self.nu)
        constant += math.lgamma(self.nu + 0.5 * d) - math.lgamma(self.nu)
        return total + constant - (self.nu + 0.5 * d) * (2.0 * self.nu + squares).log()


def spectrum(part: Scaled, basis: Basis) -> Spectrum:
    """The prior variances of the features of a basis that are a part's; see `parts_of`."""
    m, main = basis.main * len(basis.low), isinstance(part.base, MainEffects)
    alpha = basis.alpha[:m] if main else basis.alpha[m:]
    squares = (alpha * basis.rate).square()
    squares = squares.sum(-1, keepdim=True) if main else squares
    return Spectrum(part.nu, squares, (alpha > 0).double() @ basis.width.log())


def log_variances(parts: tuple[Scaled, ...], basis: Basis, outputs: int) -> Tensor:
    """Logarithms of the features' prior variances, ``o x f``, differentiable (MATHS 2.9)."""
    logs = []
    for part in parts:
        lengths = part.lengthscales(part.base.lengthscale.shape[-1], outputs)
        variances = part.variances(outputs).unsqueeze(-1)
        logs.append(spectrum(part, basis).logs(lengths.log(), variances.log()))
    return torch.cat(logs, -1)


def parts_of(kernel: Kernel) -> tuple[Scaled, ...]:
    """The parts of a kernel in the order of the features: main effects, if any, and the others.

    Raises:
        UnsupportedError: on a kernel whose spectral density is not implemented.
    """
    kernels = list(kernel.kernels) if type(kernel) is AdditiveKernel else [kernel]
    parts = [scaled(part) for part in kernels]
    plain = all(part.base.active_dims is None for part in parts)
    joint = [part for part in parts if type(part.base) in (RBFKernel, MaternKernel)]
    main = [part for part in parts if type(part.base) is MainEffects]
    if not plain or len(joint) != 1 or len(main) != len(parts) - 1 or len(main) > 1:
        raise UnsupportedError(
            "an RBF or Matern kernel over all inputs, in a ScaleKernel or not, with main effects "
            "or without",
            " + ".join(type(part.base).__name__ for part in parts)
            + ("" if plain else " over some of the inputs"),
            "Use one of these, or a family that takes any kernel (ExactGP, OnlineSGPR, CaGP).",
        )
    return (*main, *joint)


def main_effects(batch_shape: Size) -> ScaleKernel:
    """Scaled main effects with the default priors."""
    base = MainEffects(
        batch_shape=batch_shape, lengthscale_prior=_about(MAIN_LENGTHSCALE, LENGTHSCALE_SD)
    )
    return _started(base, MAIN_LENGTHSCALE, MAIN_VARIANCE)


def default_kernel(dim: int, batch_shape: Size) -> ScaleKernel:
    """A scaled Matern-5/2 kernel with the default priors."""
    length = LENGTHSCALE * math.sqrt(dim / 3.0)
    base = MaternKernel(
        nu=2.5,
        ard_num_dims=dim,
        batch_shape=batch_shape,
        lengthscale_prior=_about(length, LENGTHSCALE_SD),
    )
    return _started(base, length, VARIANCE)


def default_likelihood(batch_shape: Size) -> GaussianLikelihood:
    """Learned noise from almost none on."""
    return GaussianLikelihood(
        noise_prior=_about(NOISE, NOISE_SD),
        noise_constraint=GreaterThan(LEAST_NOISE, transform=None, initial_value=NOISE),
        batch_shape=batch_shape,
    )


def _started(base: Kernel, lengthscale: float, variance: float) -> ScaleKernel:
    """The kernel in a `ScaleKernel`, with hyperparameters set."""
    prior = _about(variance, VARIANCE_SD)
    kernel = ScaleKernel(base, batch_shape=base.batch_shape, outputscale_prior=prior)
    base.lengthscale, kernel.outputscale = lengthscale, variance
    return kernel


def _about(mode: float, sd: float) -> LogNormalPrior:
    """The prior under which the logarithm's posterior mode is that of ``N(log mode, sd^2)``.

    The density is one of the value; a fit climbs in the logarithm.
    """
    return LogNormalPrior(math.log(mode) + sd**2, sd)


# -- maximisers ----------------------------------------------------------------------------------

TOGETHER = 32
"""Functions whose values on the grid are held at a time."""


@torch.no_grad()
def best_on_grid(
    basis: Basis | ProductFeatures, weights: Tensor, ends: Tensor, per_axis: int, starts: int = 1
) -> Tensor:
    """The best points of a grid over a box for functions ``weights @ features`` of few inputs.

    O(a per_axis^d) operations a function, in float32, for a functions of each input.

    Args:
        basis: The features, of one to about four inputs.
        weights: Coefficients of ``S`` functions, ``S x f``.
        ends: The box, ``2 x d``.
        per_axis: Points of the grid along each axis.
        starts: Number of points for each function, with different values of the first input.

    Returns:
        Points of the grid, ``S x starts x d``: centres of its cells for sines, else corners.
    """
    edge = 0.5 if isinstance(basis, Basis) else 0.0  # sines fall towards the bounds
    steps = torch.arange(per_axis, dtype=torch.float64, device=ends.device).add(edge)
    axes = ends[0] + ends.diff(dim=0) * (steps / (per_axis - 1.0 + 2.0 * edge)).unsqueeze(-1)
    waves = basis.tables(axes).float()
    parts = weights.float().split(TOGETHER)
    found = torch.cat([_best_cells(basis, part, waves, starts) for part in parts])
    return axes[found, torch.arange(len(axes[0]))]


def _best_cells(
    basis: Basis | ProductFeatures, weights: Tensor, waves: Tensor, starts: int
) -> Tensor:
    """The best cells along each axis, ``S x starts x d``, from the features' factors there."""
    (d, _, per_axis), S, main = waves.shape, len(weights), basis.main
    joint = torch.stack([*basis.columns])[:, d * main :]
    highest = joint.amax(1).tolist()
    T = weights.new_zeros(S, *highest)
    T[:, *(joint - 1)] = weights[:, d * main :]
    first, *others = (wave[1 : most + 1] for wave, most in zip(waves, highest, strict=True))
    for wave in reversed(others):
        T = (T @ wave).movedim(-1, 1)  # in the end S x the other axes x indices of the first
    T = T.reshape(S, -1, highest[0])
    alone = weights[:, : d * main].unflatten(-1, (d, main)).movedim(1, 0)
    effect, *effects = alone @ waves[:, 1 : main + 1]
    rest = weights.new_zeros(S)
    for other in effects:
        rest = rest.unsqueeze(-1) + other[:, *(None,) * (rest.ndim - 1)]
    T = torch.cat([T, rest.view(S, -1, 1)], -1)
    values = torch.cat([first, torch.ones_like(first[:1])]).mT @ T.mT  # S x per_axis x others
    layers = (values.amax(-1) + effect).topk(starts).indices
    inside = values.gather(1, layers.unsqueeze(-1).expand(-1, -1, values.shape[-1])).argmax(-1)
    found = torch.unravel_index(layers * values.shape[-1] + inside, (per_axis,) * d)
    return torch.stack(found, -1)
