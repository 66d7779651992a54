"""Values that are kept, computed outside of torch's inference mode.

A tensor that was created in inference mode can never be part of a computation with gradients.
Caches outlive the mode in which they are filled, so they must not hold such tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

import torch

__all__ = ["lasting", "lasting_property"]

P = ParamSpec("P")
R = TypeVar("R")


def lasting(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose results are kept: in inference mode it runs without gradients
    instead.

    Its arguments may be tensors of inference mode, views of which it must not keep.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)

    cast(Any, run).__signature__ = signature(function)
    return run


class lasting_property(cached_property[R]):
    """A `functools.cached_property` whose value is `lasting`."""

    def __init__(self, function: Callable[[Any], R]) -> None:
        super().__init__(lasting(function))
