"""Positives among the examined, and yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.errors import InputError
from bo_stream.mathematics.classification.labels import (
    Label,
    checked_classes,
    read_labels,
    unseen,
)
from bo_stream.mathematics.sites.likelihood import LINEAR, Likelihood, of_numpy

__all__ = ["Bernoulli", "Binomial"]


@dataclass(frozen=True, kw_only=True)
class Binomial(Likelihood):
    """Positives among the examined: ``k ~ Binomial(n, p)``, ``logit p = g``.

    Attributes:
        trials: Name of the column of the numbers examined, where outcomes come in tables.
        nugget: The variance of the nugget, or ``"learn"``.
    """

    trials: str | None = None

    def _check(self, y: Tensor, n: Tensor) -> None:
        super()._check(y, n)
        if bool((n != n.round()).any()):
            raise InputError("whole numbers of trials", "fractions", "Give numbers examined.")
        if bool((y > n).any()):
            first = int((y > n).nonzero()[0])
            raise InputError(
                "at most as many positives as trials",
                f"{float(y[first]):g} of {float(n[first]):g} in row {first}",
                "Give `trials=` with every batch, in the order of the rows.",
            )

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y g - n log(1 + e^g)``."""
        return y * g - size * softplus(g, threshold=LINEAR)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """Logarithm of the binomial coefficient."""
        return (size + 1).lgamma() - (y + 1).lgamma() - (size - y + 1).lgamma()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y - n p``."""
        return y - size * g.sigmoid()

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``n p (1 - p)``."""
        return size * self.response_slope(g)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Empirical logit with half a count added to both sides."""
        yes, no = y + 0.5, size - y + 0.5
        return (yes / no).log(), 1.0 / yes + 1.0 / no

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """``n / 4``."""
        return size / 4.0

    def limit(self, size: Tensor) -> Tensor:
        """The number of trials."""
        return size

    def largest(self, size: Tensor) -> int | None:
        """The largest number of trials."""
        return int(size.max()) if len(size) else 0

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """By the incomplete beta function."""
        inside = y.clamp_min(0.0).minimum(size - 1.0)
        low = of_numpy(special.betainc, size - inside, inside + 1.0, (-g).sigmoid())
        return torch.where(y < 0.0, 0.0, torch.where(y >= size, 1.0, low))

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Binomial draws."""
        trials = size.expand(g.shape).long()
        return of_numpy(rng.binomial, trials, g.sigmoid()).to(g)

    def response(self, g: Tensor) -> Tensor:
        """The prevalence."""
        return g.sigmoid()

    def response_slope(self, g: Tensor) -> Tensor:
        """``p (1 - p)``."""
        return g.sigmoid() * (-g).sigmoid()

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """``n p (1 - p)``."""
        return size * self.response_slope(g)

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """Logit of ``(sum k + 1/2) / (sum n + 1)``."""
        return ((y.sum() + 0.5) / (size.sum() - y.sum() + 0.5)).log()

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """Neither all zero nor all positive."""
        return 0.0 < y_sum < size_sum


@dataclass(frozen=True, kw_only=True)
class Bernoulli(Binomial):
    """Yes or no: 1 or 0, or two classes by their labels; ``logit p = g``.

    Attributes:
        classes: The labels, integers or strings, that stand for 0 and 1; None for 0 and 1.
        nugget: The variance of the nugget, or ``"learn"``. 0 is usual for a classifier: it does not
            survey a place twice.
    """

    classes: tuple[Label, Label] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None and len(checked_classes(list(self.classes))) != 2:
            raise InputError(
                "two classes", f"{self.classes!r}", "Use DirichletClassifier for more than two."
            )

    def read(self, k: Any, size: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        """As `Likelihood.read`; with ``classes``, outcomes are labels."""
        if self.classes is None:
            return super().read(k, size, X)
        labels, classes = read_labels(k, len(X)), list(self.classes)
        strange = unseen(labels, classes)
        if strange:
            raise InputError(f"labels {classes}", repr(strange[0]), "Use DirichletClassifier.")
        return super().read([float(classes.index(label)) for label in labels], size, X)

    def read_size(self, size: Any, X: Tensor) -> Tensor:
        """Ones; anything else is refused."""
        n = super().read_size(size, X)
        if bool((n != 1.0).any()):
            raise InputError("no trials", "trials", "Use Binomial for several trials.")
        return n
