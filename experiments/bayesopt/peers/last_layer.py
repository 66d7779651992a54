"""A network with a Bayesian last layer, by the package ``vbll``, and Thompson sampling.

[VBLL] J. Harrison, J. Willes, J. Snoek. Variational Bayesian Last Layers. ICLR 2024.
[Brunzema] P. Brunzema, M. Jordahn, J. Willes, S. Trimpe, J. Snoek, J. Harrison. Bayesian
    Optimization via Continual Variational Last Layer Training. ICLR 2025.
"""

from collections.abc import Callable

import torch
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.deterministic import GenericDeterministicModel
from torch import Tensor, nn

from bo_stream.campaign.proposing.proposals import Optimiser
from experiments.bayesopt.peers.modelled import ModelPeer
from experiments.bayesopt.peers.peer import needed


class LastLayer(ModelPeer):
    """Two hidden layers and a variational Bayesian last layer [VBLL], trained on all rows.

    After the first outcomes it is trained at length, after every later batch it goes on from where
    it was. A batch maximises so many draws of the last layer, which are functions in closed form
    [Brunzema]. Outcomes are standardised by those of the initial design. Recommends the maximiser
    of the predictive mean.
    ``first`` and ``later`` are the steps of AdamW after the first outcomes and after later ones.
    """

    packages = ("vbll",)

    def __init__(
        self,
        bounds: Tensor,
        seed: int = 0,
        *,
        width: int = 64,
        first: int = 500,
        later: int = 50,
        rate: float = 1e-2,
        parameterization: str = "dense",
        optimiser: Optimiser | None = None,
    ) -> None:
        super().__init__(bounds, seed, optimiser=optimiser)
        self._vbll = needed("vbll")
        self.first, self.later, self.rate = first, later, rate
        with self._drawing():
            self._body = nn.Sequential(
                *(nn.Linear(self.dim, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
            ).double()
            self._head = self._vbll.Regression(width, 1, 1.0, parameterization, wishart_scale=0.1)
            self._head.double()
        self._centre, self._scale = 0.0, 1.0

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        steps = self.later
        if self._model is None:
            steps = self.first
            spread = float(Y.std()) if len(Y) > 1 else 0.0
            self._centre, self._scale = float(Y.mean()), spread if spread > 0.0 else 1.0
        self._train(steps)
        self._model = GenericDeterministicModel(self._function(self._head.W().mean.detach()))

    def _propose(self, q: int) -> Tensor:
        draws = [self._function(self._head.W().sample()) for _ in range(q)]
        return torch.cat(
            [self._searched(PosteriorMean(GenericDeterministicModel(f)), 1) for f in draws]
        )

    # -- pieces ----------------------------------------------------------------------------------

    def _train(self, steps: int) -> None:
        """Climb the evidence bound, all rows in every step."""
        Y = (self.Y - self._centre) / self._scale
        Z = self._units(self.X)
        self._head.regularization_weight = 1.0 / len(Y)
        body, head = list(self._body.parameters()), list(self._head.parameters())
        groups = [{"params": body, "weight_decay": 1e-4}, {"params": head, "weight_decay": 0.0}]
        adam = torch.optim.AdamW(groups, lr=self.rate)
        for _ in range(steps):
            adam.zero_grad()
            self._head(self._body(Z)).train_loss_fn(Y).backward()
            nn.utils.clip_grad_norm_([*body, *head], 1.0)
            adam.step()

    def _function(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """The function with these weights of the last layer, ``1 x width``."""
        return lambda X: self._centre + self._scale * self._body(self._units(X)) @ weights.mT

    def _units(self, X: Tensor) -> Tensor:
        """Points in the box, -1 to 1."""
        low, high = self.bounds
        return 2.0 * (X - low) / (high - low) - 1.0
