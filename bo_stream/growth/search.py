"""A search for shorter lengthscales, which few inducing points cannot show to be better.

Points chosen under long lengthscales are few, the noise takes what they leave unexplained, and
growth then asks for no more of them: a fit to them ends where it began. So fits start from several
lengthscales, each with points chosen anew under it as it climbs, and the best bound wins, if it is
worth the points that it costs for ever.
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

__all__ = ["Found", "Growing", "search"]

ROUNDS, EVALUATIONS = 3, 12
"""How often points are chosen anew under a start, and the evaluations of each climb between."""

DECISIVE, PER_ROW = 10.0, 0.12
"""Nats that shorter lengthscales have to gain: in all, and, where nothing else speaks for them, for
each row: a predictive standard deviation smaller by an eighth."""


class Growing(Protocol):
    """What a search needs of a model."""

    covar_module: Kernel

    def reselect(self) -> Self:
        """Choose the inducing points anew."""
        ...

    def make_mll(self) -> MarginalLogLikelihood:
        """The bound, with priors."""
        ...


Model = TypeVar("Model", bound=Growing)


@dataclass(frozen=True)
class Found(Generic[Model]):
    """What a search found.

    Attributes:
        model: The best of the models tried, as fitted.
        gain: Nats by which its bound exceeds that from the lengthscales of now.
        worth_it: Whether that is worth the points it takes.
        evaluations: Objective-and-gradient evaluations of all climbs.
    """

    model: Model
    gain: float
    worth_it: bool
    evaluations: int


def search(
    restart: Callable[[], Model], kernel: Kernel, X: Tensor, *, suspected: bool
) -> Found[Model]:
    """Fit from the lengthscales of now and from shorter ones, and compare.

    Args:
        restart: A new model each time, with the hyperparameters of now, that has seen the rows to
            search on and nothing else.
        kernel: The kernel of now.
        X: Those rows, ``N x d``.
        suspected: Whether predictions have shown already that the lengthscales are too long.
    """
    now, *others = [_climbed(restart(), share) for share in (1.0, *shares(kernel, X))]
    best = max((now, *others), key=lambda trial: trial[1])
    gain = best[1] - now[1]
    worth_it = gain > max(DECISIVE, 0.0 if suspected else PER_ROW * X.shape[0])
    return Found(best[0], gain, worth_it, sum(trial[2] for trial in (now, *others)))


def _climbed(model: Model, share: float) -> tuple[Model, float, int]:
    """The model fitted from this share of its lengthscales, its bound, and the evaluations."""
    scale_lengthscales(model.covar_module, share)
    evaluations = 0
    for _ in range(ROUNDS):
        model.reselect()
        evaluations += fit_model(cast(Any, model), EVALUATIONS).evaluations
    value = model.reselect().make_mll()()
    return model, float(value.detach()), evaluations
