"""Families whose state is a sum over observations: streams merge, units change, the past fades."""

from __future__ import annotations

from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor

from bo_stream.base.gp_model import News
from bo_stream.base.module_equality import same
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import NoiseError, StateError
from bo_stream.mathematics.posterior.process import PosteriorProcess
from bo_stream.mathematics.shapes import moved

__all__ = ["AdditiveGP"]

LEAST_NOISE = 1e-12
"""Noise variances below this share of the prior variance would drown all others in the sums."""
UPDATES_PER_REBUILD = 1000
"""Points folded into a posterior before it is rebuilt, against drift."""


class Folding(Protocol):
    """The law of a surrogate's coefficients, which takes points in."""

    folded_points: int

    def folded(self, X: Tensor, Y: Tensor, D: Tensor) -> PosteriorProcess:
        """The law given ``Y`` (``o x q``) with noise ``D`` at points ``q x d``: O(q m^2)."""
        ...


class AdditiveGP(StreamingGP):
    """A surrogate held by additive statistics (MATHS 2.2).

    Its state has ``merged_at``, ``rescaled`` and ``discounted``, and a ``weight``: what its
    observations count for. The process that it builds is a `Folding`.
    """

    def _update_process(
        self, process: PosteriorProcess, news: tuple[News, ...]
    ) -> PosteriorProcess | None:
        """Fold the batches into the law of the coefficients: O(q m^2)."""
        before, X = cast(Folding, process), torch.cat([batch.X for batch in news])
        if before.folded_points + len(X) > UPDATES_PER_REBUILD:
            return None
        Y, R = (torch.cat(parts, -1) for parts in zip(*((b.Y, b.R) for b in news), strict=True))
        return before.folded(X, Y, self._noise_scale().unsqueeze(-1) * R)

    def _rescale(self, state: Any, shift: Tensor, factor: Tensor) -> Any:
        return state.rescaled(shift, factor, self.noise_mode != "learned")

    def _discount(self, state: Any, factor: float) -> Any:
        return state.discounted(factor)

    @property
    def effective_observations(self) -> float:
        """What the observations count for together: `num_observed`, unless some are forgotten."""
        return float(self.held().weight)

    def _check_noise(self, X: Tensor, R: Tensor) -> None:
        """Refuse known noise (``o x n``) too small for the sums."""
        if self.noise_mode == "learned":
            return
        prior = self.covar_module(X[:1], diag=True).detach().double().reshape(-1, 1)
        least = LEAST_NOISE * prior / self._noise_scale().detach().unsqueeze(-1)
        if bool((least > R).any()):
            raise NoiseError(
                f"noise variances of at least {LEAST_NOISE:g} of the prior variance",
                f"{float((R / least).min()) * LEAST_NOISE:.1e} of it",
                "Put a floor under Yvar: sums in float64 cannot tell it from zero.",
            )

    def merge(self, other: StreamingGP) -> Self:
        """Add another stream's observations in place: map-reduce ingestion. O(m^2).

        Raises:
            StateError: unless families, what their sums are of (grids, features), transforms and
                noise modes are equal.
        """
        mine = {**self._layout(), "incumbents": 0}
        alike = isinstance(other, type(self))
        layout = {**other._layout(), "incumbents": 0} if alike else None
        if mine != layout:
            raise StateError(
                f"a {type(self).__name__} of {mine}",
                f"{layout or type(other).__name__}",
                "Build both streams with the same bounds, options and noise model.",
            )
        for name in ("input_transform", "outcome_transform"):
            if not same(getattr(self, name, None), getattr(other, name, None)):
                raise StateError(
                    f"equal {name}s",
                    "different ones",
                    "Hand both streams one transform in eval mode.",
                )
        self._wholly(lambda: self._add(other))
        return self

    def _add(self, other: StreamingGP) -> None:
        n, others = self.num_observed, other.num_observed
        theirs = moved(other.held(), self.get_buffer("_noise_sum").device)
        self.hold("state", self.held().merged_at(theirs, self._undo, n, others))
        self._add_books(other)
