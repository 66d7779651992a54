"""Peers with a model: a search by BoTorch, the maximiser of the posterior mean, BoTorch's own."""

import warnings
from functools import partial
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.exceptions.warnings import OptimizationWarning, UserInputWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models.approximate_gp import SingleTaskVariationalGP
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.optim.fit import fit_gpytorch_mll_torch
from botorch.optim.optimize import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor

from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.proposals import Optimiser
from bo_stream.errors import StateError
from experiments.bayesopt.peers.peer import Peer


class ModelPeer(Peer):
    """A peer that maximises acquisition functions of a model of the function.

    It recommends the maximiser of the posterior mean over the box and the points observed, as
    `bo_stream.simulation.BOLoop` does: the climb has the same starting points, and of the points
    observed the best outcomes and the latest are looked at.
    """

    learning = "fit"

    def __init__(
        self, bounds: Tensor, seed: int = 0, *, optimiser: Optimiser | None = None
    ) -> None:
        super().__init__(bounds, seed)
        self.optimiser = optimiser or Optimiser()
        self._model: Model | None = None

    def _searched(self, acqf: AcquisitionFunction, q: int) -> Tensor:
        """The maximiser of an acquisition function over the box, ``q x d``."""
        how = self.optimiser
        sizes: dict[str, Any] = {"num_restarts": how.num_restarts, "raw_samples": how.raw_samples}
        return optimize_acqf(acqf, self.bounds, q=q, options=dict(how.options or {}), **sizes)[0]

    def _candidates(self) -> Tensor:
        """Points observed among which the best is, a bounded number of them."""
        return Observations(self.X, self.Y).candidates()

    def _fitted(self) -> Model:
        """The model; refused if the last fit failed before there was one."""
        if self._model is None:
            raise StateError("a fitted model", "none", "Call tell first.")
        return self._model

    def _best(self) -> Tensor:
        return best_mean(self._fitted(), self.bounds, self._candidates())[0]


class BoTorchExact(ModelPeer):
    """`SingleTaskGP` with BoTorch's priors, `fit_gpytorch_mll`, `qLogNoisyExpectedImprovement`.

    The model is built and fitted from nothing after every batch, O(n^3) an evaluation. Recommends
    the maximiser of the posterior mean.
    """

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        scale = Normalize(self.dim, bounds=self.bounds)
        model = SingleTaskGP(self.X, self.Y, input_transform=scale)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self._model = model

    def _propose(self, q: int) -> Tensor:
        acqf = qLogNoisyExpectedImprovement(self._fitted(), self.X, prune_baseline=True)
        return self._searched(acqf, q)


class BoTorchSparse(ModelPeer):
    """`SingleTaskVariationalGP`, the evidence bound climbed by Adam, `qLogExpectedImprovement`.

    Model and inducing points (BoTorch's greedy choice, then learned) are new after every batch, and
    all rows are taken in every step of Adam: O(n m^2) a step. Improvement is over the best
    posterior mean at a point observed. Recommends the maximiser of the posterior mean.
    There are fewer steps of Adam where BoTorch's criterion stops it.
    """

    def __init__(
        self,
        bounds: Tensor,
        seed: int = 0,
        *,
        inducing: int = 64,
        steps: int = 200,
        rate: float = 0.05,
        optimiser: Optimiser | None = None,
    ) -> None:
        super().__init__(bounds, seed, optimiser=optimiser)
        self.inducing, self.steps, self.rate = inducing, steps, rate

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        with warnings.catch_warnings():
            # All rows are taken at once, so that transforms see the same data in every step; and
            # that the steps are used up is meant.
            warnings.simplefilter("ignore", UserInputWarning)
            warnings.simplefilter("ignore", OptimizationWarning)
            model = SingleTaskVariationalGP(
                self.X,
                self.Y,
                inducing_points=min(self.inducing, len(self.X)),
                input_transform=Normalize(self.dim, bounds=self.bounds),
                outcome_transform=Standardize(m=1),
            )
            bound = VariationalELBO(model.likelihood, model.model, num_data=len(self.X))
            adam = partial(torch.optim.Adam, lr=self.rate)
            how: dict[str, Any] = {"step_limit": self.steps, "optimizer": adam}
            fit_gpytorch_mll(bound, optimizer=fit_gpytorch_mll_torch, optimizer_kwargs=how)
        self._model = model

    def _propose(self, q: int) -> Tensor:
        best = means_at(self._fitted(), self._candidates()).max()
        return self._searched(qLogExpectedImprovement(self._fitted(), best_f=best), q)


def best_mean(model: Model, bounds: Tensor, points: Tensor) -> tuple[Tensor, float]:
    """The maximiser of a posterior mean over a box and ``n x d`` points, and the mean there."""
    acqf = PosteriorMean(model)
    X, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=128)
    means = means_at(model, points)
    best = means.argmax()
    if value is not None and float(value) > float(means[best]):
        return X, float(value)
    return points[best].unsqueeze(0), float(means[best])


@torch.no_grad()
def means_at(model: Model, points: Tensor) -> Tensor:
    """Posterior means at ``n x d`` points, ``n``."""
    posterior: Any = model.posterior(points)
    return posterior.mean.squeeze(-1)
