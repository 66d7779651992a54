"""Class labels: their validation, their regression targets, and probabilities (MATHS 2.6).

[Milios] models a label by a Dirichlet distribution of concentration ``1 + eps`` for its class and
``eps`` for every other class. The underlying gamma variables are approximated by log-normal ones.
So each class is a regression, and only two pairs of target and noise variance occur.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from bo_stream.errors import DtypeError, InputError, ShapeError

__all__ = [
    "Label",
    "LabelTargets",
    "checked_classes",
    "normal_draws",
    "read_labels",
    "softmax_draws",
    "unseen",
]

Label = int | str


# -- labels ----------------------------------------------------------------------------------------


def read_labels(y: Any, points: int) -> list[Label]:
    """Labels, one for each point.

    Args:
        y: A 1-D tensor or array of integers, or a sequence (list, array, column of a frame) of
            integers or of strings.
        points: Number of points.

    Raises:
        ShapeError: unless they are one for each point.
        DtypeError: unless all are integers, or all strings.
        InputError: if one is missing.
    """
    values = _listed(y)
    if len(values) != points or any(isinstance(v, list | tuple) for v in values):
        raise ShapeError(
            f"one label a point, `{points}`",
            f"{tuple(y.shape) if hasattr(y, 'shape') else len(values)}",
            "Give a flat list, array or column: y.squeeze(-1) of one column.",
        )
    for value in values:
        if value is None or value != value:
            raise InputError("a label for every point", f"{value!r}", "Drop the points without.")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise DtypeError(
                "integer or string labels",
                f"{value!r} of type {type(value).__name__}",
                "Convert them: y.long(), or y.astype(str).",
            )
    _check_one_kind(values)
    return values


def checked_classes(classes: Any) -> list[Label]:
    """The option ``classes``, in its order.

    Raises:
        InputError: on duplicates, or without any class; and as `read_labels`.
    """
    named = read_labels(classes, len(_listed(classes)))
    if not named or len(set(named)) < len(named):
        raise InputError("different classes, at least one", repr(named), "Name each class once.")
    return named


def unseen(labels: Sequence[Label], known: Sequence[Label]) -> list[Label]:
    """Sorted labels that are not among the known classes.

    Raises:
        DtypeError: on strings among integers, or integers among strings.
    """
    _check_one_kind([*known, *labels])
    return sorted(set(labels) - set(known))


def _listed(y: Any) -> list[Any]:
    if isinstance(y, str) or not (hasattr(y, "tolist") or hasattr(y, "__len__")):
        raise DtypeError("labels in a list, array or column", repr(y), "Wrap a single one: [y].")
    values = y.tolist() if hasattr(y, "tolist") else list(y)
    return values if isinstance(values, list) else [values]


def _check_one_kind(labels: Sequence[Label]) -> None:
    kinds = {type(label).__name__ for label in labels}
    if len(kinds) > 1:
        raise DtypeError(
            "labels of one kind, integers or strings", " and ".join(sorted(kinds)), "Convert some."
        )


# -- targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelTargets:
    """Targets and noise variances of a label for its class and for every other class [Milios].

    Attributes:
        alpha_epsilon: Concentration of every other class.

    Raises:
        InputError: unless it is a positive number whose targets are finite.
    """

    alpha_epsilon: float

    def __post_init__(self) -> None:
        value: Any = self.alpha_epsilon
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 1e-300 <= float(value) <= 1e6:
            raise InputError(
                "an alpha_epsilon above 0 (from 1e-300 to 1e6)",
                repr(value),
                "0.01 suits most problems; choose it by cross-validation.",
            )

    @property
    def named(self) -> tuple[float, float]:
        """``t1, d1``: target and noise variance for the class that is named."""
        return _log_normal(1.0 + float(self.alpha_epsilon))

    @property
    def other(self) -> tuple[float, float]:
        """``t0, d0``: for the others."""
        return _log_normal(float(self.alpha_epsilon))

    def regressions(self, named: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and noise variances, each ``n x C``, for ``n x C`` booleans, in a dtype."""
        shares, (t1, d1), (t0, d0) = named.to(like), self.named, self.other
        return t0 + (t1 - t0) * shares, d0 + (d1 - d0) * shares

    def expected_noise(self, probabilities: Tensor) -> Tensor:
        """Noise variance of the expected precision, if labels name the class with these
        probabilities.
        """
        return 1.0 / (probabilities / self.named[1] + (1.0 - probabilities) / self.other[1])

    def moved(self, value: Tensor, before: LabelTargets) -> Tensor:
        """A latent value at the same share between these targets as between the former ones."""
        old, t0 = before.other[0], self.other[0]
        return t0 + (self.named[0] - t0) * (value - old) / (before.named[0] - old)


def _log_normal(alpha: float) -> tuple[float, float]:
    """Mean ``log alpha - v/2`` and variance ``v = log(1 + 1/alpha)`` for a concentration."""
    v = math.log1p(1.0 / alpha)
    return math.log(alpha) - v / 2.0, v


# -- probabilities ---------------------------------------------------------------------------------


def normal_draws(num_samples: int, classes: int, like: Tensor) -> Tensor:
    """Quasi-random normal numbers, ``num_samples x classes``, the same at every call: probabilities
    are repeatable and smooth in the points.
    """
    Z: Tensor = draw_sobol_normal_samples(d=classes, n=num_samples, seed=0, dtype=torch.float64)
    return Z.to(like)


def softmax_draws(mean: Tensor, variance: Tensor, Z: Tensor) -> Tensor:
    """Softmax of draws from ``N(mean, variance)``, independent across classes.

    Args:
        mean: ``batch_shape x C``.
        variance: ``batch_shape x C``.
        Z: ``S x C`` standard normal numbers.

    Returns:
        ``S x batch_shape x C``.
    """
    draws = Z.reshape(len(Z), *[1] * (mean.ndim - 1), Z.shape[-1])
    return torch.softmax(mean + variance.clamp_min(0.0).sqrt() * draws, -1)
