"""Class labels as targets with known noise [Milios, MATHS 2.6].

A label is modelled by a Dirichlet distribution of concentration ``1 + eps`` for its class and
``eps`` for every other class. The underlying gamma variables are approximated by log-normal ones.
So each class is a regression, and only two pairs of target and noise variance occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import Tensor

from bo_stream.errors import InputError

__all__ = ["LabelTargets", "LabelTarget"]


@dataclass(frozen=True)
class LabelTarget:
    """The target of one class for a label, and its noise variance."""

    target: float
    noise: float

    @classmethod
    def by(cls, alpha: float) -> LabelTarget:
        """For a concentration: ``v = log(1 + 1/alpha)``, ``log alpha - v/2``."""
        v = math.log1p(1.0 / alpha)
        return cls(math.log(alpha) - v / 2.0, v)


@dataclass(frozen=True)
class LabelTargets:
    """The targets of a label for its own class and for every other class.

    Attributes:
        alpha_epsilon: Concentration of every other class.
    """

    alpha_epsilon: float

    @classmethod
    def of(cls, alpha_epsilon: Any) -> LabelTargets:
        """The targets for a concentration.

        Raises:
            InputError: unless it is a positive number whose targets are finite.
        """
        number = isinstance(alpha_epsilon, Real) and not isinstance(alpha_epsilon, bool)
        if not number or not 1e-300 <= float(alpha_epsilon) <= 1e6:
            raise InputError(
                "an alpha_epsilon above 0 (from 1e-300 to 1e6)",
                repr(alpha_epsilon),
                "0.01 suits most problems; choose it by cross-validation.",
            )
        return cls(float(alpha_epsilon))

    @property
    def own(self) -> LabelTarget:
        """``(t1, d1)``: for the class that is named."""
        return LabelTarget.by(1.0 + self.alpha_epsilon)

    @property
    def other(self) -> LabelTarget:
        """``(t0, d0)``: for the others."""
        return LabelTarget.by(self.alpha_epsilon)

    def expected_noise(self, probabilities: Tensor) -> Tensor:
        """Noise variance of the expected precision, if labels name the class with these
        probabilities.
        """
        precision = probabilities / self.own.noise + (1.0 - probabilities) / self.other.noise
        return 1.0 / precision

    def regressions(self, named: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and noise variances, each ``n x C``, for ``n x C`` booleans, in a dtype."""
        shares = named.to(like)
        return (
            self.other.target + (self.own.target - self.other.target) * shares,
            self.other.noise + (self.own.noise - self.other.noise) * shares,
        )

    def moved(self, value: Tensor, before: LabelTargets) -> Tensor:
        """A latent value at the same share between these targets as between the former ones."""
        share = (value - before.other.target) / (before.own.target - before.other.target)
        return self.other.target + (self.own.target - self.other.target) * share
