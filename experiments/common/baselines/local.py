"""Local GPs: small exact GPs side by side, each of the rows of one region.

[Local] Nguyen-Tuong, Seeger, Peters 2009, Model Learning with Local Gaussian Process Regression.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.errors import InputError, StateError
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.modules import learned
from experiments.common.baselines.surrogates import observations


@dataclass(frozen=True, eq=False)
class Expert:
    """The rows of one region, ``k x d`` and ``k x 1``, and their GP once it was asked for."""

    X: Tensor
    Y: Tensor
    model: ExactGP | None = None

    @property
    def centre(self) -> Tensor:
        """Mean of its inputs, ``d``."""
        return self.X.mean(0)


class LocalGPs(Baseline):
    """Exact GPs of at most ``cap`` rows; a row goes to the expert whose centre is nearest to it.

    An expert that would have more is cut in two at the median of its longest axis, in units of the
    lengthscales. Predictions mix the nearest experts, weighted by ``exp(-distance^2 / 2)`` of their
    centres, point by point: there is no joint distribution of several points. Hyperparameters are
    those of greatest evidence of at most 600 rows of the first batch, the same for all.
    """

    alone = "local GPs, whose experts know nothing of each other"

    def __init__(self, cap: int = 256, neighbours: int = 3, seed: int = 0) -> None:
        super().__init__()
        for name, value, least in (("cap", cap, 2), ("neighbours", neighbours, 1)):
            if value < least:
                raise InputError(f"{name} of {least} or more", f"{value}", "Correct it.")
        self.cap, self.neighbours, self.seed = cap, neighbours, seed
        self.experts: list[Expert] = []
        self._modules: dict[str, Any] = {}

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        if not self.experts:
            self._modules = learned(X, Y, self.seed)
            self.experts = self._cut(Expert(X, Y))
        else:
            nearest = self._distances(X).argmin(1)
            grown: list[Expert] = []
            for k, expert in enumerate(self.experts):
                mine = nearest == k
                if mine.any():
                    X_k, Y_k = torch.cat([expert.X, X[mine]]), torch.cat([expert.Y, Y[mine]])
                    grown += self._cut(Expert(X_k, Y_k))
                else:
                    grown.append(expert)
            self.experts = grown
        self.experts = [self._fitted(expert) for expert in self.experts]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations: those of the mixture."""
        if not self.experts:
            raise StateError("rows", "none so far", "Call observe first.")
        count = min(self.neighbours, len(self.experts))
        square, index = self._distances(X).square().topk(count, largest=False)
        weight = torch.zeros(len(X), len(self.experts), dtype=X.dtype)
        weight.scatter_(1, index, torch.softmax(-0.5 * square, -1))
        first, second = torch.zeros_like(X[:, 0]), torch.zeros_like(X[:, 0])
        for k, expert in enumerate(self.experts):
            near = weight[:, k] > 0.0
            if expert.model is not None and near.any():
                mean, variance = observations(expert.model, X[near])
                first[near] += weight[near, k] * mean
                second[near] += weight[near, k] * (variance + mean.square())
        return first, second - first.square()

    def _cut(self, expert: Expert) -> list[Expert]:
        """The expert, or parts of it that have at most `cap` rows."""
        if len(expert.X) <= self.cap:
            return [expert]
        scaled = expert.X / self._lengthscales()
        axis = scaled.std(0).argmax()
        order = scaled[:, axis].argsort(stable=True)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        return [
            part for half in halves for part in self._cut(Expert(expert.X[half], expert.Y[half]))
        ]

    def _fitted(self, expert: Expert) -> Expert:
        if expert.model is not None:
            return expert
        model = ExactGP(expert.X, expert.Y, **copy.deepcopy(self._modules))
        model.process()  # factorised now, on the account of learning
        return Expert(expert.X, expert.Y, model)

    def _distances(self, X: Tensor) -> Tensor:
        """From points to centres, in lengthscales: ``n x experts``."""
        centres = torch.stack([expert.centre for expert in self.experts])
        return torch.cdist(X / self._lengthscales(), centres / self._lengthscales())

    def _lengthscales(self) -> Tensor:
        lengthscale: Tensor = self._modules["covar_module"].base_kernel.lengthscale
        return lengthscale.detach().reshape(-1)
