"""The posterior of every family as one frozen Gaussian process.

Every family has the posterior::

    mean(x) = c + a_x'u,    cov(x, z) = k(x, z) - a_x'a_z + V_x'V_z
    a_x = R^-1 b(x),        V_x = L^-1 a_x

    family                  b(x)           R                        L
    exact                   k(X, x)        factor of K + D          none: V = 0
    computation-aware       S'k(X, x)      factor of S'(K + D)S     none: V = 0
    nodes, inducing points  k(Z, x)        factor of k(Z, Z)        factor of Q = I + R^-1 A R^-T
    features                scaled phi(x)  none: a = b              factor of Q
    whitened features       L^-1 phi(x)    none: a = b              none: V = a

Features are the whole prior, ``k(x, z) = a_x'a_z``, so that ``V_x'V_z`` is all that is left.
Entries of b beyond those of R enter the mean only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Protocol, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.integral import FeatureIntegral, Integral, PointIntegral
from bo_stream.mathematics.joint import Joint
from bo_stream.mathematics.kernels import cross_kernel, of_outputs
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.moments import Moments, Pullback
from bo_stream.mathematics.paths import Path, noisy, prior_path, solved, times

__all__ = [
    "FeatureBasis",
    "FeatureMap",
    "FeaturePath",
    "KernelBasis",
    "PosteriorProcess",
    "PriorBasis",
    "Process",
]


class PosteriorProcess(ABC):
    """A frozen posterior process over transformed points, float64."""

    @abstractmethod
    def at(self, X: Tensor) -> Joint:
        """The joint Gaussian at points ``batch x q x d``."""

    @abstractmethod
    def outputs(self, index: list[int]) -> PosteriorProcess:
        """Some of the outputs, ``len(index)`` of them."""

    @property
    def batch_shape(self) -> Size:
        """Batch shape of the data that it is given: ``fantasies x batch``, or empty."""
        return Size()

    @abstractmethod
    def path(self, sample_shape: Size) -> Path:
        """Sample functions, ``sample_shape`` of them, that can be evaluated anywhere."""

    @abstractmethod
    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """Weighted sums over points of products of covariances: `bo_stream.mathematics.integral`.

        Args:
            points: ``P x d``, transformed space.
            weights: ``P``.
        """

    @property
    @abstractmethod
    def has_moments(self) -> bool:
        """Whether `moments` has values."""

    @abstractmethod
    def moments(self, X: Tensor, *, slopes: bool, across: Joint | None = None) -> Moments | None:
        """Mean and covariance at points ``batch x q x d``, with derivatives in closed form.

        Args:
            X: Points; their graph is not followed.
            slopes: Whether to return derivatives.
            across: The joint posterior at p other points, to return covariances with them too.

        Returns:
            None if unsupported, or for several outputs: use `at`.
        """

    def mean_function(self) -> Path:
        """The posterior mean, ``batch x o x q`` at points ``batch x q x d``."""
        return lambda X: self.at(X).mean

    def plus(self, path: Path, at: Joint, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``.

        Args:
            path: A sample function or the mean function of this process.
            at: The joint posterior at q points z.
            weights: ``w``, ``batch x o x q``.
        """
        return lambda X: path(X) + times(self.at(X).covariance(at), weights)


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.device == b.device and torch.equal(a, b))


class PriorBasis(Protocol):
    """Functions ``b`` of a point: prior covariances of ``f(x)`` with r functionals of ``f``."""

    def __call__(self, X: Tensor) -> Tensor:
        """Values at points ``batch x q x d``: ``batch x o x q x r``, differentiable."""
        ...

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """Sample functions of the prior, less its mean."""
        ...

    def functionals(self, f: Path) -> Tensor:
        """The functionals of sample functions of the prior, with their noise: ``batch x o x r``."""
        ...

    def outputs(self, index: list[int]) -> Self:
        """Those of some of the outputs."""
        ...


@dataclass(frozen=True)
class KernelBasis:
    """``k(Z, x)``: the functionals are values at points, with independent noise or without.

    Attributes:
        kernel: The kernel, frozen.
        Z: ``r x d``.
        noise: Noise variances ``o x r``, or None.
    """

    kernel: Kernel
    Z: Tensor
    noise: Tensor | None = None

    def __call__(self, X: Tensor) -> Tensor:
        """O(r) kernel values per point."""
        return cross_kernel(self.kernel, X, self.Z)

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """From random features of the kernel."""
        return prior_path(self.kernel, outputs, sample_shape, self.Z)

    def functionals(self, f: Path) -> Tensor:
        """Values of the sample functions at Z, plus noise."""
        values = f(self.Z)
        return values if self.noise is None else noisy(values, self.noise)

    def outputs(self, index: list[int]) -> Self:
        """Those of some of the outputs."""
        noise = None if self.noise is None else self.noise[index]
        return replace(self, kernel=of_outputs(self.kernel, index), noise=noise)


class FeatureMap(Protocol):
    """Finitely many functions of the inputs."""

    def features(self, X: Tensor) -> Tensor:
        """Features at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        ...

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """Features and their derivatives in k coordinates, without an autograd graph.

        Args:
            X: Points, ``batch x q x d``.

        Returns:
            ``batch x q x (1 + k) x f``, the values first; and a function from gradients in the
            coordinates to gradients in X.
        """
        ...


@dataclass(frozen=True)
class FeatureBasis:
    """Features times the standard deviations of their coefficients under the prior.

    The functionals are the coefficients in units of these deviations.

    Attributes:
        features: The features.
        scale: The standard deviations, ``o x f``.
    """

    features: FeatureMap
    scale: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """As `PriorBasis`."""
        return self.features.features(X).unsqueeze(-3) * self.scale.unsqueeze(-2)

    def outputs(self, index: list[int]) -> FeatureBasis:
        """That of some of the outputs."""
        return replace(self, scale=self.scale[index])


@dataclass(frozen=True)
class FeaturePath:
    """Sample functions on features, as a `Path`.

    Attributes:
        basis: The features.
        mean: Constant prior mean, ``o``.
        weights: Coefficients, ``sample_shape x o x f``.
    """

    basis: FeatureMap
    mean: Tensor
    weights: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Values at points ``batch x q x d``, as in `Path`."""
        return self.mean.unsqueeze(-1) + self.weights @ self.basis.features(X).mT


@dataclass(frozen=True)
class Process(PosteriorProcess):
    """Mean ``c + a_x'u``, covariance ``k(x, z) - a_x'a_z + V_x'V_z``; see the module.

    Attributes:
        kernel: The prior's kernel, frozen; None for a prior on features.
        basis: The functions ``b``.
        R: Lower triangular, ``o x r x r``; None for the identity.
        L: Lower triangular, ``o x r x r``; None if ``V`` is zero, or ``a`` without a kernel.
        u: ``o x r``, or longer if entries of ``b`` enter the mean only.
        mean: The constant prior mean ``c``, ``o``.
    """

    kernel: Kernel | None
    basis: PriorBasis | FeatureBasis
    R: Tensor | None
    L: Tensor | None
    u: Tensor
    mean: Tensor

    @property
    def size(self) -> int:
        """The number r of entries of ``a``."""
        return self.u.shape[-1] if self.R is None else self.R.shape[-1]

    def at(self, X: Tensor) -> Joint:
        """The joint posterior at points ``batch x q x d``: O(r) per mean and O(r^2) per variance,
        after O(r^2) for ``a`` unless R is the identity.
        """
        shape, r = X.shape[:-1], self.size
        b = self.basis(X.reshape(-1, X.shape[-1]))
        a = b[..., :r]
        if self.R is not None:
            a = torch.linalg.solve_triangular(self.R.mT, a, upper=True, left=False)
        mean = self.mean.unsqueeze(-1) + (a @ self.u[..., :r, None]).squeeze(-1)
        if b.shape[-1] > r:
            mean = mean + (b[..., r:] @ self.u[..., r:, None]).squeeze(-1)
        mean, rows = mean.unflatten(-1, shape).movedim(0, -2), a.unflatten(-2, shape).movedim(0, -3)
        return Joint(mean, X, self.kernel, rows, self.L)

    def outputs(self, index: list[int]) -> Process:
        """Some of the outputs."""
        return replace(
            self,
            kernel=None if self.kernel is None else of_outputs(self.kernel, index),
            basis=self.basis.outputs(index),
            R=None if self.R is None else self.R[index],
            L=None if self.L is None else self.L[index],
            u=self.u[index],
            mean=self.mean[index],
        )

    def path(self, sample_shape: Size) -> Path:
        """Sample functions: exact on features, else by Matheron's rule on random features of the
        prior.
        """
        u, r = self.u[..., : self.size], self.size
        if self.kernel is None:
            return self._on_features(u + self._scatter((*sample_shape, *u.shape)))
        prior = cast(PriorBasis, self.basis).prior(len(self.mean), sample_shape)
        v = u if self.L is None else u + self._scatter((*sample_shape, *u.shape))
        values = cast(PriorBasis, self.basis).functionals(prior)[..., :r]
        if self.R is None:
            weights = v - values
        else:
            weights = solved(self.R.mT, v - solved(self.R, values, upper=False), upper=True)
        if self.u.shape[-1] > r:
            rest = self.u[..., r:]
            weights = torch.cat([weights, rest.expand(*weights.shape[:-1], -1)], -1)
        mean = self.mean.unsqueeze(-1)
        return lambda X: mean + prior(X) + times(self.basis(X), weights)

    def _scatter(self, shape: tuple[int, ...]) -> Tensor:
        """Draws with covariance ``(L L')^-1``."""
        noise = torch.randn(shape, dtype=self.u.dtype, device=self.u.device)
        return noise if self.L is None else solved(self.L.mT, noise, upper=True)

    # -- features --------------------------------------------------------------------------------

    def mean_function(self) -> Path:
        """The posterior mean; on features it is a `FeaturePath`."""
        return super().mean_function() if self.kernel is not None else self._on_features(self.u)

    def plus(self, path: Path, at: Joint, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``; on features it is a `FeaturePath`."""
        if not isinstance(path, FeaturePath):
            return super().plus(path, at, weights)
        change = (at.coefficients.mT @ weights.unsqueeze(-1)).squeeze(-1)
        return replace(path, weights=path.weights + cast(FeatureBasis, self.basis).scale * change)

    def _on_features(self, v: Tensor) -> FeaturePath:
        """The function ``c + a_x'v``, for ``batch x o x r`` v."""
        basis = cast(FeatureBasis, self.basis)
        return FeaturePath(basis.features, self.mean, basis.scale * v)

    @lasting
    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """The last sums are kept. On features O(P r^2 + r^3), and then independent of P."""
        pair = points, weights
        kept: tuple[tuple[Tensor, Tensor], Integral] | None = vars(self).get("_kept_integral")
        if kept is not None and all(_same(a, b) for a, b in zip(kept[0], pair, strict=True)):
            return kept[1]
        points, weights = points.clone(), weights.clone()
        sums: Integral
        if self.kernel is None:
            sums = FeatureIntegral.over(self.basis, self.L, points, weights)
        else:
            sums = PointIntegral.over(self.at, points, weights)
        vars(self)["_kept_integral"] = (points, weights), sums
        return sums

    @property
    def has_moments(self) -> bool:
        """On features, of one output."""
        return self.kernel is None and len(self.u) == 1

    def moments(self, X: Tensor, *, slopes: bool, across: Joint | None = None) -> Moments | None:
        """O(r^2) per point."""
        if not self.has_moments:
            return None
        basis, u = cast(FeatureBasis, self.basis), self.u[0]
        others = None if across is None else across.coefficients[0]
        if not slopes:
            a = self.at(X)
            rows = a.rows[..., 0, :, :]
            to_others = None if others is None else (rows @ others.mT).unsqueeze(-2)
            mean, cov = a.mean[..., 0, :], a.covariance(a)[..., 0, :, :]
            return Moments(mean, cov, across=to_others)
        rows, back = basis.features.sloped(X)
        rows = rows * basis.scale[0]
        spread = phi = rows[..., 0, :]
        if self.L is not None:
            flat = phi.reshape(-1, phi.shape[-1]).mT
            spread = torch.cholesky_solve(flat, self.L[0]).mT.view(phi.shape)
        crossed = (rows.flatten(-3, -2) @ spread.mT).unflatten(-2, rows.shape[-3:-1])
        means = rows @ u
        means[..., 0] += self.mean[0]
        return Moments.of(means, crossed, back, None if others is None else rows @ others.mT)
