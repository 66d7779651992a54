"""The best points seen, for acquisition functions that want a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from bo_stream.base.botorch_model import ProcessModel
from bo_stream.base.state import HeldState
from bo_stream.errors import InputError
from bo_stream.mathematics.shapes import shaped

__all__ = ["Incumbents", "KeepsIncumbents"]


@dataclass(frozen=True)
class Incumbents:
    """The ``limit`` points of highest outcome, best first, raw units, float64."""

    limit: int
    incumbent_X: Tensor = shaped("k d")
    incumbent_Y: Tensor = shaped("k")

    @classmethod
    def none(cls, limit: int, dim: int, outputs: int) -> Incumbents:
        """Before any point.

        Raises:
            InputError: for several outputs or a limit below one.
        """
        if outputs != 1 or limit < 1:
            raise InputError(
                "one output and k >= 1", f"{outputs} outputs, k = {limit}", "Keep points yourself."
            )
        zero = torch.zeros(0, dtype=torch.float64)
        return cls(limit, zero.new_zeros(0, dim), zero)

    def given(self, X: Tensor, Y: Tensor) -> Incumbents:
        """With points ``n x d`` of outcomes ``n x 1`` considered too; ties to the earlier."""
        points = torch.cat([self.incumbent_X, X.double()])
        values = torch.cat([self.incumbent_Y, Y[:, 0].double()])
        best = values.argsort(descending=True, stable=True)[: self.limit]
        return replace(self, incumbent_X=points[best], incumbent_Y=values[best])


class KeepsIncumbents(HeldState, ProcessModel):
    """A surrogate that keeps the best points it has seen, if asked to."""

    def track_incumbents(self, k: int) -> Self:
        """Keep the k best points observed from now on (one output), for an acquisition's
        X_baseline.
        """
        none = Incumbents.none(k, self._dim, self.num_outputs)
        self._wholly(lambda: self.hold("incumbents", none))
        return self

    @property
    def incumbents(self) -> Tensor | None:
        """The best points seen, raw, best first, ``k x d``; None unless `track_incumbents` was
        called.
        """
        if "incumbents" not in self._forms:
            return None
        return cast(Incumbents, self.held("incumbents")).incumbent_X.to(self.dtype)

    def _incumbents_kept(self) -> int:
        """How many are kept at most; 0 if none were asked for."""
        form = self._forms.get("incumbents")
        return 0 if form is None else cast(Incumbents, form).limit

    def _keep_incumbents(self, wanted: int) -> None:
        """Keep so many, as a saved state does that is about to be loaded."""
        if wanted == self._incumbents_kept():
            return
        if "incumbents" in self._forms:
            self._release("incumbents")
        if wanted:
            self.hold("incumbents", Incumbents.none(wanted, self._dim, self.num_outputs))
