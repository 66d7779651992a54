"""Target-free sufficient statistics, and streams of several outputs built from them.

A target-free stream absorbs its points with outcome zero and noise one. Its sums are ``W'W``,
``W'1`` and the number of points. From these follow the exact sums for any constant target and noise
variance, chosen later and for any number of outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.base.changes import all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.shapes import side_by_side

__all__ = ["absorb_points", "align", "combine", "empty_like", "kernel_for", "target_free_stream"]


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
