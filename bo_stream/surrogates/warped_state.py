"""The state of a `bo_stream.surrogates.warped.WarpedGP`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.warped.warp import anchored
from bo_stream.surrogates.exact import ExactState

__all__ = ["WarpedState", "rescaled_warp"]


@dataclass(frozen=True)
class WarpedState(ExactState):
    """All data, in the units of ``outcome_transform``, and the coefficients of the warp."""

    warp: Tensor = shaped("4")

    @property
    def is_warped(self) -> bool:
        """Whether outcomes are warped."""
        return bool(self.warp[1])

    @property
    def coefficients(self) -> Tensor:
        """Those of `bo_stream.mathematics.warped.warp.warped`; there must be a warp.

        Before any data the worst outcome is taken to be two standard deviations below the mean.
        """
        top, scale, centre, spread = self.warp.unbind()
        usual = top - scale * (centre + 2.0 * spread).clamp_min(0.0).expm1()
        worst = self.Y.min() if self.Y.numel() else usual
        return torch.cat([self.warp, torch.minimum(worst, top).reshape(1)])

    def anchored(self) -> WarpedState:
        """The data under a warp of the same scale, anchored at them.

        Otherwise a large improvement would be many deviations from all other outcomes.
        """
        return replace(self, warp=anchored(self.Y[0], self.warp)) if self.is_warped else self

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> WarpedState:
        """The data and the warp with targets ``(y - shift) / factor``."""
        data = super().rescaled(shift, factor, known_noise)
        return WarpedState(data.X, data.Y, data.R, rescaled_warp(self.warp, shift[0], factor[0]))


def rescaled_warp(warp: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    """The coefficients of a warp of targets ``(y - shift) / factor`` (0-dim both)."""
    top, scale, centre, spread = warp.unbind()
    if bool(scale):
        return torch.stack([(top - shift) / factor, scale / factor, centre, spread])
    unit = torch.where(spread > 0, spread, torch.ones_like(spread))
    return torch.stack([top, scale, (centre - shift) / factor, unit / factor])
