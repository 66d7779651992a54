"""Streaming surrogates as a study streams data into them, and twins of their models."""

import copy
from typing import Any

from torch import Tensor

from bo_stream import surrogate
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.scores import marginals, noise_variance
from experiments.common.baselines.baseline import Baseline, trained
from experiments.common.baselines.modules import modules
from experiments.common.kernels import RAW


class Surrogate(Baseline):
    """A family of bo_stream, fitted after every batch with at most so many evaluations of its
    objective; None: until nothing is gained; 0: no fit but the family's own.
    """

    def __init__(self, name: str, options: dict[str, Any], evaluations: int | None = None) -> None:
        super().__init__()
        self.name, self.options, self.evaluations = name, options, evaluations
        self._model: StreamingGP | None = None

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return observations(self.model(), X)

    def model(self) -> StreamingGP:
        """The surrogate."""
        return trained(self._model)

    def _absorb(self, X: Tensor, Y: Tensor) -> None:
        if self._model is None:
            own = modules(X.shape[1]) | self.options
            self._model = surrogate(self.name, X[:0], Y[:0], bounds=None, **own)
        self._model.observe(X, Y)
        if self.evaluations is None or self.evaluations > 0:
            self._model.fit(self.evaluations)


def twin(
    name: str, X: Tensor, Y: Tensor, of: StreamingGP, options: dict[str, Any] | None = None
) -> StreamingGP:
    """A surrogate of another family with the same hyperparameters, given all rows at once.

    The rows are in the units of the state of the model whose hyperparameters it has.
    """
    parts = ("covar_module", "mean_module", "likelihood")
    own = {part: copy.deepcopy(getattr(of, part)) for part in parts}
    return surrogate(name, X, Y, bounds=None, **RAW, **own, **(options or {}))


def observations(model: StreamingGP, X: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of observations at ``n x d`` points by a surrogate, ``n`` each."""
    mean, variance = marginals(model.eval(), X)
    return mean, variance + noise_variance(model).detach()
