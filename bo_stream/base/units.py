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
    "check_targets",
    "check_tensors",
    "checked_bounds",
    "finite",
    "frozen_transform",
    "input_transform_for",
    "inputs_of",
    "largest_outcome",
    "outcome_transform_for",
    "raw_inputs",
    "sizes_of",
    "standardize_by",
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


# -- checks --------------------------------------------------------------------------------------


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
