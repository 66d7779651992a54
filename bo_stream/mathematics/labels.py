"""Class labels: their validation, their regression targets, and probabilities (MATHS 2.6).

[Milios] models a label by a Dirichlet distribution of concentration ``1 + eps`` for its class and
``eps`` for every other class. The underlying gamma variables are approximated by log-normal ones.
So each class is a regression, and only two pairs of target and noise variance occur.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from bo_stream.errors import DtypeError, InputError, ShapeError, is_number

__all__ = [
    "Label",
    "LabelTargets",
    "checked_classes",
    "read_labels",
    "softmax_draws",
    "unseen",
]

Label = int | str


# -- labels ----------------------------------------------------------------------------------------


def read_labels(y: Any, points: int | None = None) -> list[Label]:
    """Labels, one for each point.

    Args:
        y: A 1-D tensor or array of integers, or a sequence (list, array, column of a frame) of
            integers or of strings.
        points: Number of points; None for any.

    Raises:
        ShapeError: unless they are one for each point.
        DtypeError: unless all are integers, or all strings.
        InputError: if one is missing.
    """
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise DtypeError("labels in a list, array or column", repr(y), "Wrap a single one: [y].")
    values = np.array(y.tolist() if hasattr(y, "tolist") else list(y), dtype=object)
    if values.ndim != 1 or points not in (None, len(values)):
        raise ShapeError(
            f"one label a point, `{'n' if points is None else points}`",
            f"{values.shape}",
            "Give a flat list, array or column: y.squeeze(-1) of one column.",
        )
    labels: list[Label] = values.tolist()
    for value in labels:
        if value is None or value != value:
            raise InputError("a label for every point", f"{value!r}", "Drop the points without.")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise DtypeError(
                "integer or string labels",
                f"{value!r} of type {type(value).__name__}",
                "Convert them: y.long(), or y.astype(str).",
            )
    unseen(labels, ())
    return labels


def checked_classes(classes: Any) -> list[Label]:
    """The option ``classes``, in its order.

    Raises:
        InputError: on duplicates, or without any class; and as `read_labels`.
    """
    named = read_labels(classes)
    if not named or len(set(named)) < len(named):
        raise InputError("different classes, at least one", repr(named), "Name each class once.")
    return named


def unseen(labels: Sequence[Label], known: Sequence[Label]) -> list[Label]:
    """Sorted labels that are not among the known classes.

    Raises:
        DtypeError: on strings among integers, or integers among strings.
    """
    kinds = {type(label).__name__ for label in (*known, *labels)}
    if len(kinds) > 1:
        raise DtypeError(
            "labels of one kind, integers or strings", " and ".join(sorted(kinds)), "Convert some."
        )
    return sorted(set(labels) - set(known))


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
        if not is_number(self.alpha_epsilon, 1e-300, 1e6):
            raise InputError(
                "an alpha_epsilon above 0 (from 1e-300 to 1e6)",
                repr(self.alpha_epsilon),
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


def _log_normal(alpha: float) -> tuple[float, float]:
    """Mean ``log alpha - v/2`` and variance ``v = log(1 + 1/alpha)`` for a concentration."""
    v = math.log1p(1.0 / alpha)
    return math.log(alpha) - v / 2.0, v


# -- probabilities ---------------------------------------------------------------------------------


def softmax_draws(mean: Tensor, variance: Tensor, num_samples: int) -> Tensor:
    """Softmax of quasi-random draws from ``N(mean, variance)``, independent across classes.

    The underlying normal numbers are the same at every call: probabilities are repeatable and
    smooth in the points.

    Args:
        mean: ``batch_shape x C``.
        variance: ``batch_shape x C``.
        num_samples: Number of draws.

    Returns:
        ``num_samples x batch_shape x C``.
    """
    C = mean.shape[-1]
    Z: Tensor = draw_sobol_normal_samples(d=C, n=num_samples, seed=0, dtype=torch.float64)
    Z = Z.to(mean).reshape(num_samples, *[1] * (mean.ndim - 1), C)
    return torch.softmax(mean + variance.clamp_min(0.0).sqrt() * Z, -1)
