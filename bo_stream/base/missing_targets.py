"""What BoTorch finds in place of the training targets of a model that does not expose them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from bo_stream.errors import NoTrainingDataError

__all__ = ["LEARN", "MissingTargets", "missing"]

LEARN = (
    "To learn hyperparameters, call `fit` or `fit_gpytorch_mll(model.make_mll())`; in a training "
    "loop, `model.make_mll()()` is the objective."
)
READ = ("device", "dtype", "numel", "to")
"""What BoTorch's input constructors ask of targets, to find a model's dtype and device."""


def missing(name: str, learn: str = LEARN) -> NoTrainingDataError:
    """The error that the attribute ``train_inputs`` or ``train_targets`` does not exist."""
    return NoTrainingDataError(
        "something that needs no training data",
        f"a request for `{name}`, which a streaming surrogate does not expose",
        f"{learn} Predictive entropy search, proximal and analytic noisy expected improvement need "
        "training data; use qLogNoisyExpectedImprovement, max-value or joint entropy search.",
    )


class MissingTargets(Tensor):
    """An empty tensor with a dtype and a device but no values."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Dtype and device, and casts of other tensors to them.

        Raises:
            NoTrainingDataError: for everything that reads values.
        """
        name = getattr(getattr(func, "__self__", None), "__name__", func.__name__)
        if name not in READ:
            raise NoTrainingDataError(
                "something that needs no training targets",
                f"`{name}` of the `train_targets` of a streaming surrogate, which exposes none",
                f"{LEARN} For the best outcome, keep Y in the loop and pass `best_f`.",
            )
        if name == "to" and isinstance(args[-1], cls):
            return func(args[0], device=args[-1].device, dtype=args[-1].dtype)
        return super().__torch_function__(func, types, args, dict(kwargs or {}))
