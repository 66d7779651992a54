"""Incoming data: its checks, and the frozen transforms between raw units and the model's.

Checks of shapes, dtypes, finiteness, bounds and noise raise before anything is stored or changed.
A transform on a stream must not change: it is learned once from the constructor's data, or given
with its coefficients. By default inputs are normalised to the bounds and outcomes standardised.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import numpy as np
import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms.input import AffineInputTransform, InputTransform, Normalize
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    OutcomeTransform,
    Standardize,
)
from botorch.models.utils.assorted import check_min_max_scaling
from botorch.utils.types import DEFAULT
from torch import Tensor, nn

from bo_stream.base.stream import fingerprint
from bo_stream.errors import (
    BoundsError,
    DtypeError,
    InputError,
    NoiseError,
    ShapeError,
    UnsupportedError,
)
from bo_stream.mathematics.exact import Array

__all__ = [
    "added_noise",
    "affine",
    "are_equal",
    "bounds_for",
    "change_of_units",
    "check_batch",
    "check_noise",
    "check_outcomes",
    "check_points",
    "check_rows",
    "check_tensors",
    "checked_bounds",
    "columns_of",
    "finite",
    "frozen_transform",
    "input_transform_for",
    "largest_outcome",
    "outcome_transform_for",
    "raw_inputs",
    "sizes_of",
    "transformed_inputs",
    "transformed_outcomes",
]

T = TypeVar("T", InputTransform, OutcomeTransform)

SLACK = 1e-4
"""Tolerance for points outside a bound, relative to its width, for rounding and finite differences
at the boundary."""
ROOM = 1e-4
"""Share of the largest number with a square that outcomes may reach."""
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
        raw = raw_inputs(frozen_transform(cast(InputTransform, choice), X), raw).sort(0).values
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
    learns = any(getattr(part, "learn_coefficients", False) for part in frozen.modules())
    learns = learns or (isinstance(frozen, OutcomeTransform) and bool(list(frozen.buffers())))
    if learns and not len(data):
        raise InputError(
            "data to learn the transform from, or a transform in eval mode",
            f"{type(frozen).__name__} in train mode and no training data",
            "Learn it on data of the problem's scale and call .eval(), or give it fixed "
            "coefficients (Normalize(d, bounds=bounds)).",
        )
    with torch.no_grad():
        if type(frozen) is Standardize:
            frozen = _standardize(frozen, data)
        elif type(frozen) is ChainedOutcomeTransform:
            for name, part in frozen.items():
                frozen[name] = frozen_transform(cast(OutcomeTransform, part), data, variance)
                values, variance = frozen[name](data.double(), variance)
                data = values.to(data)
        else:
            noise = [] if variance is None else [variance.double()]
            frozen(data.double(), *noise)
    return frozen.eval()


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


def affine(transform: InputTransform | None, dim: int) -> tuple[Array, Array] | None:
    """The raw point that is mapped to zero and the raw lengths that are mapped to one, ``d`` each;
    None for a transform of some of the inputs, or one that is not linear in each.
    """
    if transform is None:
        return np.zeros(dim), np.ones(dim)
    whole = isinstance(transform, AffineInputTransform) and not hasattr(transform, "indices")
    if not whole or transform.reverse or not transform.transform_on_eval:
        return None
    parts = cast(Tensor, transform.offset), cast(Tensor, transform.coefficient)
    low, width = (part.double().reshape(-1).numpy(force=True) for part in parts)
    return low, width


def raw_inputs(transform: InputTransform | None, X: Tensor) -> Tensor:
    """Untransform inputs, float64; a copy.

    Raises:
        UnsupportedError: if the transform cannot be inverted.
    """
    if transform is None:
        return X.clone()
    try:
        return transform.untransform(X)
    except NotImplementedError as error:
        raise UnsupportedError(
            "an invertible input transform",
            type(transform).__name__,
            "Give the raw bounds of the inputs if they are to follow from it (in Ax: "
            "model_options={'bounds': ...}); read points in transformed space from the state.",
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


def are_equal(a: nn.Module | None, b: nn.Module | None) -> bool:
    """Whether two frozen transforms are equal: classes, settings and values."""
    if a is None or fingerprint(a) != fingerprint(b):
        return a is b
    return all(map(torch.equal, a.state_dict().values(), cast(nn.Module, b).state_dict().values()))


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


# -- checks --------------------------------------------------------------------------------------


def check_tensors(**values: Any) -> None:
    """Refuse arguments that are no tensors."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise DtypeError(
                f"{name} as a torch.Tensor",
                f"{type(value).__module__}.{type(value).__name__}",
                f"Convert it: torch.as_tensor({name}).",
            )


def finite(value: Tensor) -> bool:
    """Whether all entries are finite."""
    return bool((value.abs() < torch.inf).all())  # nor NaN, which is less than nothing


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


def columns_of(name: str, values: Any) -> int:
    """Number of columns of a matrix of data, with a row for each observation."""
    check_tensors(**{name: values})
    if values.ndim != 2 or not values.shape[1]:
        raise ShapeError(
            f"{name} as a matrix, unbatched",
            f"{tuple(values.shape)}",
            "Give one row per observation and one column per input or output dimension; build one "
            "surrogate per batch.",
        )
    if values.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"{name} of float64 or float32", f"{values.dtype}", f"Cast it: {name}.double()."
        )
    return int(values.shape[1])


def sizes_of(X: Tensor, Y: Tensor) -> tuple[int, int]:
    """Dimension and number of outputs of a constructor's data."""
    return columns_of("train_X", X), columns_of("train_Y", Y)


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
    known, most = X.detach().double(), torch.finfo(torch.float64).max
    box = (
        bounds.lerp(bounds.flip(0), -room)
        if bounds is not None
        else known.new_tensor([-most, most])
    )
    if torch.equal(known.clamp(*box), known):  # nor NaN, which equals nothing
        return
    if bounds is None or not finite(X):
        raise InputError("finite X", "NaN or infinite entries", "Drop or repair those rows.")
    outside = (known.clamp(*box) != known).any(-1)
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
    noise = {} if Yvar is None else {"Yvar": Yvar}
    check_tensors(X=X, Y=Y, **noise)
    check_points(X, sizes[0], bounds)
    if any(part.ndim != 2 for part in (X, Y, *noise.values())):
        raise ShapeError(
            "X `n x d`, Y and Yvar `n x m`",
            " and ".join(f"{tuple(part.shape)}" for part in (X, Y, *noise.values())),
            "Surrogates are unbatched; build one per batch.",
        )
    check_rows("Y", Y, X, sizes[1], dtype)
    check_outcomes(Y)
    if (Yvar is not None) != noise_known:
        raise NoiseError(
            "Yvar with every batch" if noise_known else "no Yvar",
            "none" if noise_known else "Yvar",
            "A surrogate's noise is known (train_Yvar) or learned, as set at construction.",
        )
    if Yvar is not None:
        check_rows("Yvar", Yvar, X, sizes[1], dtype)
        check_noise(Yvar)


def check_rows(name: str, Y: Tensor, X: Tensor, outputs: int, dtype: torch.dtype) -> None:
    """Refuse outcomes, or their variances, whose rows, outputs, batch shape or dtype do not match
    X.
    """
    if Y.ndim < 2 or Y.shape[-1] != outputs or Y.shape[-2] != X.shape[-2]:
        raise ShapeError(
            f"{name} `batch_shape x {X.shape[-2]} x {outputs}` for X {tuple(X.shape)}",
            f"{tuple(Y.shape)}",
            "Give one row per point and an explicit output dimension.",
        )
    pairs = zip(reversed(X.shape[:-2]), reversed(Y.shape[:-2]), strict=False)
    if Y.ndim >= X.ndim and any(x not in (1, y) for x, y in pairs):
        raise ShapeError(
            f"batch dimensions of {name} ending in those of X, {tuple(X.shape[:-2])}",
            f"{tuple(Y.shape[:-2])}",
            "Put fantasy dimensions first.",
        )
    if X.dtype != Y.dtype or X.dtype != dtype:
        raise DtypeError(
            f"X and {name} in the surrogate's dtype {dtype}",
            f"{X.dtype} and {Y.dtype}",
            "Cast the data, or the surrogate with `.to(dtype)`.",
        )


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
