"""Checks of what a surrogate is built from, before anything is kept of it."""

from __future__ import annotations

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from bo_stream.errors import BoundsError, DtypeError, ShapeError, UnsupportedError

__all__ = ["checked_bounds", "noise_mode_of", "sizes_of"]


def sizes_of(X: Tensor, Y: Tensor, Yvar: Tensor | None) -> tuple[int, int]:
    """Dimension and number of outputs of a constructor's data."""
    shapes = [tuple(t.shape) for t in (X, Y) if t is not None]
    if X.ndim != 2 or Y.ndim != 2 or X.shape[0] != Y.shape[0] or 0 in (X.shape[1], Y.shape[1]):
        raise ShapeError(
            "train_X `n x d` and train_Y `n x m`, unbatched",
            " and ".join(map(str, shapes)),
            "Give an explicit output dimension; build one surrogate per batch.",
        )
    if X.dtype != Y.dtype or X.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            "train_X and train_Y both float64 (or both float32)",
            f"{X.dtype} and {Y.dtype}",
            "Cast them to one dtype.",
        )
    return X.shape[1], Y.shape[1]


def checked_bounds(bounds: Tensor | None, X: Tensor) -> Tensor | None:
    """Raw bounds, ``2 x d``, as float64 where X is."""
    if bounds is None:
        return None
    value = torch.as_tensor(bounds).detach().to(dtype=torch.float64, device=X.device)
    if value.shape != (2, X.shape[1]):
        raise ShapeError(
            f"bounds `2 x {X.shape[1]}`", f"{tuple(value.shape)}", "Stack lower and upper bounds."
        )
    if not bool(value.isfinite().all()) or bool((value[0] >= value[1]).any()):
        raise BoundsError(
            "finite bounds, lower below upper", f"{value.tolist()}", "Swap or widen them."
        )
    return value.clone()


def noise_mode_of(Yvar: Tensor | None, likelihood: Likelihood | None) -> str:
    """``learned``, ``known``, or ``scaled``: known up to a learned scale."""
    if getattr(likelihood, "second_noise_covar", None) is not None:
        raise UnsupportedError(
            "known or learned noise",
            "learn_additional_noise=True",
            "Give train_Yvar and likelihood=GaussianLikelihood() for noise of learned scale.",
        )
    if likelihood is not None and not isinstance(likelihood, GaussianLikelihood):
        raise UnsupportedError(
            "a GaussianLikelihood", type(likelihood).__name__, "Give known noise as train_Yvar."
        )
    if Yvar is None:
        return "learned"
    return "known" if likelihood is None else "scaled"
