"""What objectives return, as outcomes by column."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bo_stream.campaign.outcomes.outcome import LARGEST

__all__ = ["read_returned"]


def read_returned(
    returned: Any, column: str, truths: bool
) -> dict[str, tuple[float, float | None]]:
    """Outcomes and their noise variances by column; of counts, these and their sizes.

    Args:
        returned: A number, or a pair of the outcome and its noise variance. Arrays, tensors and
            Series of one element count as numbers. A mapping has outcomes by name, and a pair of
            mappings these and their noise variances.
        column: Column of an outcome without a name.
        truths: Whether truth values are outcomes, 1 and 0.

    Raises:
        ValueError: for anything else, saying what was returned.
    """
    variances: Mapping[str, Any] = {}
    if isinstance(returned, tuple) and [isinstance(x, Mapping) for x in returned] == [True, True]:
        returned, variances = returned
    if not isinstance(returned, Mapping):
        return {column: _outcome(returned, truths)}
    unknown = sorted(set(variances) - set(returned))
    if unknown or not returned:
        raise ValueError(f"the objective returned no outcome {unknown[0] if unknown else ''}")
    outcomes: dict[str, tuple[float, float | None]] = {}
    for name, y in returned.items():
        try:
            pair = (y, variances[name]) if name in variances else y
            outcomes[str(name)] = _outcome(pair, truths)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return outcomes


def _outcome(returned: Any, truths: bool) -> tuple[float, float | None]:
    """An outcome, and its noise variance if there is one."""
    pair = isinstance(returned, tuple | list) and len(returned) == 2
    y, yvar = returned if pair else (returned, None)
    try:
        outcome = _number(y, truths)
        variance = None if yvar is None else _number(yvar)
    except Exception as error:  # the value may be of any class, and raise anything
        shown = f"{type(returned).__name__} {reprlib.repr(returned)}"
        raise ValueError(f"the objective returned {shown} ({error})") from error
    if not abs(outcome) <= LARGEST:
        raise ValueError(f"the objective returned {outcome}")
    if variance is not None and not 0.0 < variance <= LARGEST**2:
        raise ValueError(f"the objective returned a noise variance, or a size, of {variance}")
    return outcome, variance


def _number(value: Any, truths: bool = False) -> float:
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
    array = np.asarray(value)
    single = array.item() if array.size == 1 and array.dtype.kind in "biufO" else None
    wrong = (str, bytes) if truths else (str, bytes, bool)
    if single is None or isinstance(single, wrong):
        raise ValueError("expected a number, or a pair (y, yvar)")
    return float(single)
