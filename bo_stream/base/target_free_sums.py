"""Streams that only count points, and what they tell a stream of several outputs.

A tally has seen its points with outcome zero and noise one. Its sums are ``W'W``, ``W'1`` and the
number of points: enough to say exactly what the points would have been with any one target and any
one noise variance, later and for as many outputs as there are by then.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.base.additive import AdditiveGP
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.shapes import side_by_side

__all__ = ["aligned", "count", "empty_like", "kernel_for", "tally", "tell", "together"]

_T = TypeVar("_T")


def kernel_for(kernel: Kernel, outputs: int) -> Kernel:
    """A kernel of one output for several: hyperparameters for each, all with its values.

    Raises:
        UnsupportedError: if it has a batch shape already.
    """
    if kernel.batch_shape != Size():
        raise UnsupportedError(
            "a kernel of one output",
            f"one of batch shape {tuple(kernel.batch_shape)}",
            "Give it without batch_shape: every output gets hyperparameters of its own.",
        )
    made = copy.deepcopy(kernel)
    parts = [part for part in made.modules() if isinstance(part, Kernel)]
    for part in parts if outputs > 1 else []:  # `expand_batch` cannot do sums and active dimensions
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data.expand(outputs, *parameter.shape).contiguous()
        part.batch_shape = Size([outputs])
    return made


def empty_like(model: StreamingGP, outputs: int, kernel: Kernel) -> StreamingGP:
    """A stream of known noise, built as another without outcome transform was, without data."""
    X = model.get_buffer("_interface").new_empty(0, model._dim)
    Y = X.new_empty(0, outputs)
    kind = cast("Callable[..., StreamingGP]", type(model))
    return kind(
        X,
        Y,
        Y,
        bounds=model.bounds,
        covar_module=kernel_for(kernel, outputs),
        input_transform=model._input_transform(),
        outcome_transform=None,
        **model._options(),
    )


def tally(model: AdditiveGP, kernel: Kernel) -> AdditiveGP:
    """An empty tally on the rows of another stream."""
    made = cast(AdditiveGP, empty_like(model, 1, kernel))
    aligned([made], model)
    return made


def aligned(tallies: Sequence[AdditiveGP], model: AdditiveGP) -> None:
    """Have tallies sum over the rows that the model has by now."""
    for one in tallies:
        one.hold("state", one.held().along(model.held(), one.num_observed))
        one._changed()


def count(one: AdditiveGP, X: Tensor) -> None:
    """Add points, ``n x d``, raw and checked, to a tally; without changing what its rows are."""
    zeros = torch.zeros(1, len(X), dtype=torch.float64, device=X.device)
    one._take(one._transformed(X), zeros, torch.ones_like(zeros), exact=True)


def tell(model: AdditiveGP, tallies: Sequence[AdditiveGP], targets: Tensor, noises: Tensor) -> None:
    """Have an empty stream hold what tallies have counted. O(outputs x tallies x m^2).

    Args:
        model: Without data.
        tallies: At least one.
        targets: ``outputs x tallies``: the target that an output has at all points of a tally.
        noises: Noise variances likewise.
    """
    largest = max(tallies, key=lambda one: one.num_observed)
    counts = noises.new_tensor([one.num_observed for one in tallies])
    outputs = []
    for row, variances in zip(targets, noises, strict=True):
        state, seen = largest._empty_state().along(largest.held(), 0), 0
        for one, t, d in zip(tallies, row, variances, strict=True):
            if one.num_observed:
                f = d.rsqrt().reshape(1)  # outcomes (0 + t f) / f = t, noise 1 / f^2 = d
                part = one._rescale(one.held(), -t * f, f)
                state = state.merged_at(part, [], seen, one.num_observed)
                seen += one.num_observed
        outputs.append(state)
    model.hold("state", side_by_side(outputs))
    model._register_state("_noise_sum", noises @ counts)
    model._changed(int(counts.sum()))


def together(streams: Sequence[StreamingGP], change: Callable[[], _T]) -> _T:
    """Make a change to several streams: if it raises, all are as they were."""
    for stream in streams:
        change = partial(stream._wholly, change)
    return change()
