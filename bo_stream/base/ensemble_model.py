"""A surrogate under several kernels, as BoTorch's models of this kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Size, Tensor, nn

from bo_stream.base.distribution import ScaleFreeNormal
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError

__all__ = ["EnsembleModel"]


class EnsembleModel(Model):
    """A mixture of surrogates of one output, over whose members BoTorch's acquisitions average.

    BoTorch's mixtures have equal weights: a member of larger weight occurs several times.

    Args:
        members: Surrogates, frozen.
        counts: How often each occurs.
    """

    _is_ensemble = True
    places: Tensor

    def __init__(self, members: Sequence[StreamingGP], counts: Sequence[int]) -> None:
        super().__init__()
        if members[0].num_outputs != 1:
            raise UnsupportedError(
                "a surrogate of one output", f"{members[0].num_outputs}", "Select one output."
            )
        self.members = nn.ModuleList(members)
        self.register_buffer(
            "places", torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts)))
        )

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @property
    def batch_shape(self) -> Size:
        """The number of members, as often as they occur."""
        return self.places.shape

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """The posterior mixture at raw points ``batch_shape x q x d``, members as dimension -3."""
        parts = [
            cast(GPyTorchPosterior, member.posterior(X, output_indices, observation_noise))
            for member in cast("Sequence[StreamingGP]", self.members)
        ]
        means = torch.stack([part.distribution.mean for part in parts], -2)
        covariances = torch.stack([part.distribution.covariance_matrix for part in parts], -3)
        posterior = GaussianMixturePosterior(
            ScaleFreeNormal(means[..., self.places, :], covariances[..., self.places, :, :])
        )
        return posterior if posterior_transform is None else posterior_transform(posterior, X=X)
