"""A trust region that grows with success and shrinks with failure, in BoTorch's primitives.

[TuRBO] D. Eriksson, M. Pearce, J. R. Gardner, R. Turner, M. Poloczek. Scalable Global Optimization
    via Local Bayesian Optimization. NeurIPS 2019.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.generation.sampling import MaxPosteriorSampling
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from experiments.bayesopt.peers.modelled import best_mean, means_at
from experiments.bayesopt.peers.peer import Peer

FIRST, LEAST, MOST = 0.8, 0.5**7, 1.6
"""Sides of the trust region, as shares of the box: to begin with, before a restart, at most."""
SUCCESSES = 3
"""Batches in a row that improve before the region doubles."""
GAIN = 1e-3
"""Improvements over less than this share of the best value do not count."""


@dataclass
class Region:
    """A trust region: rows of the peer that came before it, its side as a share of the box, and how
    many batches in a row did, or did not, improve on the best value.
    """

    begin: int
    side: float = FIRST
    successes: int = 0
    failures: int = 0


class Kept(NamedTuple):
    """The recommendation of a region, ``1 x d``, and the posterior mean there."""

    X: Tensor
    mean: float


class TuRBO(Peer):
    """TuRBO-1: a local exact GP, Thompson sampling over perturbed Sobol points in its region.

    The region is centred at the observed point of the highest posterior mean, its sides scaled by
    the lengthscales. A batch is a success if its best value observed, noise included, beats all
    before it in the region. When the region has shrunk to nothing, another begins with a Sobol
    design of its own and forgets all earlier data. Recommends the maximiser of the posterior mean
    over the region and its points; of several regions, that with the highest mean.
    ``candidates`` are the points over which a draw of the posterior is maximised, ``design`` those
    that a region after the first begins with; None: as many as the first had.
    """

    learning = "fit"

    def __init__(
        self, bounds: Tensor, seed: int = 0, *, candidates: int = 2000, design: int | None = None
    ) -> None:
        super().__init__(bounds, seed)
        self.candidates, self.design = candidates, design
        self._region = Region(0)
        self._design = self.bounds.new_empty(0, self.dim)
        self._model: Any = None
        self._closed: list[Kept] = []

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        region, had = self._region, len(self.X) - len(X)
        if self.design is None:
            self.design = len(X)
        if self._model is not None:
            self._count(region, had, Y)
            if region.side < LEAST:
                self._restart()
                return
        if len(self.X) - region.begin >= 2 and not len(self._design):
            self._model = self._fit(self.X[region.begin :], self.Y[region.begin :])

    def _propose(self, q: int) -> Tensor:
        if self._model is None:
            return self._begun(q)
        draws = MaxPosteriorSampling(self._model, replacement=False)
        with torch.no_grad():
            return draws(self._perturbed(), num_samples=q)

    def _best(self) -> Tensor:
        kept = [*self._closed, *([self._kept()] if self._model is not None else [])]
        return max(kept, key=lambda k: k.mean).X if kept else super()._best()

    # -- pieces ----------------------------------------------------------------------------------

    def _count(self, region: Region, had: int, Y: Tensor) -> None:
        """Count a success or a failure, and change the region's size where that is due."""
        best = float(self.Y[region.begin : had].max())
        if float(Y.max()) > best + GAIN * abs(best):
            region.successes, region.failures = region.successes + 1, 0
        else:
            region.successes, region.failures = 0, region.failures + 1
        patience = math.ceil(max(4.0, float(self.dim)) / len(Y))
        if region.successes >= SUCCESSES:
            region.side, region.successes = min(2.0 * region.side, MOST), 0
        elif region.failures >= patience:
            region.side, region.failures = region.side / 2.0, 0

    def _restart(self) -> None:
        """Close the region; another begins with a design that is asked for next."""
        self._closed.append(self._kept())
        self._region, self._model = Region(len(self.X)), None
        size = max(2, self.design or 2)
        turns = self.seed + 1_000_003 * len(self._closed)
        self._design = draw_sobol_samples(self.bounds, n=size, q=1, seed=turns).squeeze(-2)

    def _begun(self, q: int) -> Tensor:
        """Points of a region's design, and random ones where these are not enough."""
        low, high = self.bounds
        batch, self._design = self._design[:q], self._design[q:]
        more = low + (high - low) * torch.rand(q - len(batch), self.dim, dtype=low.dtype)
        return torch.cat([batch, more])

    def _fit(self, X: Tensor, Y: Tensor) -> SingleTaskGP:
        kernel = MaternKernel(
            nu=2.5, ard_num_dims=self.dim, lengthscale_constraint=Interval(0.005, 4.0)
        )
        scale = Normalize(self.dim, bounds=self.bounds)
        model = SingleTaskGP(X, Y, covar_module=ScaleKernel(kernel), input_transform=scale)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def _centre(self) -> Tensor:
        """The point of the region that was observed and has the highest posterior mean, ``d``."""
        X = self.X[self._region.begin :]
        return X[means_at(self._model, X).argmax()]

    @torch.no_grad()
    def _box(self) -> Tensor:
        """The region, ``2 x d``, around its centre."""
        centre, (low, high) = self._centre(), self.bounds
        lengths = self._model.covar_module.base_kernel.lengthscale[0].detach()
        shares = lengths / lengths.log().mean().exp()  # the region's volume stays side^d
        half = 0.5 * self._region.side * shares * (high - low)
        return torch.stack([(centre - half).maximum(low), (centre + half).minimum(high)])

    def _perturbed(self) -> Tensor:
        """Candidates: the centre with some of its coordinates replaced by those of Sobol points."""
        seed = int(torch.randint(2**31, ()))
        sobol = draw_sobol_samples(self._box(), n=self.candidates, q=1, seed=seed).squeeze(-2)
        mask = torch.rand(self.candidates, self.dim) < min(20.0 / self.dim, 1.0)
        one = torch.randint(self.dim, (self.candidates,))
        mask[torch.arange(self.candidates), one] = True  # never the centre itself
        return torch.where(mask, sobol, self._centre())

    def _kept(self) -> Kept:
        X, mean = best_mean(self._model, self._box(), self.X[self._region.begin :])
        return Kept(X, mean)
