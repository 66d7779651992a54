"""Acquisition functions for classifiers: entropy and BALD [Houlsby2011].

References:
    [Houlsby2011] N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel. Bayesian active learning for
        classification and preference learning. arXiv:1112.5745, 2011.
"""

from __future__ import annotations

from typing import cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import UnsupportedError
from bo_stream.likelihoods import Bernoulli
from bo_stream.mathematics.labels import softmax_draws
from bo_stream.surrogates.classifier import DirichletClassifier
from bo_stream.surrogates.counts import CountGP

__all__ = ["BALD", "PredictiveEntropy"]


class PredictiveEntropy(AcquisitionFunction):
    """Entropy of the label in nats; large where classes overlap, even if that is known.

    Args:
        model: The classifier: a `DirichletClassifier`, or a `CountGP` of `Bernoulli` outcomes.
        X_pending: ``n' x d`` points whose labels are pending. The classifier treats them as
            labelled (`believing`), which spreads a batch.
        num_samples: Quasi-random draws of the latent values, the same at every call, so that the
            value is smooth and repeatable.
    """

    def __init__(
        self,
        model: DirichletClassifier | CountGP,
        X_pending: Tensor | None = None,
        num_samples: int = 256,
    ) -> None:
        kind = getattr(model, "likelihood", None)
        if not isinstance(model, DirichletClassifier) and not isinstance(kind, Bernoulli):
            raise UnsupportedError(
                "a DirichletClassifier, or a CountGP of Bernoulli outcomes",
                type(model).__name__,
                "Use max_variance for regression, and NIPV for counts.",
            )
        super().__init__(model=model)
        self.num_samples = num_samples
        self._pending_model: GaussianModel | None = None
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points whose labels are pending."""
        super().set_X_pending(X_pending)
        believed = None if self.X_pending is None else self._classifier.believing(self.X_pending)
        object.__setattr__(self, "_pending_model", believed)  # not registered as a submodule

    @property
    def _classifier(self) -> DirichletClassifier | CountGP:
        return cast("DirichletClassifier | CountGP", self.model)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x 1 x d`` raw points: ``batch_shape``."""
        latent = self._classifier.model if self._pending_model is None else self._pending_model
        f = cast(GPyTorchPosterior, latent.posterior(X))
        mean, variance = f.mean.squeeze(-2), f.variance.squeeze(-2)
        if mean.shape[-1] == 1:  # the logit of two classes
            mean, variance = (torch.cat([torch.zeros_like(t), t], -1) for t in (mean, variance))
        return self._value(softmax_draws(mean, variance, self.num_samples)).to(X)

    def _value(self, p: Tensor) -> Tensor:
        """The value from draws of probabilities, ``S x batch_shape x C``: ``batch_shape``."""
        return _entropy(p.mean(0))


class BALD(PredictiveEntropy):
    """Mutual information of a label and the latent functions, in nats [Houlsby2011].

    It is the entropy of the label minus its expected entropy given the latent functions: large
    where these are uncertain, small where classes are known to overlap.

    Args:
        model: The classifier.
        X_pending: ``n' x d`` points whose labels are pending.
        num_samples: Number of draws of the latent values.

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
