"""Second derivatives of autograd functions whose gradients have a closed form.

Such a gradient carries no graph, and torch takes its derivative for zero, without an error. In a
function's ``backward``, gradients are enabled only if the caller asked for a graph
(``create_graph=True``). The gradient is then computed by `traced` from a differentiable form of the
same function, or passed through `refused`. Without a graph, the closed form is used, at its speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bo_stream.errors import UnsupportedError

__all__ = ["refused", "traced", "twice"]


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
