"""Policies of active learning over a pool, by name."""

from __future__ import annotations

from typing import cast

import torch
from botorch.models.model import Model
from torch import Tensor

from acquisitions.build import build
from acquisitions.nipv import NIPV
from acquisitions.policies import near_most_uncertain
from acquisitions.pool import select_from_pool
from bo_stream.errors import InputError

__all__ = ["POLICIES", "PoolPolicy"]

POLICIES = ("nipv", "max_variance", "random", "near_most_uncertain")


class PoolPolicy:
    """A pool policy: ``(model, test_X, pool_X, q)`` to q pool indices.

    Candidates have the typical noise: the learned one or, for known noise, the mean over the cells
    queried so far. A cell's published standard deviation is not used, because it depends on the
    cell's value, which is unknown before the measurement, and would favour low values.

    Args:
        name: ``nipv``, ``max_variance``, ``random`` or ``near_most_uncertain``.
        chunk_size: Candidates scored at a time.

    Raises:
        InputError: for an unknown name.

    Example:
        >>> from bo_stream import WISKI
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> len(PoolPolicy("nipv")(model, X, torch.rand(50, 2, dtype=torch.double), 3))
        3
    """

    def __init__(self, name: str, chunk_size: int = 4096) -> None:
        if name not in POLICIES:
            raise InputError(
                f"the name of a pool policy, one of {', '.join(POLICIES)}",
                repr(name),
                "Choose one of these, or write a function (model, test_X, pool, q).",
            )
        self.name = name
        self.chunk_size = chunk_size
        self._nipv: NIPV | None = None

    def __call__(self, model: Model, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
        """Indices of the q cells to measure next, in order of choice."""
        if self.name == "random":
            return torch.randperm(len(pool))[:q].to(pool.device)
        if self.name == "near_most_uncertain":
            return near_most_uncertain(model, test_X, pool, q)
        if self.name == "max_variance":
            return select_from_pool(build(self.name, model), pool, q, self.chunk_size)[0]
        acqf = self._nipv
        if acqf is None or acqf.model is not model or not torch.equal(acqf.mc_points, test_X):
            # kept between steps, because sums over the test points are reused
            acqf = self._nipv = cast(NIPV, build(self.name, model, mc_points=test_X))
        return select_from_pool(acqf, pool, q, self.chunk_size)[0]
