"""The one posterior behind conditioning and fantasies, for every family at once (MATHS section 1).

Given a genuine Gaussian process and ``y_q = f(X_q) + eps``, the law of ``f`` given ``y_q`` costs
one law at ``X_q`` and the test points, a ``q x q`` Cholesky factor and a ``q x p`` product. The
covariance does not depend on ``y_q``: it is shared by all fantasies. Nested fantasies concatenate
their points; wrappers do not nest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Self, cast

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.latent import Latent, Path, Predictor, chol_psd
from bo_stream.model import LatentModel

_EMPTY = Size()

__all__ = ["ConditionedLatent", "ConditionedPosterior", "ConditionedPredictor"]


@dataclass(frozen=True)
class ConditionedLatent(Latent):
    """Law with covariance ``cov(x, z) - V_x' V_z``, ``V = L^-1 cov(X_f, .)``."""

    mean: Tensor
    base: Latent
    V: Tensor

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        return self.base.variance() - self.V.square().sum(-2)

    def covariance(self, other: ConditionedLatent) -> Tensor:
        """Covariance with another law of the same predictor."""
        return self.base.covariance(other.base) - self.V.mT @ other.V

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator() + MatmulLinearOperator(-self.V.mT, self.V)


@dataclass(frozen=True)
class ConditionedPredictor:
    """A predictor given ``Y`` (``batch' x o x q``) at ``X`` (``batch x q x d``) with noise
    variances like ``Y``.

    Nothing is cached: each law recomputes the ``q x q`` factor, so that graphs are never shared
    between backward passes.
    """

    base: Predictor
    X: Tensor
    Y: Tensor
    noise: Tensor

    def _update(self) -> tuple[Latent, Tensor, Tensor]:
        """Law at X, the factor ``L`` of ``C = cov + D``, and ``L^-1 (Y - mean)``."""
        f = self.base.latent(self.X)
        L = chol_psd(f.covariance(f) + torch.diag_embed(self.noise))
        return f, L, torch.linalg.solve_triangular(L, (self.Y - f.mean).unsqueeze(-1), upper=False)

    def latent(self, X: Tensor) -> ConditionedLatent:
        """The law at points ``batch x p x d``: O(q^3 + q^2 p) beyond the base's."""
        f, L, r = self._update()
        s = self.base.latent(X)
        V = torch.linalg.solve_triangular(L, f.covariance(s), upper=False)
        return ConditionedLatent((s.mean.unsqueeze(-1) + V.mT @ r).squeeze(-1), s, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on the base's sample functions."""
        batch = torch.broadcast_shapes(self.X.shape[:-2], self.Y.shape[:-2])
        base = self.base.path(Size([*sample_shape, *batch]))
        values = base(self.X)
        noisy = values + self.noise.sqrt() * torch.randn_like(values)
        f, L, _ = self._update()
        weights = torch.cholesky_solve((self.Y - noisy).unsqueeze(-1), L)

        def sample(X: Tensor) -> Tensor:
            return base(X) + (self.base.latent(X).covariance(f) @ weights).squeeze(-1)

        return sample


@dataclass(frozen=True)
class SubsetLatent(Latent):
    """Some of the outputs of a law."""

    base: Latent
    index: list[int]

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Means, ``batch x len(index) x q``."""
        return self.base.mean[..., self.index, :]

    def variance(self) -> Tensor:
        """Marginal variances."""
        return self.base.variance()[..., self.index, :]

    def covariance(self, other: SubsetLatent) -> Tensor:
        """Covariance with another law of the same predictor."""
        return self.base.covariance(other.base)[..., self.index, :, :]

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator()[..., self.index, :, :]


@dataclass(frozen=True)
class SubsetPredictor:
    """Some of the outputs of a predictor."""

    base: Predictor
    index: list[int]

    def latent(self, X: Tensor) -> SubsetLatent:
        """The law at points ``batch x q x d``."""
        return SubsetLatent(self.base.latent(X), self.index)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions of the chosen outputs."""
        base = self.base.path(sample_shape)
        return lambda X: base(X)[..., self.index, :]


class ConditionedPosterior(LatentModel):
    """A surrogate's posterior given more (perhaps imagined) data; BoTorch can fantasize on it
    again.

    It is a snapshot: the surrogate it came from may observe or fit afterwards without changing it.
    It learns nothing itself: real data go to the surrogate's `observe`. Shapes and scales are those
    of the surrogate; `batch_shape` is ``fantasies x batch``.
    """

    def __init__(
        self,
        parent: LatentModel,
        predictor: Predictor,
        batch_shape: Size = _EMPTY,
        outputs: list[int] | None = None,
    ) -> None:
        super().__init__()
        self._frozen = predictor
        self._shape = batch_shape
        self._typical_noise = parent._typical_noise_or_none()
        self._num_outputs = parent.num_outputs
        self._dim = parent._dim
        self.likelihood = parent.likelihood
        self.register_buffer("bounds", parent.bounds)
        self.register_buffer("_interface", parent.get_buffer("_interface"), persistent=False)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(parent, name):
                setattr(self, name, getattr(parent, name))
        if outputs is not None:
            self._num_outputs = len(outputs)
            if self._typical_noise is not None:
                self._typical_noise = self._typical_noise[outputs]
            if hasattr(parent, "outcome_transform"):
                transform = cast(OutcomeTransform, parent.outcome_transform)
                self.outcome_transform = transform.subset_output(outputs)
        self.training = False

    @property
    def batch_shape(self) -> Size:
        """Batch shape of the conditioning data: ``fantasies x batch``."""
        return self._shape

    def subset_output(self, idcs: list[int]) -> ConditionedPosterior:
        """Some of the outputs; all of them: the conditioned posterior itself."""
        if list(idcs) == list(range(self.num_outputs)):
            return self
        return subset(self, idcs)

    def _predictor(self) -> Predictor:
        return self._frozen

    def _typical_noise_or_none(self) -> Tensor | None:
        return self._typical_noise

    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ConditionedPosterior:
        return conditioned(self, X, Y, noise)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast the interface (BoTorch calls ``.to(X)`` freely); the law stays where it was made."""
        interface = self.get_buffer("_interface")
        moved = fn(interface)
        if moved.device != interface.device:
            raise UnsupportedError(
                f"a conditioned posterior to stay on {interface.device}, where its surrogate was",
                f"a move to {moved.device}",
                "Move the surrogate, then condition or fantasize again.",
            )
        self._buffers["_interface"] = moved
        return self

    def observe(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: see the class."""
        self._refuse("observe")

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: see the class."""
        self._refuse("fit")

    def log_evidence(self) -> NoReturn:
        """Refused: see the class."""
        self._refuse("log_evidence")

    def _refuse(self, name: str) -> NoReturn:
        raise UnsupportedError(
            f"`{name}` on a surrogate",
            "a conditioned posterior, which is a frozen snapshot",
            "Call it on the surrogate this one came from, then condition or fantasize again.",
        )


def conditioned(parent: LatentModel, X: Tensor, Y: Tensor, noise: Tensor) -> ConditionedPosterior:
    """The parent given ``Y`` (``batch' x o x n``) at transformed ``X``, on top of what it was
    given.

    Args:
        parent: A surrogate or a conditioned posterior.
        X: ``batch x n x d``.
        Y: ``batch' x o x n``, ``batch'`` broadcasting against ``batch``.
        noise: ``... x o x n``.
    """
    base = parent._predictor()
    X, Y = X.clone(), Y.clone()  # the caller may reuse its tensors
    noise = noise.expand(torch.broadcast_shapes(noise.shape, Y.shape[-2:])).clone()
    if isinstance(base, ConditionedPredictor):
        X, Y, noise = (
            _join(base.X, X, -2),
            _join(base.Y, Y, -1),
            _join(base.noise, noise, -1),
        )
        base = base.base
    batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], noise.shape[:-2])
    return ConditionedPosterior(parent, ConditionedPredictor(base, X, Y, noise), batch)


def subset(parent: LatentModel, outputs: list[int]) -> ConditionedPosterior:
    """Some of the outputs of a surrogate or conditioned posterior, as a snapshot."""
    base = parent._predictor()
    predictor: Predictor
    if isinstance(base, ConditionedPredictor):
        Y, noise = base.Y[..., outputs, :], base.noise[..., outputs, :]
        predictor = ConditionedPredictor(SubsetPredictor(base.base, outputs), base.X, Y, noise)
    else:
        predictor = SubsetPredictor(base, outputs)
    return ConditionedPosterior(parent, predictor, parent.batch_shape, outputs)


def _join(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """Concatenate along a trailing dimension, batches broadcast."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat(
        [first.expand(*batch, *first.shape[-2:]), second.expand(*batch, *second.shape[-2:])], dim
    )
