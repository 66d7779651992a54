"""Predictions of a surrogate of counts: latent values, responses, future outcomes."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.streaming_gp import PredictiveScore
from bo_stream.mathematics.sites.batch import batch_evidence, batch_sites
from bo_stream.mathematics.sites.predictions import OutcomePrediction, Response
from bo_stream.mathematics.sites.quadrature import expected
from bo_stream.surrogates.count_sites import RefreshedSites

__all__ = ["CountPredictions"]

DRAWS = 64
"""Draws of counts for the expectation of a score."""


class CountPredictions(RefreshedSites):
    """What is predicted from a surrogate of latent values and its nugget."""

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """The joint posterior of the smooth latent surface f: logits or logarithms.

        Args:
            X: ``batch_shape x q x d`` raw points.
            output_indices: ``[0]`` or None.
            observation_noise: True adds `future_noise` of an outcome of typical size. A Tensor
                ``batch_shape x q x 1`` is added as given.
            posterior_transform: Applied last.
        """
        if observation_noise is True:
            observation_noise = self.future_noise(X)
        return self.model.posterior(X, output_indices, observation_noise, posterior_transform)

    def _sized(self, size: Any, like: Tensor) -> Tensor:
        """Sizes of future outcomes; by default the mean of those seen, or one."""
        if size is None:
            count = max(1, self.num_observed)
            total = self._state.totals[1] / count
            return total if self.num_observed else torch.ones_like(total)
        return self.likelihood.read_size(size, like.new_zeros(like.shape[-2], 1))

    def future_noise(self, X: Tensor, trials: Any = None) -> Tensor:
        """The noise with which a future outcome observes f, nugget included (MATHS 11.6).

        It is differentiable in the points.

        Args:
            X: ``batch_shape x q x d`` raw points.
            trials: ``q`` trials or exposures, or one number; by default the mean of those seen.

        Returns:
            ``batch_shape x q x 1``.
        """
        size = self._sized(trials, X).unsqueeze(-1)
        size = self.likelihood.outcome_size(size, self._state.nugget)
        point, nugget = self.model.process().at(self.model.transformed(X)), self._extra()
        variance = point.variance()[..., 0, :] + nugget

        def information(g: Tensor) -> Tensor:
            return self.likelihood.information(g, size)

        return (1.0 / expected(information, point.mean[..., 0, :], variance) + nugget).unsqueeze(-1)

    def response_weights(self, X: Tensor) -> Tensor:
        """Squared mean slopes of the response in f at ``n x d`` raw points, ``n`` (MATHS 11.6).

        As weights of `acquisitions.NIPV` on `model`, they make it the integrated variance of the
        response instead of that of the latent value.
        """
        with torch.no_grad():
            m, v = self._marginals(self.model.transformed(X))
            return expected(self.likelihood.response_slope, m, v + self._extra()).square()

    def believing(self, X: Tensor, trials: Any = None) -> GaussianModel:
        """The latent surface given outcomes with unchanged means at ``q x d`` pending raw points.

        Args:
            X: The points.
            trials: As for `future_noise`.
        """
        with torch.no_grad():
            mean = cast(GPyTorchPosterior, self.posterior(X)).mean
            return self.model.condition_on_observations(X, mean, self.future_noise(X, trials))

    def fantasize(self, X: Tensor, sampler: MCSampler, trials: Any = None) -> GaussianModel:
        """Sample future outcomes' targets and condition on them, with exact gradients to X.

        Args:
            X: ``batch_shape x q x d`` raw points.
            sampler: Draws the fantasies.
            trials: As for `future_noise`.
        """
        return self.model.fantasize(X, sampler, self.future_noise(X, trials))

    # -- predictions of outcomes -----------------------------------------------------------------

    def response(self, X: Tensor, *, nugget: bool = True) -> Response:
        """The prevalence, or the rate of one unit of exposure, at ``n x d`` raw points.

        Args:
            X: The points.
            nugget: True: the response *here*, at a site that may be surveyed, which has a nugget of
                its own. False: that of the *smooth surface*.
        """
        with torch.no_grad():
            m, v = self._marginals(self.model.transformed(X))
        return Response(self.likelihood, m, v + self._extra() if nugget else v)

    def predict_counts(self, X: Tensor, trials: Any = None) -> OutcomePrediction:
        """The distribution of a future outcome at each of ``n x d`` raw points.

        Args:
            X: The points.
            trials: ``n`` trials or exposures, or one number; None for ones.
        """
        self._check_points(X)
        size = self.likelihood.read_size(trials, X)
        size = self.likelihood.outcome_size(size, self._state.nugget)
        here = self.response(X)
        return OutcomePrediction(self.likelihood, here.latent_mean, here.latent_variance, size)

    def log_predictive(self, X: Tensor, k: Any, trials: Any = None) -> Tensor:
        """Joint log probability of new outcomes before they are absorbed, 0-dim, by EP: O(n^3)."""
        self._check_points(X)
        y, size = self.likelihood.read(k, trials, X)
        size = self.likelihood.outcome_size(size, self._state.nugget)
        with torch.no_grad():
            prior = self._joint(self.model._transformed(X))
            sites = batch_sites(self.likelihood, *prior, y, size)
            return batch_evidence(self.likelihood, *prior, y, size, sites)[0]

    def predicted_mean(self, X: Tensor, trials: Any = None) -> Tensor:
        """Expected counts at ``n x d`` raw points, ``n``."""
        return self.predict_counts(X, trials).mean

    def predictive_score(self, X: Tensor, k: Any, trials: Any = None) -> PredictiveScore:
        """`log_predictive` of the counts.

        The shortfall is summed over the counts one at a time, with their correlations left out;
        expectations are averages over draws.
        """
        density = self.log_predictive(X, k, trials)
        future = self.predict_counts(X, trials)
        alone = torch.stack([future.log_prob(row) for row in future.sample(DRAWS)])
        gaps = alone.mean(0) - future.log_prob(k)
        return PredictiveScore(density, gaps.sum(), alone.var(0).sum())
