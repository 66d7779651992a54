"""A surrogate without its observations: what fits have learned is kept."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.mathematics.lasting import lasting

__all__ = ["emptied", "fill"]


@lasting
def emptied(model: StreamingGP) -> StreamingGP:
    """A copy before any data, with hyperparameters, features, warp and transforms of a surrogate.

    Args:
        model: The surrogate, which is not changed.
    """
    made, state = copy.deepcopy(model), model._empty_state()
    if model.promises.additive:
        state = state.along(model.state, 0)  # the features, which fits may have chosen
    elif hasattr(state, "warp"):
        state = replace(state, warp=model.state.warp)
    stream = made.stream.contents
    nothing = {"count": torch.zeros_like(stream.count), "noise_sum": 0.0 * stream.noise_sum}
    made._replace(state=state, **nothing)
    return made


def fill(model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
    """Let an emptied surrogate observe data ``n x d``, ``n x m``, with its features as they are."""
    if not model.promises.additive:
        model.observe(X, Y, Yvar)
        return
    Y_t, Yvar_t = model._outcomes(Y, Yvar, X)
    R = None if Yvar_t is None else Yvar_t.mT
    model._absorb_transformed(model._transformed(X), Y_t.mT, R, same_features=True)
