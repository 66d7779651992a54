"""Derivatives in closed form, second derivatives, and values that outlive inference mode.

A gradient in closed form carries no graph, and torch takes its derivative for zero, without an
error. In a function's ``backward``, gradients are enabled only if the caller asked for a graph
(``create_graph=True``). The gradient is then computed by `traced` from a differentiable form of the
same function, or passed through `refused`. Without a graph, the closed form is used, at its speed.

A tensor that was created in inference mode can never be part of a computation with gradients.
Caches outlive the mode in which they are filled, so they hold `lasting` values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from bo_stream.errors import UnsupportedError

__all__ = [
    "attach",
    "lasting",
    "lasting_property",
    "refused",
    "traced",
    "twice",
]

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


def traced(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, ...]:
    """Gradients in the inputs that require one, differentiable in the inputs and in ``grad``.

    Args:
        function: A differentiable function of the inputs.
        inputs: The inputs.
        grad: The gradient in the function's value.
    """
    views = [t.view_as(t) for t in inputs]  # the same tensor may be two inputs
    wanted = [t for t in views if t.requires_grad]
    return torch.autograd.grad(function(*views), wanted, grad, create_graph=True)


def twice(fast: Callable[..., Tensor], smooth: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """The value and first derivatives of one function, with further derivatives of another.

    Args:
        fast: A function of the inputs whose second derivatives autograd lacks.
        smooth: The same function, slower, in operations that autograd differentiates.
        inputs: Tensors, at least one of which requires a gradient.
    """
    value: Tensor = _Twice.apply(fast, smooth, *inputs)
    return value


def refused(gradients: Sequence[Tensor], inputs: Sequence[Tensor], what: str) -> list[Tensor]:
    """The gradients, whose derivatives raise an `UnsupportedError`.

    Args:
        gradients: Gradients of what is named.
        inputs: The tensors that they depend on.
        what: Name of the differentiated function.
    """
    return [cast(Tensor, _Refused.apply(what, gradient, *inputs)) for gradient in gradients]


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fast: Any, smooth: Any, *inputs: Tensor) -> Tensor:
        needed = ctx.needs_input_grad[2:]
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(n) for t, n in zip(inputs, needed, strict=True)]
            value = fast(*leaves)
        ctx.save_for_backward(*inputs)
        ctx.smooth, ctx.leaves, ctx.value = smooth, leaves, value
        return cast(Tensor, value.detach())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            found = iter(traced(ctx.smooth, ctx.saved_tensors, grads[0]))
        else:
            leaves = [leaf for leaf in ctx.leaves if leaf.requires_grad]
            found = iter(torch.autograd.grad(ctx.value, leaves, grads[0], retain_graph=True))
        return None, None, *(next(found) if n else None for n in needed)


class _Refused(torch.autograd.Function):
    """A gradient that depends on its inputs and cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, what: str, gradient: Tensor, *inputs: Tensor) -> Tensor:
        ctx.what = what
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise UnsupportedError(
            f"first derivatives of {ctx.what}",
            "a second derivative",
            "Use differences of first derivatives.",
        )


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.count = count
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        inputs, gradients = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        gradients = [grad * g for g in gradients]
        if torch.is_grad_enabled():
            gradients = refused(gradients, inputs, "a value with a closed-form gradient")
        return (None, None, *gradients, *(None,) * ctx.count)


def attach(value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """``value`` as a function of ``inputs`` whose gradients are already known.

    Second derivatives raise an `UnsupportedError`.
    """
    result: Tensor = _Attach.apply(value, len(inputs), *inputs, *gradients)
    return result
