"""Models composed of surrogates, which share one lock and change together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from torch import Size, Tensor

from bo_stream.base import checkpoint
from bo_stream.base.gaussian_model import missing
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["CompositeModel"]

LEARN = "To learn hyperparameters, call `fit`; to predict, `posterior`."


class CompositeModel(checkpoint.Saveable, Model):
    """Base of models that predict from the posterior of a surrogate of their own.

    Attributes:
        model: The surrogate.
    """

    model: StreamingGP

    def _streams(self) -> list[StreamingGP]:
        """All surrogates."""
        return [self.model]

    def _share_lock(self) -> None:
        for stream in self._streams():
            stream._lock = self._lock

    def __getattr__(self, name: str) -> Any:
        if name in ("train_inputs", "train_targets"):
            raise missing(name, LEARN)
        return super().__getattr__(name)

    def forward(self, X: Tensor) -> NoReturn:
        """Refuse: `posterior` predicts.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a posterior to be asked for", "a call of the model", LEARN)

    @property
    def batch_shape(self) -> Size:
        """Empty."""
        return Size()

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the surrogate."""
        return self.model.num_outputs

    @property
    def num_observed(self) -> int:
        """Number of observations absorbed."""
        return self.model.num_observed

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """The joint posterior of the latent functions, independent across outputs.

        Args:
            X: ``batch_shape x q x d`` raw points.
            output_indices: Outputs to return, all by default.
            observation_noise: True adds the noise of a typical future outcome, and a Tensor
                ``batch_shape x q x m`` is added as it is, on the latent scale.
            posterior_transform: Applied last.
        """
        if observation_noise is True:
            observation_noise = self._noise_at(X)
        return self.model.posterior(X, output_indices, observation_noise, posterior_transform)

    def _noise_at(self, X: Tensor) -> bool | Tensor:
        """Noise variances of typical future outcomes; True for the surrogate's typical noise."""
        return True

    def _shared_arguments(self, inputs: str) -> dict[str, Any]:
        """Those that every composite model has; ``inputs`` is the name of the points."""
        model = self.model
        return {
            inputs: torch.empty(0, model._dim, dtype=model.dtype),
            "surrogate": type(model),
            "bounds": model.bounds,
            "covar_module": model.covar_module,
            "input_transform": getattr(model, "input_transform", None),
            **model._options(),
        }

    @all_or_nothing
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load hyperparameters and, if it has no data, everything; on an error nothing changes.

        As in `StreamingGP.load_state_dict`.

        Raises:
            StateError: if the saved state does not match this model.
        """
        whole = strict or checkpoint.EXTRA in state_dict
        saved = checkpoint.unpacked(state_dict.get(checkpoint.EXTRA))
        mine = checkpoint.unpacked(self.get_extra_state())
        alike = saved.keys() == mine.keys() and all(saved[k] == mine[k] for k in self._header())
        differ = sorted(self.state_dict().keys() ^ state_dict.keys()) if strict else []
        if differ or (whole and not alike):
            raise StateError(f"the state of {mine}", f"{saved} {differ}", "Build it alike.")
        data = saved if whole and not self.num_observed else None
        before = [p.detach().clone() for p in self.model.parameters()]
        result = self.model.load_state_dict(checkpoint.entries(state_dict, "model."), strict)
        changed = not all(map(torch.equal, self.model.parameters(), before))
        self._load(state_dict, data, changed)
        return result

    @abstractmethod
    def _load(
        self, state: Mapping[str, Any], data: Mapping[str, Any] | None, changed: bool
    ) -> None:
        """Load what is saved beside the surrogate, which is loaded before.

        Args:
            state: A saved `state_dict`.
            data: Its metadata, if all data are to be loaded; else what fits learn is.
            changed: Whether hyperparameters of the surrogate have changed.
        """
