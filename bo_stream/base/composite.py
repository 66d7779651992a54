"""Models composed of surrogates, which share one lock and change together."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import torch
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.base import checkpoint
from bo_stream.base.gaussian_model import missing
from bo_stream.base.stream import StateLock, all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.shapes import side_by_side

__all__ = [
    "CompositeModel",
    "absorb_points",
    "align",
    "combine",
    "empty_like",
    "kernel_for",
    "target_free_stream",
]


def kernel_for(kernel: Kernel, outputs: int) -> Kernel:
    """Expand a single-output kernel to several outputs with hyperparameters of their own.

    Raises:
        UnsupportedError: if it has a batch shape already.
    """
    if kernel.batch_shape != Size():
        raise UnsupportedError(
            "a kernel of one output",
            f"one of batch shape {tuple(kernel.batch_shape)}",
            "Leave out batch_shape: every output gets hyperparameters of its own.",
        )
    made = copy.deepcopy(kernel)
    parts = [part for part in made.modules() if isinstance(part, Kernel)]
    for part in parts if outputs > 1 else []:  # `expand_batch` fails on sums and active dimensions
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data.expand(outputs, *parameter.shape).contiguous()
        part.batch_shape = Size([outputs])
    return made


def empty_like(model: StreamingGP, outputs: int, kernel: Kernel) -> StreamingGP:
    """An empty stream of known noise with the options of another one without outcome transform."""
    X = torch.empty(0, model._dim, dtype=model.dtype, device=model._like.device)
    Y = X.new_empty(0, outputs)
    kind = cast("Callable[..., StreamingGP]", type(model))
    return kind(
        X,
        Y,
        Y,
        bounds=model.bounds,
        covar_module=kernel_for(kernel, outputs),
        input_transform=getattr(model, "input_transform", None),
        outcome_transform=None,
        **model._options(),
    )


def target_free_stream(model: StreamingGP, kernel: Kernel) -> StreamingGP:
    """An empty target-free stream with the features of another stream."""
    made = empty_like(model, 1, kernel)
    align(made, model)
    return made


@all_or_nothing
def align(one: StreamingGP, model: StreamingGP) -> None:
    """Replace a target-free stream's features by the model's current ones."""
    one._replace(state=one.state.along(model.state, one.num_observed))


def absorb_points(one: StreamingGP, X: Tensor) -> None:
    """Add raw, checked points ``n x d`` to a target-free stream, without changing its features."""
    zeros = torch.zeros(1, len(X), dtype=torch.float64, device=X.device)
    ones = torch.ones_like(zeros)
    one._absorb_transformed(one._transformed(X), zeros, ones, same_features=True)


@all_or_nothing
def combine(
    model: StreamingGP, streams: Sequence[StreamingGP], targets: Tensor, noises: Tensor
) -> None:
    """Fill an empty stream with the points of target-free streams: O(outputs streams m^2).

    Args:
        model: The empty stream.
        streams: At least one target-free stream.
        targets: ``outputs x streams``: each output's target at all points of a stream.
        noises: Noise variances likewise.
    """
    largest = max(streams, key=lambda one: one.num_observed)
    counts = noises.new_tensor([one.num_observed for one in streams])
    outputs = []
    for row, variances in zip(targets, noises, strict=True):
        state, seen = largest._empty_state().along(largest.state, 0), 0
        for one, t, d in zip(streams, row, variances, strict=True):
            if one.num_observed:
                f = d.rsqrt().reshape(1)  # outcomes (0 + t f) / f = t, noise 1 / f^2 = d
                part = one._rescale(one.state, -t * f, f)
                state = state.merged_at(part, seen, one.num_observed)
                seen += one.num_observed
        outputs.append(state)
    total = counts.sum().to(torch.int64)
    model._replace(state=side_by_side(outputs), count=total, noise_sum=noises @ counts)


LEARN = "To learn hyperparameters, call `fit`; to predict, `posterior`."


class CompositeModel(Model):
    """Base of models that predict from the posterior of a surrogate of their own.

    Attributes:
        model: The surrogate.
    """

    model: StreamingGP
    _lock: StateLock

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__init__ = lasting(cls.__init__)  # type: ignore[method-assign]
        checkpoint.loadable(cls)

    def _streams(self) -> list[StreamingGP]:
        """All surrogates."""
        return [self.model]

    def _share_lock(self) -> None:
        for stream in self._streams():
            stream._lock = self._lock

    def __getattr__(self, name: str) -> Any:
        if name in ("train_inputs", "train_targets"):
            raise missing(name, LEARN)
        return super().__getattr__(name)

    def forward(self, X: Tensor) -> NoReturn:
        """Refuse: `posterior` predicts.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a posterior to be asked for", "a call of the model", LEARN)

    @property
    def batch_shape(self) -> Size:
        """Empty."""
        return Size()

    @property
    def num_observed(self) -> int:
        """Number of observations absorbed."""
        return self.model.num_observed

    @property
    def state_bytes(self) -> int:
        """Size in bytes of all state buffers."""
        return sum(part.state_bytes for part in self._streams())

    @abstractmethod
    def _header(self) -> dict[str, Any]:
        """Class and settings, which are checked when a state is loaded."""

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """The arguments of its constructor by name, with no data."""

    def _shared_arguments(self, inputs: str) -> dict[str, Any]:
        """Those that every composite model has; ``inputs`` is the name of the points."""
        model = self.model
        return {
            inputs: torch.empty(0, model._dim, dtype=model.dtype),
            "surrogate": type(model),
            "bounds": model.bounds,
            "covar_module": model.covar_module,
            "input_transform": getattr(model, "input_transform", None),
            **model._options(),
        }

    def get_extra_state(self) -> Tensor:
        """The metadata of a `state_dict` as a tensor of bytes."""
        return checkpoint.packed(self._header())

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: `load_state_dict` has read them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, from which `bo_stream.load` rebuilds everything."""
        checkpoint.save(self, path)
