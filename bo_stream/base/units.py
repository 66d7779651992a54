"""Frozen transforms between raw units and the model's.

A transform on a stream must not change: it is learned once from the constructor's data, or given
with its coefficients. By default inputs are normalised to the bounds and outcomes standardised.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    OutcomeTransform,
    Standardize,
)
from botorch.models.utils.assorted import check_min_max_scaling
from botorch.utils.types import DEFAULT
from torch import Tensor, nn

from bo_stream.base.checks import (
    ROOM,
    check_outcomes,
    check_tensors,
    checked_bounds,
    finite,
)
from bo_stream.base.stream import fingerprint
from bo_stream.errors import InputError, ShapeError, UnsupportedError

__all__ = [
    "are_equal",
    "bounds_for",
    "change_of_units",
    "frozen_transform",
    "input_transform_for",
    "outcome_transform_for",
    "raw_inputs",
    "standardize_by",
    "transformed_inputs",
    "transformed_outcomes",
]

T = TypeVar("T", InputTransform, OutcomeTransform)

STANDARDISED = 1e-8
"""Standard deviations below which BoTorch's `Standardize` keeps the unit of the outcomes."""


def input_transform_for(choice: Any, X: Tensor, bounds: Tensor | None) -> InputTransform | None:
    """The frozen input transform of a surrogate, or None.

    Args:
        choice: The constructor's argument; `DEFAULT` if it was left out.
        X: The constructor's ``n x d`` raw inputs.
        bounds: ``2 x d`` raw bounds, or None.

    Raises:
        UnsupportedError, InputError: for a transform that is not supported on a stream.
    """
    if choice is None:
        return None
    if choice is not DEFAULT:
        frozen = frozen_transform(cast(InputTransform, choice), X)
        if frozen.transform(X.double() if bounds is None else bounds).shape[-1] != X.shape[1]:
            raise UnsupportedError(
                "an input transform that keeps the number of inputs",
                f"{type(frozen).__name__}, which changes it",
                "Select the columns of X before observing them.",
            )
        return frozen
    if bounds is not None:
        return frozen_transform(Normalize(d=X.shape[1], bounds=bounds), X)
    check_min_max_scaling(X)  # BoTorch's warning
    return None


def bounds_for(bounds: Any, choice: Any, X: Tensor) -> Tensor | None:
    """The raw bounds of a surrogate, ``2 x d``, or None.

    Args:
        bounds: The constructor's argument; ``"unit"`` means the bounds that the input transform
            maps to the unit cube.
        choice: The input transform; `DEFAULT` if it was left out.
        X: The constructor's ``n x d`` raw inputs.

    Raises:
        ShapeError, BoundsError: for invalid bounds.
        UnsupportedError: if they follow from a transform that cannot be inverted.
    """
    if not (isinstance(bounds, str) and bounds == "unit"):
        return checked_bounds(bounds, X)
    raw = torch.tensor([[0.0], [1.0]]).to(X).expand(2, X.shape[1]).double()
    if choice is not None and choice is not DEFAULT:
        try:
            raw = raw_inputs(frozen_transform(cast(InputTransform, choice), X), raw).sort(0).values
        except NotImplementedError as error:
            raise UnsupportedError(
                "bounds, or an invertible input transform that implies them",
                type(choice).__name__,
                "Give the raw bounds of the inputs (in Ax: model_options={'bounds': ...}).",
            ) from error
    return checked_bounds(raw, X)


def outcome_transform_for(choice: Any, Y: Tensor, Yvar: Tensor | None) -> OutcomeTransform | None:
    """The frozen outcome transform of a surrogate, or None.

    Args:
        choice: The constructor's argument; `DEFAULT` if it was left out.
        Y: The constructor's ``n x m`` raw outcomes.
        Yvar: Their noise variances, or None.
    """
    if choice is None:
        return None
    if choice is not DEFAULT:
        return frozen_transform(cast(OutcomeTransform, choice), Y, Yvar)
    if len(Y) >= 2 and finite(Y):
        return frozen_transform(Standardize(m=Y.shape[1]), Y, Yvar)
    warnings.warn(
        f"No outcome_transform was given and {len(Y)} rows are too few to learn a Standardize "
        "from: outcomes are left unchanged. Give outcome_transform=None if they are of unit "
        "scale, or build the surrogate on at least two rows.",
        InputDataWarning,
        stacklevel=2,
    )
    return None


def frozen_transform(transform: T, data: Tensor, variance: Tensor | None = None) -> T:
    """A copy of the transform in evaluation mode, learned once from `data` if in training mode.

    Args:
        transform: BoTorch's input or outcome transform.
        data: The constructor's ``n x d`` inputs or ``n x m`` outcomes.
        variance: ``n x m`` noise variances, for an outcome transform.

    Raises:
        UnsupportedError: for learnable or one-to-many transforms.
        InputError: if it must be learned and there are no data.
    """
    frozen = copy.deepcopy(transform).to(device=data.device, dtype=torch.float64)
    if any(p.requires_grad for p in frozen.parameters()):
        raise UnsupportedError(
            "a transform without learnable parameters",
            type(frozen).__name__,
            "Fit it beforehand, freeze its parameters and pass it in eval mode.",
        )
    if getattr(frozen, "is_one_to_many", False):
        raise UnsupportedError(
            "a one-to-one input transform", type(frozen).__name__, "Expand the points beforehand."
        )
    if not frozen.training:
        return frozen
    if not len(data):
        learns = any(getattr(part, "learn_coefficients", False) for part in frozen.modules())
        if learns or (isinstance(frozen, OutcomeTransform) and list(frozen.buffers())):
            raise InputError(
                "data to learn the transform from, or a transform in eval mode",
                f"{type(frozen).__name__} in train mode and no training data",
                "Learn it on data of the problem's scale and call .eval(), or give it fixed "
                "coefficients (Normalize(d, bounds=bounds)).",
            )
        return frozen.eval()
    with torch.no_grad():
        if isinstance(frozen, OutcomeTransform):
            noise = None if variance is None else variance.double()
            return _of_outcomes(frozen, data, noise).eval()
        frozen(data.double())
    return frozen.eval()


def _of_outcomes(transform: OutcomeTransform, Y: Tensor, Yvar: Tensor | None) -> OutcomeTransform:
    """An outcome transform learned from outcomes ``n x m``, and their noise variances or None."""
    if type(transform) is Standardize:
        return _standardize(transform, Y)
    if type(transform) is not ChainedOutcomeTransform:
        transform(Y.double(), Yvar)
        return transform
    for name in list(transform):
        transform[name] = _of_outcomes(cast(Any, transform[name]), Y, Yvar).eval()
        values, Yvar = transform[name](Y.double(), Yvar)
        Y = values.to(Y)
    return transform


def _standardize(transform: Standardize, Y: Tensor) -> Standardize:
    """A `Standardize` learned from outcomes ``n x m`` in any unit.

    BoTorch's keeps the unit of outcomes that vary by less than 1e-8. Here they are standardised
    too. Outcomes that are equal up to rounding are divided by their size, unless they are zero.

    Raises:
        InputError: if the outcomes are so small that their squares underflow.
    """
    values, info, away = Y.double(), torch.finfo(Y.dtype), Y.new_tensor([[1.0], [-1.0]]).double()
    sd = values.std(0) if len(values) > 1 else torch.zeros_like(values[0])
    size = values.abs().amax(0)
    equal = sd <= 4.0 * info.eps * size
    if not bool((equal | (sd < STANDARDISED)).any()):
        transform(values)
        return transform
    unit = torch.where(equal, size, sd)
    least = info.tiny**0.5 / ROOM
    if bool(((unit > 0.0) & (unit < least)).any()):
        raise InputError(
            f"outcomes that vary by at least {least:.1g}, whose squares {Y.dtype} can represent",
            f"a standard deviation of {float(unit[unit > 0.0].min()):.3g}",
            "Give the outcomes in a smaller unit.",
        )
    transform(away.expand(2, len(unit)))  # which shows the outputs that it standardises
    outputs = (transform.stdvs != 1.0).flatten().nonzero().flatten().tolist()
    every = len(outputs) == len(unit)
    learned = Standardize(len(unit), None if every else outputs, min_stdv=0.0)
    unit = torch.where(unit > 0.0, unit, torch.ones_like(unit))
    learned(values.mean(0) + 0.5**0.5 * unit * away)  # two outcomes of this mean and deviation
    return learned


def transformed_inputs(transform: InputTransform | None, X: Tensor) -> Tensor:
    """Raw points in the model's units, float64.

    Raises:
        InputError: if a transformed value is not finite.
    """
    X = X.double()
    if transform is None:
        return X
    if (
        type(transform) is Normalize
        and transform.transform_on_eval
        and transform.transform_on_fantasize
        and not (transform.training or transform.reverse or hasattr(transform, "indices"))
        and transform.offset.device == X.device
        and transform.offset.shape == (1, X.shape[-1])
    ):  # without BoTorch's checks of shapes, the largest cost of an acquisition at a few points
        value = (X - transform.offset) / transform.coefficient
    else:
        value = cast(Tensor, transform(X))
    if not finite(value):
        raise InputError(
            "points at which the input transform is defined",
            "NaN or infinite transformed inputs",
            "Drop those points, or choose `bounds` within the transform's domain.",
        )
    return value


def raw_inputs(transform: InputTransform | None, X: Tensor) -> Tensor:
    """Untransform inputs, float64; a copy.

    Raises:
        UnsupportedError: if the transform cannot be inverted.
    """
    if transform is None:
        return X.clone()
    try:
        value: Tensor = transform.untransform(X)
        return value
    except NotImplementedError as error:
        raise UnsupportedError(
            "an invertible input transform",
            type(transform).__name__,
            "Read the points in transformed space from the state.",
        ) from error


def transformed_outcomes(
    transform: OutcomeTransform | None, Y: Tensor, Yvar: Tensor | None, X: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Raw outcomes and noise variances in the model's units, ``batch x n x m``, float64.

    Raises:
        InputError: if a transformed value is not finite.
    """
    Yvar = None if Yvar is None else Yvar.double()
    if transform is None:
        return Y.double(), Yvar
    Y_t, Yvar_t = transform(Y.double(), Yvar, X=X)
    if not all(finite(t) for t in (Y_t, Yvar_t) if t is not None):
        raise InputError(
            "outcomes at which the outcome transform is defined",
            "NaN or infinite transformed outcomes",
            "Drop those rows, or choose another transform.",
        )
    return Y_t, Yvar_t


def standardize_by(old: OutcomeTransform | None, Y: Tensor, outputs: int) -> Standardize:
    """A frozen `Standardize` learned from ``Y`` (``n x m``), to replace an old one.

    Raises:
        UnsupportedError: if the old transform is not a `Standardize`.
        ShapeError, InputError: if the outcomes are invalid.
    """
    check_tensors(Y=Y)
    if not isinstance(old, Standardize):
        raise UnsupportedError(
            "a surrogate built with outcome_transform=Standardize(m)",
            type(old).__name__,
            "Rebuild it with one.",
        )
    if Y.ndim != 2 or Y.shape[1] != outputs or len(Y) == 0:
        raise ShapeError(
            f"Y `n x {outputs}`, n >= 1", f"{tuple(Y.shape)}", "Give one row per observation."
        )
    check_outcomes(Y)
    return cast(Standardize, frozen_transform(Standardize(m=outputs), Y.to(old.means.device)))


def are_equal(a: nn.Module | None, b: nn.Module | None) -> bool:
    """Whether two frozen transforms are equal: classes, settings and values."""
    if a is None or b is None:
        return a is b
    mine, theirs = ({k: v.tolist() for k, v in one.state_dict().items()} for one in (a, b))
    return mine == theirs and fingerprint(a) == fingerprint(b)


def change_of_units(
    old: Mapping[str, Tensor], new: Mapping[str, Tensor], like: Tensor
) -> tuple[Tensor, Tensor]:
    """Shift and factor (each ``o``) that map old to new units by ``(y - shift) / factor``.

    Args:
        old: The `state_dict` of a `Standardize`; empty if there is none.
        new: That of another one.
        like: A tensor of the shape and dtype of the result.
    """
    zero, one = torch.zeros_like(like), torch.ones_like(like)
    means, new_means = (s.get("means", zero).to(like).reshape(-1) for s in (old, new))
    stdvs, new_stdvs = (s.get("stdvs", one).to(like).reshape(-1) for s in (old, new))
    return (new_means - means) / stdvs, new_stdvs / stdvs
