"""The sites of held outcomes: computed again under the posterior of all others (MATHS 11.3)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from bo_stream.base.options import whole_number
from bo_stream.base.stream import all_or_nothing
from bo_stream.errors import UnsupportedError
from bo_stream.surrogates.count_state import SiteStream

__all__ = ["RefreshedSites"]

CHUNK = 4096
"""Points whose marginals are computed at a time."""
LEAST_VARIANCE = 1e-14
SWEEPS = 2


class RefreshedSites(SiteStream):
    """Marginals of latent values, and sweeps over the sites of held outcomes."""

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def _check_points(self, X: Tensor) -> None:
        self.model._check_points(X)

    def _extra(self) -> Tensor:
        """The variance that the nugget adds to a latent value, 0-dim."""
        return self.likelihood.latent(self._state.nugget)

    def _joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (``n``) and covariance of g at transformed points."""
        point = self.model.process().at(X)
        S = point.covariance(point)[0] if len(X) > 1 else point.variance()
        return point.mean[0], S + self._extra() * torch.eye(len(X)).to(S)

    def _marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of f at transformed points, each ``n``."""
        made = [self.model.process().at(part) for part in X.split(CHUNK)]
        v = torch.cat([point.variance()[0] for point in made]).clamp_min(LEAST_VARIANCE)
        return torch.cat([point.mean[0] for point in made]), v

    def _held_marginals(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor]:
        """Means, variances and prior variances of f at held points."""
        X = self._state.held.X[rows]
        prior = cast(Tensor, self.model.covar_module(X, diag=True)).detach().double()
        return *self._marginals(X), prior.reshape(-1)

    def _held_corrections(self, rows: slice = slice(None)) -> Tensor:
        """What held outcomes add to the evidence of their targets, 0-dim."""
        state = self._state
        if not len(state.held):
            return state.late * 0.0
        given = (*self._held_marginals(rows), state.nugget)
        made: Tensor = state.held.part(rows).corrections(self.likelihood, *given)
        return made

    @property
    def refreshable(self) -> bool:
        """Whether targets can be chosen again."""
        state = self._state
        all_held = int(state.count) == len(state.held)
        return self._most_held() > 0 and (self.model.promises.additive or all_held)

    def refresh(self, sweeps: int = SWEEPS) -> float:
        """Choose the targets of the held outcomes again, under the posterior of all others.

        Args:
            sweeps: Number of sweeps; with a learned nugget each also moves the nugget.

        Returns:
            The largest move of a posterior mean by the last sweep, in standard deviations.

        Raises:
            UnsupportedError: if the surrogate's state depends on order, or not all is held.
        """
        whole_number("sweeps", sweeps, 1)
        if not self.refreshable:
            raise UnsupportedError(
                "a surrogate whose targets can be chosen again: wiski, hsgp, exact, or node_wiski "
                "with all outcomes held",
                f"{type(self.model).__name__} after {self.num_observed} outcomes",
                "It takes one pass; use one of those, or a larger `opening`.",
            )
        learns = self._learns_nugget
        moves = [self._sweep(learns) for _ in range(sweeps)] if len(self._state.held) else [0.0]
        return moves[-1]

    def _hyperparameters_loaded(self) -> None:
        if len(self._state.held) and self.refreshable:
            for _ in range(SWEEPS):
                self._sweep(learns=False)

    @all_or_nothing
    def _sweep(self, learns: bool) -> float:
        """One sweep; ``learns`` says whether the nugget takes a step, too."""
        state = self._state
        m, v, prior = self._held_marginals()
        nugget = state.nugget
        if learns:
            nugget = state.held.next_nugget(self.likelihood, m, v, nugget)
        held, moved = state.held.refreshed(self.likelihood, m, v, prior, nugget)
        self._change(held=held, nugget=nugget)
        self._rebuild()
        return moved

    @property
    def _learns_nugget(self) -> bool:
        return self.likelihood.nugget == "learn" and self.informative

    @property
    def _holds_all(self) -> bool:
        """Whether the sites of all outcomes can be computed again."""
        return self._most_held() > 0 and len(self._state.held) == self.num_observed

    @property
    def informative(self) -> bool:
        """Whether the outcomes determine hyperparameters: neither all zero nor all positive."""
        return self.likelihood.informative(*self._state.totals.tolist())

    @torch.no_grad()
    def log_evidence(self) -> Tensor:
        """EP's log evidence of all outcomes, 0-dim; that of later ones is as of their arrival."""
        total = self.model.log_evidence() + self._state.late
        return total + self._held_corrections()
