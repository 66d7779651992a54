"""A search for shorter lengthscales, which a fit with few inducing points does not find.

Under long lengthscales few points are chosen. The noise then explains what they miss, so that no
more points are chosen, and a fit ends where it began. So fits start from several lengthscales, with
inducing points chosen again during each fit. The best bound is taken if its gain justifies the
additional points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from gpytorch.kernels import Kernel
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_stream.base.fitting.fit import fit_model
from bo_stream.growth.starts import scale_lengthscales, shares

__all__ = ["SearchResult", "GrowingModel", "search"]

ROUNDS, EVALUATIONS = 3, 12
"""Times that points are chosen again in a fit, and evaluations between."""

DECISIVE, PER_ROW = 10.0, 0.12
"""Nats that shorter lengthscales must gain: in all, and, without other evidence for them, for each
row (a predictive standard deviation smaller by an eighth)."""


class GrowingModel(Protocol):
    """The methods of a model that a search uses."""

    covar_module: Kernel

    def reselect(self) -> Self:
        """Choose the inducing points again."""
        ...

    def make_mll(self) -> MarginalLogLikelihood:
        """The bound, with priors."""
        ...


Model = TypeVar("Model", bound=GrowingModel)


@dataclass(frozen=True)
class SearchResult(Generic[Model]):
    """The result of a search.

    Attributes:
        model: The best of the models tried, as fitted.
        gain: Nats by which its bound exceeds that from the current lengthscales.
        worth_it: Whether the gain justifies the additional points.
        evaluations: Objective-and-gradient evaluations of all fits.
    """

    model: Model
    gain: float
    worth_it: bool
    evaluations: int


def search(
    restart: Callable[[], Model], kernel: Kernel, X: Tensor, *, suspected: bool
) -> SearchResult[Model]:
    """Fit from the current lengthscales and from shorter ones, and compare.

    Args:
        restart: Makes a new model with the current hyperparameters that has seen only the rows to
            search on.
        kernel: The current kernel.
        X: Those rows, ``N x d``.
        suspected: Whether predictions indicate that the lengthscales are too long.
    """
    now, *others = [_fitted(restart(), share) for share in (1.0, *shares(kernel, X))]
    best = max((now, *others), key=lambda trial: trial[1])
    gain = best[1] - now[1]
    worth_it = gain > max(DECISIVE, 0.0 if suspected else PER_ROW * X.shape[0])
    return SearchResult(best[0], gain, worth_it, sum(trial[2] for trial in (now, *others)))


def _fitted(model: Model, share: float) -> tuple[Model, float, int]:
    """The model fitted from this share of its lengthscales, its bound, and the evaluations."""
    scale_lengthscales(model.covar_module, share)
    evaluations = 0
    for _ in range(ROUNDS):
        model.reselect()
        evaluations += fit_model(cast(Any, model), EVALUATIONS).evaluations
    value = model.reselect().make_mll()()
    return model, float(value.detach()), evaluations
