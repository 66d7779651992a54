"""Validation of incoming data: shapes, dtypes, finiteness, bounds, noise.

All checks raise before anything is stored or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import BoundsError, DtypeError, InputError, NoiseError, ShapeError

__all__ = [
    "added_noise",
    "check_batch",
    "check_noise",
    "check_outcomes",
    "check_points",
    "check_targets",
    "check_tensors",
    "checked_bounds",
    "finite",
    "inputs_of",
    "largest_outcome",
    "sizes_of",
]

SLACK = 1e-4
"""Tolerance for points outside a bound, relative to its width, for rounding and finite differences
at the boundary."""


ROOM = 1e-4
"""Share of the largest number with a square that outcomes may reach."""


def check_tensors(optional: Mapping[str, Any] | None = None, /, **values: Any) -> None:
    """Refuse arguments that are no tensors; optional ones, by name, may be None."""
    given = {name: value for name, value in (optional or {}).items() if value is not None}
    for name, value in (values | given).items():
        if not isinstance(value, Tensor):
            raise DtypeError(
                f"{name} as a torch.Tensor",
                f"{type(value).__module__}.{type(value).__name__}",
                f"Convert it: torch.as_tensor({name}).",
            )


def finite(value: Tensor) -> bool:
    """Whether all entries are finite."""
    return bool(value.isfinite().all())


def largest_outcome(dtype: torch.dtype = torch.float64) -> float:
    """The largest outcome of a dtype whose squares, and sums of many of them, do not overflow."""
    return ROOM * torch.finfo(dtype).max ** 0.5


def check_outcomes(Y: Tensor) -> None:
    """Refuse outcomes that are not finite, or too large for their squares to be."""
    most = largest_outcome(Y.dtype)
    if bool((Y.detach().abs() <= most).all()):  # nor NaN, which is less than nothing
        return
    if not finite(Y):
        raise InputError("finite Y", "NaN or infinite entries", "Drop or impute those rows.")
    raise InputError(
        f"Y of at most {most:.1g} in size, whose squares {Y.dtype} can represent",
        f"{float(Y.detach().abs().max()):.3g}",
        "Give the outcomes in a larger unit, or drop those rows.",
    )


def inputs_of(name: str, X: Any) -> int:
    """Number of inputs of points ``n x d``, the only tensor of a constructor's data."""
    check_tensors(**{name: X})
    if X.ndim != 2 or not X.shape[1]:
        raise ShapeError(
            f"{name} `n x d`, unbatched",
            f"{tuple(X.shape)}",
            "Give points as rows, one column per input dimension.",
        )
    if X.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"{name} of float64 or float32", f"{X.dtype}", f"Cast it: {name}.double()."
        )
    return int(X.shape[1])


def sizes_of(X: Tensor, Y: Tensor) -> tuple[int, int]:
    """Dimension and number of outputs of a constructor's data."""
    dim = inputs_of("train_X", X)
    check_tensors(train_Y=Y)
    if Y.ndim != 2 or not Y.shape[1]:
        raise ShapeError(
            "train_Y `n x m`, unbatched",
            f"{tuple(Y.shape)}",
            "Give an explicit output dimension; build one surrogate per batch.",
        )
    return dim, Y.shape[1]


def checked_bounds(bounds: Any, X: Tensor) -> Tensor | None:
    """Raw bounds, ``2 x d``, as float64 where X is."""
    if bounds is None:
        return None
    try:
        given = bounds if isinstance(bounds, Tensor) else np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BoundsError(
            "bounds `2 x d`, or 'unit'", repr(bounds), "Stack lower and upper bounds."
        ) from error
    value = torch.as_tensor(given).detach().to(dtype=torch.float64, device=X.device)
    if value.shape != (2, X.shape[1]):
        raise ShapeError(
            f"bounds `2 x {X.shape[1]}`", f"{tuple(value.shape)}", "Stack lower and upper bounds."
        )
    if not finite(value) or bool((value[0] >= value[1]).any()):
        raise BoundsError(
            "finite bounds, lower below upper", f"{value.tolist()}", "Swap or widen them."
        )
    return value.clone()


def check_points(X: Tensor, dim: int, bounds: Tensor | None, room: float = SLACK) -> None:
    """Refuse points that are not ``batch_shape x q x dim``, finite, and inside the bounds or at
    most a share ``room`` of the box outside.
    """
    check_tensors(X=X)
    if X.ndim < 2 or X.shape[-1] != dim:
        raise ShapeError(
            f"X of shape `batch_shape x q x {dim}`",
            f"{tuple(X.shape)}",
            "Give points as rows, one column per input dimension.",
        )
    if not X.is_floating_point():
        raise DtypeError("floating-point X", f"{X.dtype}", "Cast it: X.double().")
    if bounds is not None:
        low, high = bounds.lerp(bounds.flip(0), -room)
        known = X.detach().double()
        if torch.equal(known.clamp(low, high), known):  # nor NaN, which equals nothing
            return
    if not finite(X):
        raise InputError("finite X", "NaN or infinite entries", "Drop or repair those rows.")
    if bounds is None:
        return
    outside = ((low > known) | (high < known)).any(-1)
    first = X.detach()[outside][0].tolist()
    raise BoundsError(
        f"points inside bounds {bounds.tolist()}",
        f"{int(outside.sum())} outside, the first {first}",
        "Widen `bounds` when building the surrogate, or drop those points.",
    )


def check_batch(
    X: Tensor,
    Y: Tensor,
    Yvar: Tensor | None,
    sizes: tuple[int, int],
    dtype: torch.dtype,
    bounds: Tensor | None,
    noise_known: bool,
) -> None:
    """Refuse data that are not ``n x d`` inputs and ``n x m`` outcomes for ``sizes = (d, m)``.

    Noise variances are required if and only if the noise is known.
    """
    check_tensors({"Yvar": Yvar}, X=X, Y=Y)
    check_points(X, sizes[0], bounds)
    if X.ndim != 2 or Y.ndim != 2:
        raise ShapeError(
            "X `n x d` and Y `n x m`",
            f"{tuple(X.shape)} and {tuple(Y.shape)}",
            "Surrogates are unbatched; build one per batch.",
        )
    check_targets(X, Y, sizes[1], dtype)
    if (Yvar is not None) != noise_known:
        raise NoiseError(
            "Yvar with every batch" if noise_known else "no Yvar",
            "none" if noise_known else "Yvar",
            "A surrogate's noise is known (train_Yvar) or learned, as set at construction.",
        )
    if Yvar is None:
        return
    if Yvar.shape != Y.shape:
        raise ShapeError(
            f"Yvar like Y, {tuple(Y.shape)}", f"{tuple(Yvar.shape)}", "Give one variance per value."
        )
    if Yvar.dtype != Y.dtype:
        raise DtypeError(f"Yvar like Y, {Y.dtype}", f"{Yvar.dtype}", "Cast it to Y's dtype.")
    check_noise(Yvar)


def check_targets(X: Tensor, Y: Tensor, outputs: int, dtype: torch.dtype) -> None:
    """Refuse Y if its rows, outputs, batch shape or dtype do not match X, or it is not finite."""
    if Y.ndim < 2 or Y.shape[-1] != outputs or Y.shape[-2] != X.shape[-2]:
        raise ShapeError(
            f"Y `batch_shape x {X.shape[-2]} x {outputs}` for X {tuple(X.shape)}",
            f"{tuple(Y.shape)}",
            "Give one row per point and an explicit output dimension.",
        )
    pairs = zip(reversed(X.shape[:-2]), reversed(Y.shape[:-2]), strict=False)
    if Y.ndim >= X.ndim and any(x not in (1, y) for x, y in pairs):
        raise ShapeError(
            f"batch dimensions of Y ending in those of X, {tuple(X.shape[:-2])}",
            f"{tuple(Y.shape[:-2])}",
            "Put fantasy dimensions first.",
        )
    if X.dtype != Y.dtype or X.dtype != dtype:
        raise DtypeError(
            f"X and Y in the surrogate's dtype {dtype}",
            f"{X.dtype} and {Y.dtype}",
            "Cast the data, or the surrogate with `.to(dtype)`.",
        )
    check_outcomes(Y)


def check_noise(noise: Tensor, zero_allowed: bool = False) -> None:
    """Refuse noise variances that are not positive, or not finite, or too large."""
    low = noise < 0 if zero_allowed else noise <= 0
    most = largest_outcome(noise.dtype) ** 2
    if bool((low | ~(noise <= most)).any()):
        kind = "non-negative" if zero_allowed else "positive"
        raise NoiseError(
            f"{kind} noise variances of at most {most:.1g}",
            "NaN, infinite, too small or too large entries",
            "Give variances (not standard deviations); put a floor under zeros.",
        )


def added_noise(noise: Any, like: Tensor, outputs: int) -> Tensor:
    """Outcome-transformed noise variances at points, ``... x o x (q | 1)``, float64.

    Args:
        noise: ``... x q x o``, or one row for all points.
        like: ``... x q x d`` points or ``... x q x o`` outcomes.
        outputs: ``o``.
    """
    check_tensors(noise=noise)
    shape, (*batch, q, _) = noise.shape, like.shape
    fits = len(shape) >= 2 and shape[-1] == outputs and shape[-2] in (1, q)
    pairs = zip(reversed(shape[:-2]), reversed(batch), strict=False)
    if not fits or any(a != b and 1 not in (a, b) for a, b in pairs):
        raise ShapeError(
            f"noise `... x {q} x {outputs}`, or one row, and batch dimensions that fit {batch}",
            f"{tuple(shape)}",
            "Give one variance per point and output, outcome-transformed.",
        )
    check_noise(noise, zero_allowed=True)
    return cast(Tensor, noise.double().mT)
