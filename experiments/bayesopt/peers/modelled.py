"""What peers with a model share: a search by BoTorch, and the maximiser of the posterior mean."""

from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.model import Model
from botorch.optim.optimize import optimize_acqf
from torch import Tensor

from bo_stream.campaign.observations import Observations
from bo_stream.campaign.proposals import Optimiser
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
