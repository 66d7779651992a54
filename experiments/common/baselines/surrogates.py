"""The families of bo_stream, as a study streams data into them, and twins of their models."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from bo_stream import surrogate
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError
from bo_stream.scores import marginals, noise_variance
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.modules import modules
from experiments.common.kernels import RAW

__all__ = ["Surrogate", "observations", "twin"]


class Surrogate(Baseline):
    """A family of bo_stream, fitted after every batch.

    Args:
        name: Of the family.
        options: Of the family.
        evaluations: Most evaluations of its objective in a fit; None: until nothing is gained;
            0: no fit but the family's own.
    """

    def __init__(self, name: str, options: dict[str, Any], evaluations: int | None = None) -> None:
        super().__init__()
        self.name, self.options, self.evaluations = name, options, evaluations
        self._model: StreamingGP | None = None

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return observations(self.model(), X)

    def model(self) -> StreamingGP:
        """The surrogate.

        Raises:
            StateError: before the first rows.
        """
        if self._model is None:
            raise StateError("rows", "none so far", "Call observe first.")
        return self._model

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        if self._model is None:
            given = modules(X.shape[1]) | self.options
            self._model = surrogate(self.name, X[:0], Y[:0], bounds=None, **given)
        self._model.observe(X, Y)
        if self.evaluations is None or self.evaluations > 0:
            self._model.fit(self.evaluations)


def twin(
    name: str, X: Tensor, Y: Tensor, of: StreamingGP, options: dict[str, Any] | None = None
) -> StreamingGP:
    """A surrogate of another family with the same hyperparameters, given all rows at once.

    Args:
        name: Of the family.
        X: ``n x d`` rows, in the units of the study, which are those of ``of``'s state.
        Y: ``n x 1``.
        of: Whose kernel, mean and likelihood it copies.
        options: Of the family.
    """
    parts = {"covar_module": of.covar_module, "mean_module": of.mean_module}
    held = {key: copy.deepcopy(part) for key, part in parts.items()}
    likelihood = copy.deepcopy(of.likelihood)
    return surrogate(
        name, X, Y, bounds=None, **RAW, **held, likelihood=likelihood, **(options or {})
    )


def observations(model: StreamingGP, X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of observations at ``n x d`` points by a surrogate, ``n`` each."""
    mean, variance = marginals(model.eval(), X)
    return mean, variance + noise_variance(model).detach()
