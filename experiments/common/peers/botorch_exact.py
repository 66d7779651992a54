"""Plain BoTorch: an exact GP fitted anew after every batch, and its default acquisition."""

from __future__ import annotations

from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.transforms.input import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from experiments.common.peers.modelled import ModelPeer

__all__ = ["BoTorchExact"]


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
