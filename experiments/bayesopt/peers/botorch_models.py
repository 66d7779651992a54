"""BoTorch's own models, fitted anew after every batch, with its acquisition functions."""

import warnings
from functools import partial
from typing import Any

import torch
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.exceptions.warnings import OptimizationWarning, UserInputWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models.approximate_gp import SingleTaskVariationalGP
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.optim.fit import fit_gpytorch_mll_torch
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor

from bo_stream.campaign.proposals import Optimiser
from experiments.bayesopt.peers.modelled import ModelPeer, means_at


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
