"""The posterior of every family as one frozen Gaussian process.

Every family has the posterior::

    mean(x) = c + a_x'u,    cov(x, z) = k(x, z) - a_x'a_z + V_x'V_z
    a_x = R^-1 b(x),        V_x = L^-1 a_x

    family                  b(x)           R                        L
    exact                   k(X, x)        factor of K + D          none: V = 0
    computation-aware       S'k(X, x)      factor of S'(K + D)S     none: V = 0
    nodes, inducing points  k(Z, x)        factor of k(Z, Z)        factor of Q = I + R^-1 A R^-T
    features                scaled phi(x)  none: a = b              factor of Q
    values at nodes         none: k is the posterior covariance itself

Features are the whole prior, ``k(x, z) = a_x'a_z``, so that ``V_x'V_z`` is all that is left.
Entries of b beyond those of R enter the mean only.

Conditioning is exact for every family (MATHS 1): for ``y_q = f(X_q) + eps``, the posterior of ``f``
given ``y_q`` costs one joint evaluation at ``X_q`` and the test points, a ``q x q`` Cholesky factor
and a ``q x p`` product. The covariance does not depend on ``y_q``: it is shared by all fantasies.

A matrix that all sample functions share is applied to them in one product or solve, and not once
for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from botorch.sampling.pathwise.features import gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.errors import NoiseError, PrecisionWarning, UnsupportedError
from bo_stream.mathematics.autograd import lasting, lasting_property
from bo_stream.mathematics.expanded import (
    Covariance,
    Expansion,
    Functions,
    RadialCovariance,
    applied,
)
from bo_stream.mathematics.joint import (
    KEPT,
    Factors,
    Integral,
    Joint,
    products,
    solved_rows,
)
from bo_stream.mathematics.kernels import cross_kernel, of_outputs, stationary
from bo_stream.mathematics.linalg import chol_psd, inverse_factor

__all__ = [
    "ConditionedProcess",
    "FeatureBasis",
    "FeatureMap",
    "FeaturePath",
    "KernelBasis",
    "Path",
    "PosteriorProcess",
    "Process",
    "conditioned_on",
    "noisy",
    "solved",
    "times",
    "unconditioned",
    "warn_if_missed",
    "warn_if_saturated",
]

T = TypeVar("T")

Path = Callable[[Tensor], Tensor]
"""Sample functions: points ``batch x q x d`` to values ``batch' x o x q``, where ``batch'`` is
``batch`` broadcast with ``sample_shape``, as in BoTorch: points may differ between samples."""


def times(M: Tensor, v: Tensor) -> Tensor:
    """``M v`` for ``batch x o x q x r`` M and ``batch' x o x r`` v: ``batch" x o x q``.

    Without ``batch``, M is shared by all v.
    """
    return products(v.unsqueeze(-2), M.mT).squeeze(-2)


FOLDED = 300.0
"""Ratio of a factor's diagonal entries below which its inverse may be squared."""


def solved(L: Tensor, v: Tensor, *, upper: bool) -> Tensor:
    """``L^-1 v`` for ``o x r x r`` triangular L and ``batch x o x r`` v."""
    return solved_rows(L, v.unsqueeze(-2), upper=upper).squeeze(-2)


def noisy(values: Tensor, noise: Tensor) -> Tensor:
    """The values with independent Gaussian noise of these variances."""
    return values + noise.sqrt() * torch.randn_like(values)


@dataclass(frozen=True)
class KernelBasis:
    """Functions ``b`` of a point: prior covariances of ``f(x)`` with r functionals of ``f``.

    These are values at points, ``b(x) = k(Z, x)``, with independent noise or without; subclasses
    may have others.

    Attributes:
        kernel: The kernel, frozen.
        Z: ``r x d``.
        noise: Noise variances ``o x r``, or None.
    """

    kernel: Kernel
    Z: Tensor
    noise: Tensor | None = None

    def __call__(self, X: Tensor) -> Tensor:
        """At points ``batch x q x d``, differentiable: ``batch x o x q x r``. O(r) kernel values
        per point.
        """
        return cross_kernel(self.kernel, X, self.Z)

    def covariance(self) -> Covariance | None:
        """The prior's kernel in numpy; None but for RBF and Matern kernels."""
        dim = self.Z.shape[-1]
        form = stationary(self.kernel, dim)
        if form is None:
            return None
        inverse = form.lengthscales(dim, 1)[0].reciprocal().detach().numpy()
        return RadialCovariance(inverse, float(form.variances(1)), form.nu)

    def spread(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """Points Z and coefficients with which ``T'b`` is a combination of ``k(Z, x)``.

        Args:
            T: ``r x k``.
        """
        return self.Z, T

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """Sample functions of the prior, less its mean, on BoTorch's random features.

        Raises:
            UnsupportedError: for a kernel that BoTorch has no features for.
        """
        kernel, Z = self.kernel, self.Z
        try:
            features: Any = gen_kernel_features(
                kernel=kernel, num_inputs=Z.shape[-1], num_outputs=1024
            )
        except NotImplementedError as error:
            raise UnsupportedError(
                "a kernel that BoTorch has random features for: RBF, Matern, scaled",
                type(kernel).__name__,
                "Use `acquisitions.ThompsonSampling`, or samples of the joint posterior.",
            ) from error
        weights = torch.randn(*sample_shape, outputs, 1024, dtype=Z.dtype, device=Z.device)
        return lambda X: times(features(X.unsqueeze(-3)).to(Z), weights)

    def functionals(self, f: Path) -> Tensor:
        """The functionals of sample functions of the prior, with their noise: ``batch x o x r``."""
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

    def functions(self) -> Functions | None:
        """The features in numpy, with derivatives; None if they have no closed form there."""


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
        """At points ``batch x q x d``, differentiable: ``batch x o x q x f``."""
        return self.features.features(X).unsqueeze(-3) * self.scale.unsqueeze(-2)

    @property
    def size(self) -> int:
        """The number of features."""
        return self.scale.shape[-1]

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
class Process:
    """Mean ``c + a_x'u``, covariance ``k(x, z) - a_x'a_z + V_x'V_z``; see the module.

    Attributes:
        kernel: The prior's kernel, frozen; None for a prior on features.
        basis: The functions ``b``.
        R: Lower triangular, ``o x r x r``; None, for the identity, without a kernel.
        L: Lower triangular, ``o x r x r``; None if ``V`` is zero, or ``a`` without a kernel.
        u: ``o x r``, or longer if entries of ``b`` enter the mean only.
        mean: The constant prior mean ``c``, ``o``.
    """

    kernel: Kernel | None
    basis: KernelBasis | FeatureBasis
    R: Tensor | None
    L: Tensor | None
    u: Tensor
    mean: Tensor

    @property
    def size(self) -> int:
        """The number r of entries of ``a``."""
        return self.u.shape[-1] if self.R is None else self.R.shape[-1]

    def placed(self, X: Tensor) -> Tensor:
        """The points as kernel and basis take them."""
        return X

    def at(self, X: Tensor) -> Joint:
        """The joint posterior at points ``batch x q x d``: O(r) per mean and O(r^2) per variance,
        after O(r^2) for ``a`` unless R is the identity.
        """
        shape, r = X.shape[:-1], self.size
        X = self.placed(X)
        b = self.rows(X.reshape(-1, X.shape[-1]))
        a = b[..., :r]
        mean = self.mean.unsqueeze(-1) + (a @ self.u[..., :r, None]).squeeze(-1)
        if b.shape[-1] > r:
            mean = mean + (b[..., r:] @ self.u[..., r:, None]).squeeze(-1)
        mean, rows = mean.unflatten(-1, shape).movedim(0, -2), a.unflatten(-2, shape).movedim(0, -3)
        return Joint(mean, X, self.kernel, rows, self.L)

    def rows(self, X: Tensor) -> Tensor:
        """The functions ``R^-1 b`` at placed points ``n x d``, and what enters the mean only:
        ``o x n x r`` or longer.
        """
        b = self.basis(X)
        if self.R is None:
            return b
        return torch.cat([solved_rows(self.R, b[..., : self.size]), b[..., self.size :]], -1)

    @property
    def batch_shape(self) -> Size:
        """Batch shape of data conditioned on: none."""
        return Size()

    def outputs(self, index: list[int]) -> Process:
        """Some of the outputs, ``len(index)`` of them."""
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
        basis = cast(KernelBasis, self.basis)
        prior = basis.prior(len(self.mean), sample_shape)
        v = u if self.L is None else u + self._scatter((*sample_shape, *u.shape))
        values = basis.functionals(prior)[..., :r]
        R = cast(Tensor, self.R)
        weights = solved(R.mT, v - solved(R, values, upper=False), upper=True)
        if self.u.shape[-1] > r:
            rest = self.u[..., r:]
            weights = torch.cat([weights, rest.expand(*weights.shape[:-1], -1)], -1)
        mean = self.mean.unsqueeze(-1)
        return lambda X: mean + prior(X) + times(self.basis(self.placed(X)), weights)

    def _scatter(self, shape: tuple[int, ...]) -> Tensor:
        """Draws with covariance ``(L L')^-1``."""
        noise = torch.randn(shape, dtype=self.u.dtype, device=self.u.device)
        return noise if self.L is None else solved(self.L.mT, noise, upper=True)

    # -- features --------------------------------------------------------------------------------

    def mean_function(self) -> Path:
        """The posterior mean, ``batch x o x q`` at points ``batch x q x d``; on features it is a
        `FeaturePath`.
        """
        if self.kernel is None:
            return self._on_features(self.u)
        return lambda X: self.at(X).mean

    def plus(self, path: Path, at: Joint, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``; on features it is a `FeaturePath`.

        Args:
            path: A sample function or the mean function of this process.
            at: The joint posterior at q points z.
            weights: ``w``, ``batch x o x q``.
        """
        if self.kernel is not None or not isinstance(path, FeaturePath):
            return lambda X: path(X) + times(self.at(X).covariance(at), weights)
        change = (at.coefficients.mT @ weights.unsqueeze(-1)).squeeze(-1)
        return replace(path, weights=path.weights + cast(FeatureBasis, self.basis).scale * change)

    def _on_features(self, v: Tensor) -> FeaturePath:
        """The function ``c + a_x'v``, for ``batch x o x r`` v."""
        basis = cast(FeatureBasis, self.basis)
        return FeaturePath(basis.features, self.mean, basis.scale * v)

    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """Weighted sums over points of products of covariances. The last ones are kept.

        Args:
            points: ``P x d``, transformed space.
            weights: ``P``.
        """
        return self._last("_integral", self.sums, points, weights)

    def sums(self, X: Tensor, w: Tensor) -> Integral:
        """As `integral`, not kept."""
        if self.kernel is None:
            return Integral.on_features(self.basis, self.L, X, w)
        return Integral(self.at(X), w)

    def pool(self, X: Tensor) -> Joint:
        """As `at`, for points ``q x d`` that may be asked for again: the last are kept, if few."""
        return self._last("_pool", self.at, X) if self.u.numel() * len(X) <= KEPT else self.at(X)

    @lasting
    @torch.no_grad()
    def _last(self, name: str, make: Callable[..., T], *of: Tensor) -> T:
        """What is made of tensors, kept under a name for the last ones."""
        key, made = vars(self).get(name, ((), None))
        if made is None or not all(map(torch.equal, key, of)):
            key = tuple(tensor.clone() for tensor in of)
            made = make(*key)
            vars(self)[name] = key, made
        return cast(T, made)

    def for_sums(self, points: int) -> Process:
        """The process in the form in which sums over so many points cost least."""
        return self

    @lasting_property
    def expansion(self) -> Expansion | None:
        """The process of one output in numpy; None if it has no closed form there.

        O(r^3) when it is first asked for.
        """
        if len(self.u) > 1 or self.u.device.type != "cpu":
            return None
        constant, L = float(self.mean), None if self.L is None else self.L[0]
        S = None if L is None else torch.cholesky_inverse(L)
        if isinstance(self.basis, FeatureBasis):
            functions, scale = self.basis.features.functions(), self.basis.scale[0]
            if functions is None:
                return None
            S = torch.diag(scale.square()) if S is None else scale * S * scale.unsqueeze(-1)
            return Expansion(functions, (scale * self.u[0]).numpy(), S.numpy(), constant)
        prior, R = self.basis.covariance(), cast(Tensor, self.R)[0]
        if prior is None:
            return None
        r, more, inverse = self.size, self.u.shape[-1] - self.size, inverse_factor(R).mT
        alpha = torch.cat([inverse @ self.u[0, :r], self.u[0, r:]]).unsqueeze(-1)
        Z, columns = self.basis.spread(torch.cat([F.pad(inverse, (0, 0, 0, more)), alpha], -1))
        T, weights = np.hsplit(columns.numpy(), [r])
        W = -1.0 if S is None else S.numpy() - np.eye(r)
        made = partial(Expansion.on, prior, Z.numpy(), weights[:, 0], constant)
        pivots = R.diagonal().sort().values
        if len(T) == r and bool((pivots[-1:] < FOLDED * pivots[:1]).all()):
            return made(None, applied(T, W) @ T.T)  # one product in place of two or three
        return made(T, W)


def conditioned_on(
    process: PosteriorProcess, X: Tensor, Y: Tensor, noise: Tensor
) -> ConditionedProcess:
    """A process given data.

    Data without batch or graph are factored once. Later data of that kind join them, and the joint
    posterior at the earlier points is kept: O(q^3 + q^2 r) for q points in all.

    Args:
        process: The process, which may be given data already.
        X: Points, ``batch x q x d``.
        Y: Outcomes, ``batch' x o x q``.
        noise: Their noise variances, like Y.

    Raises:
        NoiseError: if neither noise nor posterior variance exceeds rounding errors.
    """
    if any(t.ndim > 2 or t.requires_grad for t in (X, Y, noise)):
        return ConditionedProcess(process, X, Y, noise)
    with torch.no_grad():
        if not (isinstance(process, ConditionedProcess) and process.factors is not None):
            new = ConditionedProcess(process, X, Y, noise)
            return replace(new, factors=new._factored(process.at(X)))
        base, f = process.base, process.factors[0].joined(process.base.at(X))
        X, Y = torch.cat([process.X, X]), torch.cat([process.Y, Y], -1)
        new = ConditionedProcess(base, X, Y, torch.cat([process.noise, noise], -1))
        return replace(new, factors=new._factored(f))


@dataclass(frozen=True)
class ConditionedProcess:
    """A process given ``Y`` (``batch' x o x q``) at ``X`` (``batch x q x d``) with noise
    variances like ``Y``.

    Without `factors` each joint posterior computes them again, so that no graph is shared between
    backward passes.

    Attributes:
        base: The process.
        X: The points.
        Y: The outcomes.
        noise: Their noise variances.
        factors: Those of data without batch or graph.
    """

    base: PosteriorProcess
    X: Tensor
    Y: Tensor
    noise: Tensor
    factors: Factors | None = None

    def _factored(self, f: Joint | None = None) -> Factors:
        """The factors; from the base's joint posterior at X where that is known already.

        Raises:
            NoiseError: if neither noise nor posterior variance exceeds rounding errors.
        """
        if self.factors is not None:
            return self.factors
        f = f or self.base.at(self.X)
        try:
            L = chol_psd(f.covariance(f) + torch.diag_embed(self.noise))
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise NoiseError(
                "noise that doubles can tell from none, at points whose values are known already",
                f"noise variances from {float(self.noise.detach().min()):.2g} on and a covariance "
                f"of {self.X.shape[-2]} points that cannot be factored",
                "Give noise above 1e-12 of the prior variance, or leave such points out.",
            ) from error
        return f, L, torch.linalg.solve_triangular(L, (self.Y - f.mean).unsqueeze(-1), upper=False)

    def at(self, X: Tensor) -> Joint:
        """The joint posterior at points ``batch x p x d``: O(q^3 + q^2 p) beyond the base's."""
        return self.base.at(X).conditioned(self._factored())

    def pool(self, X: Tensor) -> Joint:
        """As `at`, for points that may be asked for again."""
        return self.base.pool(X).conditioned(self._factored())

    def outputs(self, index: list[int]) -> PosteriorProcess:
        """Some of the outputs."""
        Y, noise = (part[..., index, :] for part in (self.Y, self.noise))
        return conditioned_on(self.base.outputs(index), self.X, Y, noise)

    @property
    def batch_shape(self) -> Size:
        """Batch shape of all data."""
        batches = (part.shape[:-2] for part in (self.X, self.Y, self.noise))
        return torch.broadcast_shapes(self.base.batch_shape, *batches)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on the base's sample functions."""
        added = len(self.batch_shape) - len(self.base.batch_shape)
        base = self.base.path(Size([*sample_shape, *self.batch_shape[:added]]))
        values = noisy(base(self.X), self.noise)
        f, L, _ = self._factored()
        weights = torch.cholesky_solve((self.Y - values).unsqueeze(-1), L).squeeze(-1)
        return self.base.plus(base, f, weights)

    def mean_function(self) -> Path:
        """The base's, updated."""
        f, L, r = self._factored()
        weights = torch.linalg.solve_triangular(L.mT, r, upper=True).squeeze(-1)
        return self.base.plus(self.base.mean_function(), f, weights)

    @lasting_property
    def expansion(self) -> Expansion | None:
        """As for the base, which keeps its own: O(q r^2) more."""
        base = self.base.expansion
        if base is None or self.factors is None:
            return None
        _, L, r = self.factors
        return base.conditioned(self.X.numpy(), L[0].numpy(), r[0, :, 0].numpy())

    def plus(self, path: Path, at: Joint, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``, as for the base."""
        return lambda X: path(X) + times(self.at(X).covariance(at), weights)

    @lasting
    def integral(self, points: Tensor, weights: Tensor) -> Integral:
        """From the base's; computed at each call, because it may hold the graph of the
        conditioning points.
        """
        return self.base.integral(points, weights).conditioned(self._factored())

    def for_sums(self, points: int) -> PosteriorProcess:
        """As for the base."""
        base = self.base.for_sums(points)
        return self if base is self.base else conditioned_on(base, self.X, self.Y, self.noise)


PosteriorProcess = Process | ConditionedProcess
"""A frozen posterior process over transformed points, float64."""


def unconditioned(process: PosteriorProcess) -> tuple[PosteriorProcess, int]:
    """A process without the data that it is given, and their number."""
    if isinstance(process, ConditionedProcess):
        return process.base, process.X.shape[-2]
    return process, 0


PRECISE = 1e-10
"""Share of the prior variance below which rounding errors may exceed the noise."""
ROWS, MOST = 256, 10.0
"""Rows of the data that are looked at, and the most standard deviations that are a small miss."""
SATURATED = 0.75
"""Share of the features from which they are too few. Intervals of 95 % covered .32 to .67 of four
functions from there on, and at least .88 of those functions below it."""
REMEDY = "Intervals are too narrow. Use a larger Yvar"


@torch.no_grad()
def warn_if_missed(process: PosteriorProcess, X: Tensor, targets: Tensor, noise: Tensor) -> None:
    """Warn if a posterior is far from the last of its data, as rounding errors may make it.

    Noise above 1e-10 of the outcomes' mean square costs nothing but a comparison.

    Args:
        process: The posterior.
        X: Points, ``n x d``, transformed.
        targets: ``o x n``.
        noise: Their noise variances, ``o x n``.
    """
    if not len(X) or bool((noise >= PRECISE * targets.square().mean(-1, keepdim=True)).all()):
        return
    rows = torch.linspace(0, len(X) - 1, min(len(X), ROWS), device=X.device).long()
    joint, d = process.at(X[rows]), noise[:, rows]
    variance = joint.variance()
    worst = (joint.mean - targets[:, rows]).abs() / (variance.clamp_min(0.0) + d).sqrt()
    if float(worst.max()) > MOST or float((variance <= 0.0).double().mean()) > 0.5:
        warnings.warn(
            "The noise is too small for double precision: the posterior misses its data by "
            f"{float(worst.max()):.2g} standard deviations. {REMEDY}.",
            PrecisionWarning,
            stacklevel=11,  # where a posterior is asked for
        )


@torch.no_grad()
def warn_if_saturated(L: Tensor | None) -> None:
    """Warn if the data determine most of the features that a posterior is on.

    Functions then vary by more than the features resolve, and what these leave out is not in the
    intervals.

    Args:
        L: Factors of the coefficients' precisions, ``o x f x f``, relative to the prior.
    """
    if L is None or not L.shape[-1]:
        return
    left = torch.linalg.solve_triangular(L, torch.eye(L.shape[-1]).to(L), upper=False)
    determined = 1.0 - float(left.square().sum((-1, -2)).min()) / L.shape[-1]
    if determined > SATURATED:
        warnings.warn(
            f"The data determine {determined:.0%} of the features, which are too few for such "
            f"small noise. {REMEDY}, more features (`num_features`), ExactGP or NodeWISKI.",
            PrecisionWarning,
            stacklevel=8,
        )
