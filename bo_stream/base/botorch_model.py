"""A Gaussian process behind BoTorch's model interface: posteriors and fantasies.

A subclass supplies `_snapshot`, from which posteriors are built, and `_given`, the model
conditioned on more data. Shapes and scales of the interface are BoTorch's. Internally the output
dimension precedes the points (see `bo_stream.mathematics.process`) and everything is float64.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.acquisition.utils import get_infeasible_cost
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import GP
from torch import Size, Tensor, nn

from bo_stream.base import transforms, validation
from bo_stream.base.distribution import botorch_posterior, distribution, scale_free
from bo_stream.base.missing_targets import LEARN, MissingTargets, missing
from bo_stream.base.noise import noise_to_add
from bo_stream.base.posterior_snapshot import PosteriorSnapshot
from bo_stream.errors import BoundsError, UnsupportedError
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["BoTorchModel"]


class BoTorchModel(GPyTorchModel, GP, FantasizeMixin):
    """A Gaussian process behind BoTorch's interface: a posterior process plus independent noise.

    This is the base of surrogates and conditioned posteriors. It is not used directly.

    Attributes:
        noise_mode: ``learned``, ``known``, or ``scaled`` (known up to a learned scale).
    """

    bounds: Tensor | None
    covar_module: Kernel
    mean_module: Mean
    likelihood: Likelihood
    noise_mode: str
    _interface: Tensor

    def __init__(
        self,
        sizes: tuple[int, int],
        like: Tensor,
        bounds: Tensor | None,
        input_transform: InputTransform | None,
        outcome_transform: OutcomeTransform | None,
    ) -> None:
        """Set up for sizes ``(d, m)``, with the dtype and device of ``like``."""
        super().__init__()
        self._dim, self._num_outputs = sizes
        self.register_buffer("bounds", bounds)
        self.register_buffer("_interface", like.new_empty(0), persistent=False)
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform

    @abstractmethod
    def _snapshot(self) -> PosteriorSnapshot:
        """The ingredients of current posteriors, float64."""

    @abstractmethod
    def _given(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> BoTorchModel:
        """The model conditioned on more data, all transformed.

        Args:
            X: ``batch x n x d``.
            Y: ``batch' x o x n``.
            noise: Noise variances that broadcast to ``Y``; None: the typical noise.
        """

    # -- for the package's acquisition functions -------------------------------------------------

    def outcome_map(self, *, raw: bool = True) -> OutcomeTransform | None:
        """``outcome_transform``; families may add to it how outcomes become the process's.

        Args:
            raw: Whether of raw outcomes; False: of those in the units of ``outcome_transform``.
        """
        return self._frozen_outcomes if raw else None

    def process(self) -> PosteriorProcess:
        """The current posterior process in transformed space: a frozen snapshot.

        The same object is returned until data or hyperparameters change. Its points are in
        transformed space; see `transformed`.
        """
        return self._snapshot().process

    def transformed(self, X: Tensor) -> Tensor:
        """Raw points ``batch x q x d``, checked, in transformed space, float64.

        Raises:
            ShapeError, InputError, BoundsError: for points where the process is not defined.
        """
        self._check_points(X)
        return self._transformed(X)

    def typical_noise(self) -> Tensor:
        """Noise variance of a typical observation per output (``m``), transformed.

        Raises:
            NoiseError: if the noise is known and nothing was observed.
        """
        return self._snapshot().typical_noise()

    # -- BoTorch's interface ---------------------------------------------------------------------

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """The joint posterior over ``q`` points and ``m`` outputs.

        Args:
            X: ``batch_shape x q x d`` raw points.
            output_indices: Outputs to return; all by default.
            observation_noise: True adds the typical noise. A Tensor ``batch_shape x q x m`` (or
                ``... x 1 x m``), outcome-transformed, is added as given.
            posterior_transform: Applied last, in raw units.

        Returns:
            A `GPyTorchPosterior` in the dtype of ``X``, or a `TransformedPosterior` under a
            non-linear outcome transform. Over more than 256 points the covariance is a lazy
            operator: its diagonal is cheap, and the ``q x q`` matrix is formed only on demand.

        Raises:
            ShapeError, InputError, BoundsError: for points where the process is not defined.
        """
        if self.training:
            self.eval()
        if self.num_outputs == 1:  # lists of models pass the output's place among all of theirs
            output_indices = None
        snapshot = self._snapshot()
        joint = snapshot.process.at(self._transformed(self._points_for_botorch(X)))
        noise = noise_to_add(observation_noise, X, self.num_outputs, snapshot.typical_noise)
        outcomes = snapshot.outcome_transform
        posterior = botorch_posterior(joint, noise, output_indices, outcomes, X)
        if posterior_transform is not None:
            return scale_free(posterior_transform(posterior=posterior, X=X))
        return posterior

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The distribution of the latent function at raw points, in transformed outcome units.

        Raises:
            UnsupportedError: in training mode, where BoTorch's models return the prior.
        """
        if self.training:
            raise UnsupportedError(
                "a posterior to be asked for", "a call of the model in training mode", LEARN
            )
        return distribution(self.process().at(self.transformed(X)), dtype=X.dtype)

    def transform_inputs(self, X: Tensor, input_transform: nn.Module | None = None) -> Tensor:
        """Return the points unchanged: a surrogate takes raw points everywhere.

        BoTorch's entropy searches condition on the result, and conditioning transforms it.
        """
        return X if input_transform is None else cast(Tensor, input_transform(X))

    @property
    def num_outputs(self) -> int:
        """The number of independent outputs ``m``."""
        return self._num_outputs

    @property
    def batch_shape(self) -> Size:
        """Empty for surrogates, which are unbatched; the fantasies' shape once conditioned."""
        return Size()

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> BoTorchModel:
        """Condition on more data by exact Gaussian conditioning of the joint posterior (MATHS 1).

        Args:
            X: ``batch_shape x n x d`` raw points.
            Y: ``batch_shape' x n x m`` raw values; ``batch_shape'`` may have leading fantasy
                dimensions that share X.
            noise: Variances that broadcast to ``Y``, outcome-transformed; by default the typical.
            kwargs: BoTorch's ``propagate_grads``, which is not needed here.

        Returns:
            A frozen `ConditionedPosterior`, with exact gradients to X and Y. This model is
            unchanged. For a surrogate that goes on learning, ``copy.deepcopy(model).observe(...)``.
        """
        unknown = set(kwargs) - {"propagate_grads"}
        if unknown:
            raise UnsupportedError(
                "X, Y and noise", f"unknown arguments {sorted(unknown)}", "Remove them."
            )
        validation.check_tensors({"noise": noise}, X=X, Y=Y)
        self._check_points(X)
        validation.check_targets(X, Y, self.num_outputs, self.dtype)
        if noise is not None:
            validation.check_noise_fits(noise, Y)
            validation.check_noise(noise, zero_allowed=True)
            noise = noise.double().mT
        return self._given(self._transformed(X), self._outcomes(Y, None, X)[0].mT, noise)

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """Sample observations at X and condition on them, with exact gradients to X.

        Args:
            X: ``batch_shape x n x d`` raw points.
            sampler: Draws the fantasies.
            observation_noise: ``... x 1 x m`` or ``... x n x m``, outcome-transformed; the
                typical noise by default.
            kwargs: Passed on by BoTorch.
        """
        validation.check_tensors({"observation_noise": observation_noise}, X=X)
        if observation_noise is None:
            observation_noise = self.typical_noise().unsqueeze(0).to(X)
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> BoTorchModel:
        """Condition on raw ``inputs`` and transformed ``targets``, ``noise``: ``batch_shape x n``.

        `ModelListGP.condition_on_observations` calls this on each of its models.
        """
        own = getattr(self, "outcome_transform", None)
        Y, noise = transforms.list_targets(own, self.num_outputs, inputs, targets, noise)
        return self.condition_on_observations(inputs, Y, noise, **kwargs)

    # -- transforms are frozen: no mode switching, no training inputs to revert ------------------

    def __getattr__(self, name: str) -> Any:
        if name == "train_targets":  # BoTorch's input constructors ask for its dtype and device
            return self._interface.as_subclass(MissingTargets)
        if name == "train_inputs":
            raise missing(name)
        return super().__getattr__(name)

    def eval(self) -> Self:
        """Switch to evaluation mode; there are no stored inputs to transform."""
        return nn.Module.eval(self)

    def train(self, mode: bool = True) -> Self:
        """Switch hyperparameters to training mode; frozen transforms stay in evaluation mode."""
        nn.Module.train(self, mode)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                getattr(self, name).eval()
        return self

    # -- helpers ---------------------------------------------------------------------------------

    def _points_for_botorch(self, X: Tensor) -> Tensor:
        """Points of a posterior, checked.

        For a bound on an objective, BoTorch's `get_infeasible_cost` is called with points up to a
        tenth of the box outside it. They are moved to the bounds.
        """
        try:
            self._check_points(X)
        except BoundsError:
            if self.bounds is None or not _calling(get_infeasible_cost):
                raise
            low, high = self.bounds.to(X)
            return torch.minimum(torch.maximum(X, low), high)
        return X

    def _transformed(self, X: Tensor) -> Tensor:
        """Raw points in transformed space, float64."""
        return transforms.transformed_inputs(getattr(self, "input_transform", None), X)

    def _raw_inputs(self, X: Tensor) -> Tensor:
        """Untransform inputs, float64; a copy."""
        return transforms.raw_inputs(getattr(self, "input_transform", None), X)

    def _outcomes(self, Y: Tensor, Yvar: Tensor | None, X: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes and noise in transformed space, ``batch x n x m``, float64."""
        return transforms.transformed_outcomes(self.outcome_map(), Y, Yvar, X)

    def _check_points(self, X: Tensor) -> None:
        validation.check_points(X, self._dim, self.bounds)

    @property
    def _frozen_outcomes(self) -> OutcomeTransform | None:
        """``outcome_transform`` without what a family adds to it."""
        return cast(OutcomeTransform | None, dict(self.named_children()).get("outcome_transform"))

    @property
    def dtype(self) -> torch.dtype:
        """The interface's dtype; state and factorisations are always float64."""
        return self._interface.dtype


def _calling(function: Callable[..., Any]) -> bool:
    """Whether a function is among those that are being executed."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None
