"""Class labels as targets with known noise [Milios, MATHS 2.6].

A label is taken for a draw of a Dirichlet distribution with concentration ``1 + eps`` for its class
and ``eps`` for every other; each concentration is a gamma variable, and that is close to a
log-normal one. So one class is one regression, and only two pairs of target and noise occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import Tensor

from bo_stream.errors import InputError

__all__ = ["Pairs", "Told"]


@dataclass(frozen=True)
class Told:
    """What a label tells one class: a target, and its noise variance."""

    target: float
    noise: float

    @classmethod
    def by(cls, alpha: float) -> Told:
        """Of a concentration: ``v = log(1 + 1/alpha)``, ``log alpha - v/2``."""
        v = math.log1p(1.0 / alpha)
        return cls(math.log(alpha) - v / 2.0, v)


@dataclass(frozen=True)
class Pairs:
    """What a label tells its own class, and what it tells every other.

    Attributes:
        alpha_epsilon: Concentration of a class that the label does not name.
    """

    alpha_epsilon: float

    @classmethod
    def of(cls, alpha_epsilon: Any) -> Pairs:
        """The pairs of a concentration.

        Raises:
            InputError: unless it is a positive number whose targets are finite.
        """
        number = isinstance(alpha_epsilon, Real) and not isinstance(alpha_epsilon, bool)
        if not number or not 1e-300 <= float(alpha_epsilon) <= 1e6:
            raise InputError(
                "an alpha_epsilon above 0 (from 1e-300 to 1e6)",
                repr(alpha_epsilon),
                "0.01 suits most problems; cross-validation tells.",
            )
        return cls(float(alpha_epsilon))

    @property
    def own(self) -> Told:
        """``(t1, d1)``: for the class that is named."""
        return Told.by(1.0 + self.alpha_epsilon)

    @property
    def other(self) -> Told:
        """``(t0, d0)``: for the others."""
        return Told.by(self.alpha_epsilon)

    def expected_noise(self, probabilities: Tensor) -> Tensor:
        """Noise variance of the expected precision, where the class is named with these
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

    def moved(self, value: Tensor, before: Pairs) -> Tensor:
        """A latent value under other pairs, where it lies alike between their targets."""
        share = (value - before.other.target) / (before.own.target - before.other.target)
        return self.other.target + (self.own.target - self.other.target) * share
