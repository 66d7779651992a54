"""Which point to have labelled next: entropy, and the information that a label has [Houlsby2011].

References:
    [Houlsby2011] N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel. Bayesian active learning for
        classification and preference learning. arXiv:1112.5745, 2011.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.classification.softmax import normal_draws, softmax_draws
from bo_stream.surrogates.classifier import DirichletClassifier

__all__ = ["BALD", "PredictiveEntropy"]


class LabelEntropy(AcquisitionFunction):
    """A value of one point, from draws of its class probabilities.

    Args:
        model: The classifier.
        X_pending: ``n' x d`` points whose labels are on their way: the classifier is taken as
            believing in them (`DirichletClassifier.believing`), which spreads a batch.
        num_samples: Quasi-random draws of the latent values; the same at every call, so that the
            value is smooth and repeatable.
    """

    def __init__(
        self, model: DirichletClassifier, X_pending: Tensor | None = None, num_samples: int = 256
    ) -> None:
        if not isinstance(model, DirichletClassifier):
            raise UnsupportedError(
                "a DirichletClassifier", type(model).__name__, "Use max_variance for regression."
            )
        super().__init__(model=model)
        self.num_samples = num_samples
        self._law: BoTorchModel | None = None
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Points whose labels are on their way."""
        super().set_X_pending(X_pending)
        believed = None if self.X_pending is None else self._classifier.believing(self.X_pending)
        object.__setattr__(self, "_law", believed)  # derived, and no part of the module

    @property
    def _classifier(self) -> DirichletClassifier:
        return cast(DirichletClassifier, self.model)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x 1 x d`` raw points: ``batch_shape``."""
        law = self._classifier.model if self._law is None else self._law
        f = cast(GPyTorchPosterior, law.posterior(X))
        Z = normal_draws(self.num_samples, self._classifier.num_outputs, f.mean)
        return self._value(softmax_draws(f.mean.squeeze(-2), f.variance.squeeze(-2), Z)).to(X)

    @abstractmethod
    def _value(self, p: Tensor) -> Tensor:
        """Of draws of probabilities, ``S x batch_shape x C``: ``batch_shape``."""


class PredictiveEntropy(LabelEntropy):
    """Entropy of the label in nats: largest where classes meet, however well that is known.

    Arguments are those of `BALD`.
    """

    def _value(self, p: Tensor) -> Tensor:
        return _entropy(p.mean(0))


class BALD(LabelEntropy):
    """Information that a label has about the latent functions, in nats [Houlsby2011].

    The entropy of the label less what is left of it, on average, once the latent functions are
    known: large where they are unknown, small where classes are known to mix.

    Args:
        model: The classifier.
        X_pending: ``n' x d`` points whose labels are on their way.
        num_samples: Draws of the latent values.

    Example:
        >>> from acquisitions import select_from_pool
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = DirichletClassifier(X, (X[:, 0] > 0.5).long(), bounds=box)
        >>> len(select_from_pool(BALD(model), torch.rand(100, 2, dtype=torch.double), q=3)[0])
        3
    """

    def _value(self, p: Tensor) -> Tensor:
        return _entropy(p.mean(0)) - _entropy(p).mean(0)


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)
