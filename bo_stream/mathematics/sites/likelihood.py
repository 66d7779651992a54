"""The distribution of an outcome given a latent value (MATHS 11.5)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import InputError, ShapeError
from bo_stream.mathematics.sites.quadrature import tilted

__all__ = ["LINEAR", "Likelihood", "at_least", "of_numpy"]

FIRST_NUGGET = 0.1
LINEAR = 40.0
"""Above this, ``log(1 + e^g)`` is g to the last bit."""


@dataclass(frozen=True, kw_only=True)
class Likelihood(ABC):
    """The distribution of an outcome given a latent value g; tensors broadcast.

    Attributes:
        nugget: The variance of the nugget, or ``"learn"``.
    """

    nugget: float | Literal["learn"] = "learn"

    size_name: ClassVar[str] = "trials"
    variational: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        value = self.nugget
        if value != "learn" and not at_least(value, 0.0):
            raise InputError(
                "a nugget of variance 0 or more, or 'learn'", repr(value), "Leave it out to learn."
            )

    # -- data ------------------------------------------------------------------------------------

    def read(self, k: Any, size: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        """Checked outcomes and sizes of ``n`` observations, each ``n``, float64.

        Args:
            k: Outcomes, ``n`` or ``n x 1``: a tensor, array, list or column.
            size: Trials or exposures likewise, or one number; None for ones.
            X: ``n x d`` points.

        Raises:
            ShapeError: if their numbers differ.
            InputError: for outcomes that cannot occur.
        """
        y = _column(k, "k", X)
        n = torch.ones_like(y) if size is None else self.read_size(size, X)
        self._check(y, n)
        return y, n

    def read_size(self, size: Any, X: Tensor) -> Tensor:
        """Checked trials or exposures of ``n`` observations, ``n``, float64.

        Args:
            size: ``n`` or ``n x 1`` numbers, or one; None for ones.
            X: ``n x d`` points.

        Raises:
            ShapeError: if their number differs.
            InputError: if one is not positive.
        """
        given = 1.0 if size is None else size
        n = _column(given, self.size_name, X)
        if bool((n <= 0.0).any()):
            raise InputError(
                f"{self.size_name} above 0",
                f"{float(n.min()):g}",
                "Leave out rows where nothing was examined.",
            )
        return n

    def _check(self, y: Tensor, n: Tensor) -> None:
        """Refuse outcomes that are not whole numbers of 0 or more."""
        bad = (y < 0.0) | (y != y.round())
        if bool(bad.any()):
            raise InputError(
                "counts: whole numbers, 0 or more",
                f"{float(y[bad][0]):g}",
                "Give counts, not rates or logarithms.",
            )

    # -- nugget ----------------------------------------------------------------------------------

    def latent(self, nugget: Tensor) -> Tensor:
        """The variance that the nugget adds to the latent value."""
        return nugget

    def outcome_size(self, size: Tensor, nugget: Tensor) -> Tensor:
        """The size that the density depends on."""
        return size

    def first_nugget(self, y: Tensor) -> float:
        """Where learning the nugget starts, given the first outcomes."""
        return FIRST_NUGGET

    # -- density ---------------------------------------------------------------------------------

    @abstractmethod
    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log density, up to `constant`."""

    @abstractmethod
    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """The part of the log density that does not depend on g."""

    def log_marginal(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log probability of outcomes under latent values ``N(mean, variance)``."""
        return tilted(self, mean, variance, y, size).log_norm

    @abstractmethod
    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Derivative of the log density in g."""

    @abstractmethod
    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Minus its second derivative, not negative."""

    @abstractmethod
    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Haldane's site: mean and variance of a Gaussian near the likelihood of g."""

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """An upper bound of the curvature; infinite if there is none."""
        return torch.full_like(y, torch.inf)

    def limit(self, size: Tensor) -> Tensor:
        """The largest outcome that can occur, infinite if there is none."""
        return torch.full_like(size, torch.inf)

    def largest(self, size: Tensor) -> int | None:
        """The largest outcome over all sizes, or None."""
        return None

    @abstractmethod
    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Probability of an outcome of at most y."""

    @abstractmethod
    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Draws of outcomes."""

    # -- response --------------------------------------------------------------------------------

    @abstractmethod
    def response(self, g: Tensor) -> Tensor:
        """What a user reads: the prevalence or the rate of one unit of size. The inverse link."""

    @abstractmethod
    def response_slope(self, g: Tensor) -> Tensor:
        """Its derivative in g."""

    @abstractmethod
    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """Expected curvature of a future outcome's log density."""

    @abstractmethod
    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """The latent value of the pooled rate, 0-dim; finite for any outcomes (MATHS 11.5)."""

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """Whether outcomes of this sum determine hyperparameters: neither all zero nor all full."""
        return y_sum > 0.0


def at_least(value: Any, least: float) -> bool:
    """Whether a value is a finite number of at least ``least``."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and least <= float(value) < float("inf")


def _column(values: Any, name: str, X: Tensor) -> Tensor:
    """One finite number for each of ``n`` points, float64; one for all is expanded."""
    try:
        made = torch.as_tensor(np.asarray(values) if not isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        raise InputError(f"numbers as {name}", type(values).__name__, "Convert them.") from error
    made = made.detach().to(device=X.device, dtype=torch.float64)
    if made.ndim == 0 and name != "k":
        made = made.expand(len(X))
    if made.shape not in ((len(X),), (len(X), 1)):
        raise ShapeError(
            f"{name} with {len(X)} entries, one for each point",
            f"shape {tuple(made.shape)}",
            "Give one number per row of X.",
        )
    if not bool(made.isfinite().all()):
        raise InputError(f"finite {name}", "NaN or infinite entries", "Drop those rows.")
    return made.reshape(-1)


def of_numpy(function: Any, *values: Tensor) -> Tensor:
    """A function of scipy at tensors that broadcast."""
    arrays = (value.detach().cpu().numpy() for value in values)
    return torch.from_numpy(np.asarray(function(*arrays))).to(values[0])
