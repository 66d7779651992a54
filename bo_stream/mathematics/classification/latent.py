"""Predictions from latent Gaussian functions, one for each class (MATHS 2.6)."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.classification.labels import Label, tensor_or_list
from bo_stream.mathematics.classification.softmax import normal_draws, softmax_draws

__all__ = ["LatentClasses"]

AT_ONCE = 2**21
"""Numbers that a sampled softmax holds at a time."""


class LatentClasses(Model):
    """Base of classifiers: predictions of a model with one output for each class."""

    model: Any
    _classes: list[Label]

    @property
    def classes(self) -> list[Label]:
        """The classes, in the order of the outputs and of the columns of probabilities."""
        return list(self._classes)

    @property
    def num_outputs(self) -> int:
        """The number of classes."""
        return len(self._classes)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """The joint posterior of the latent functions, independent across the C classes.

        Args:
            X: ``batch_shape x q x d`` raw points.
            output_indices: Classes to return, all by default.
            observation_noise: As for the surrogate, on transformed labels.
            posterior_transform: Applied last.
        """
        return self.model.posterior(X, output_indices, observation_noise, posterior_transform)

    def latent(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the latent functions at ``batch_shape x q x d``, each
        ``batch_shape x q x C``.
        """
        posterior = cast(GPyTorchPosterior, self.posterior(X))
        return posterior.mean, posterior.variance

    def predict_proba(self, X: Tensor, num_samples: int = 512) -> Tensor:
        """Probabilities of the classes at ``n x d`` raw points: ``n x C``, in order of `classes`.

        Means over quasi-random draws of the latent values, which are the same at every call. O(n C
        num_samples) beyond the posterior.
        """
        if type(num_samples) is not int or num_samples < 1:
            raise InputError("num_samples >= 1", repr(num_samples), "512 is plenty.")
        self.model.transformed(X)  # or refuse
        Z = normal_draws(num_samples, len(self._classes), X)
        step = max(1, AT_ONCE // Z.numel())
        with torch.no_grad():
            parts = [softmax_draws(*self.latent(x), Z).mean(0) for x in X.split(step, -2)]
        return torch.cat(parts, -2)

    def predict(self, X: Tensor) -> Tensor | list[str]:
        """The class of largest latent mean at ``n x d`` raw points: a tensor of integers, or a list
        of strings.
        """
        with torch.no_grad():
            best = self.latent(X)[0].argmax(-1).tolist()
        return tensor_or_list([self._classes[k] for k in best])
