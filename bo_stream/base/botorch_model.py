"""What any surrogate shows BoTorch: posterior, fantasies, conditioning and output subsets of one
posterior process.

A subclass supplies `_now()`, the process at this moment and what belongs to it, and
`_conditioned(...)`, the model given more data. All shapes and scales of the interface are
BoTorch's; inside, the output dimension stands before the points (see
`bo_stream.mathematics.posterior`) and everything is float64.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from torch import Size, Tensor, nn

from bo_stream.base.distribution import distribution
from bo_stream.base.transforms import raw_inputs, transformed_inputs, transformed_outcomes
from bo_stream.base.validation import (
    check_noise,
    check_noise_fits,
    check_points,
    check_targets,
    check_tensors,
)
from bo_stream.errors import NoiseError, NoTrainingDataError, ShapeError, UnsupportedError
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["Moment", "ProcessModel", "refuse_unknown"]


@dataclass(frozen=True)
class Moment:
    """What a posterior is made of, all of one moment, whatever is observed or fitted meanwhile.

    Attributes:
        process: The posterior process, in transformed space.
        noise: Noise variance of a typical observation (``o``), transformed; None where noise is
            known and none was seen.
        outcome_transform: The frozen outcome transform, or None.
    """

    process: PosteriorProcess
    noise: Tensor | None
    outcome_transform: OutcomeTransform | None

    def typical_noise(self) -> Tensor:
        """The noise of a typical observation (``o``).

        Raises:
            NoiseError: where none was seen.
        """
        if self.noise is None:
            raise NoiseError(
                "observations with known noise before their typical noise is used",
                "none so far",
                "Give the noise of new observations as a Tensor (`observation_noise`, `noise`).",
            )
        return self.noise


class ProcessModel(GPyTorchModel, FantasizeMixin):
    """A BoTorch model whose posterior is one process plus independent noise. Not to be used by
    itself.
    """

    bounds: Tensor | None
    _num_outputs: int
    _dim: int

    @abstractmethod
    def _now(self) -> Moment:
        """The process at this moment and what belongs to it, frozen, float64."""

    @abstractmethod
    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ProcessModel:
        """The model given ``Y`` (``batch' x o x n``) at transformed ``X`` (``batch x n x d``).

        The noise broadcasts to ``o x n``.
        """

    # -- for acquisition functions of our own ----------------------------------------------------

    def process(self) -> PosteriorProcess:
        """The posterior process now, in transformed space: a frozen snapshot.

        The same object until data or hyperparameters change, so that it tells whether what was
        derived from it still holds. Points go through `transformed` first.
        """
        return self._now().process

    def transformed(self, X: Tensor) -> Tensor:
        """Raw points ``batch x q x d``, checked, in transformed space, float64.

        Raises:
            ShapeError, InputError, BoundsError: on points the process is not defined at.
        """
        self._check_points(X)
        return self._transformed(X)

    def typical_noise(self) -> Tensor:
        """Noise variance of a typical observation per output (``m``), transformed.

        Raises:
            NoiseError: if noise is known and nothing was observed.
        """
        return self._now().typical_noise()

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
            output_indices: Outputs to return, all by default.
            observation_noise: True adds the noise of a typical observation; a Tensor ``batch_shape
                x q x m`` (or ``... x 1 x m``), outcome-transformed, is added as it is.
            posterior_transform: Applied last, in raw units.

        Returns:
            A `GPyTorchPosterior` in the dtype of ``X`` (a `TransformedPosterior` under a
            non-linear outcome transform). Over more than 256 points the covariance stays an
            operator: its diagonal is cheap, the ``q x q`` matrix is formed only if asked for.

        Raises:
            ShapeError, InputError, BoundsError: on points the process is not defined at.
        """
        if self.training:
            self.eval()
        now, points = self._now(), self.transformed(X)
        joint, noise = now.process.at(points), self._noise_to_add(observation_noise, X, now)
        transform = now.outcome_transform
        if type(transform) is Standardize and self.num_outputs == 1:
            raw = distribution(joint, noise, output_indices, X.dtype, transform)
            posterior: Any = GPyTorchPosterior(raw)
        else:
            posterior = GPyTorchPosterior(distribution(joint, noise, output_indices, X.dtype))
            if transform is not None:
                if output_indices is not None:
                    transform = transform.subset_output(output_indices)
                if X.dtype != torch.float64:
                    transform = copy.deepcopy(transform).to(X)
                posterior = transform.untransform_posterior(posterior, X=X)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=X)
        return posterior

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The latent function at raw points, before the outcome transform is undone, as a
        (multitask) multivariate normal.
        """
        return distribution(self.process().at(self.transformed(X)), dtype=X.dtype)

    def transform_inputs(self, X: Tensor, input_transform: nn.Module | None = None) -> Tensor:
        """The points as they are: a surrogate takes raw points everywhere.

        BoTorch's entropy searches condition on what this returns, and conditioning transforms.
        """
        return X if input_transform is None else cast(Tensor, input_transform(X))

    @property
    def num_outputs(self) -> int:
        """The number of independent outputs ``m``."""
        return self._num_outputs

    @property
    def batch_shape(self) -> Size:
        """Empty: the surrogates are unbatched; a conditioned posterior has its fantasies' shape."""
        return Size()

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> ProcessModel:
        """The model given more data: exact Gaussian conditioning of its joint posterior (MATHS 1).

        Args:
            X: ``batch_shape x n x d`` raw points.
            Y: ``batch_shape' x n x m`` raw values; ``batch_shape'`` may have leading fantasy
                dimensions that share X.
            noise: Noise variances like ``Y`` (broadcast), already outcome-transformed; by default
                that of a typical observation.
            kwargs: What BoTorch passes along (``propagate_grads``) and no posterior here needs.

        Returns:
            A conditioned posterior; the parent stays untouched. Gradients to X and Y are exact.
        """
        refuse_unknown(kwargs)
        self._check_points(X)
        check_targets(X, Y, self.num_outputs, self.dtype)
        Y_t = self._outcomes(Y, None, X)[0].mT
        if noise is None:
            noise_t = self.typical_noise().unsqueeze(-1).expand(self.num_outputs, X.shape[-2])
        else:
            check_noise_fits(noise, Y)
            check_noise(noise, zero_allowed=True)
            noise_t = noise.double().mT
        return self._conditioned(self._transformed(X), Y_t, noise_t)

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """BoTorch's `fantasize`: sample observations at X, condition on them; gradients to X are
        exact.

        Args:
            X: ``batch_shape x n x d`` raw points.
            sampler: Draws the fantasies.
            observation_noise: ``... x 1 x m`` or ``... x n x m``, outcome-transformed; by default
                the noise of a typical observation (on known noise, the running mean of what was
                seen).
            kwargs: Passed on by BoTorch.
        """
        check_tensors(X=X, observation_noise=observation_noise)
        if observation_noise is None:
            observation_noise = self.typical_noise().unsqueeze(0).to(X)
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> ProcessModel:
        """What `ModelListGP.condition_on_observations` calls on each of its models (one output).

        Args:
            inputs: ``batch_shape x n x d`` raw points.
            targets: ``batch_shape' x n`` values, already outcome-transformed.
            noise: Noise variances like ``targets``, already outcome-transformed.
            kwargs: As for `condition_on_observations`.
        """
        if self.num_outputs != 1:
            raise UnsupportedError(
                "models of one output in a ModelListGP",
                f"{self.num_outputs} outputs",
                "Condition this surrogate itself, or join single-output ones.",
            )
        transform = getattr(self, "outcome_transform", None)
        if transform is not None and inputs.ndim == 2 and targets.ndim == 2 and len(targets) == 1:
            targets = targets[0]  # a ModelListGP's transforms add a dimension to plain targets
        Y = targets.unsqueeze(-1)
        if transform is not None:
            Y = cast(Tensor, transform.untransform(Y.double(), X=inputs)[0]).to(inputs)
        if noise is not None:  # of a single point, a ModelListGP may leave a number
            noise = noise.unsqueeze(-1) if noise.ndim else noise.reshape(1, 1)
        return self.condition_on_observations(inputs, Y, noise, **kwargs)

    # -- transforms are frozen: no mode switching, no train inputs to revert ---------------------

    def __getattr__(self, name: str) -> Any:
        if name == "train_targets":  # BoTorch's input constructors ask for its dtype and device
            return self.get_buffer("_interface")
        if name == "train_inputs":
            raise NoTrainingDataError(
                "an acquisition function that needs no training data",
                f"a request for `{name}`, which a streaming surrogate does not expose",
                "Predictive entropy search, proximal and analytic noisy expected improvement need "
                "it; use qLogNoisyExpectedImprovement, max-value or joint entropy search.",
            )
        return super().__getattr__(name)

    def eval(self) -> Self:
        """Evaluation mode; there are no stored inputs to transform."""
        return nn.Module.eval(self)

    def train(self, mode: bool = True) -> Self:
        """Training mode for the hyperparameters; the frozen transforms stay in evaluation mode."""
        nn.Module.train(self, mode)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                getattr(self, name).eval()
        return self

    # -- pieces ----------------------------------------------------------------------------------

    def _transformed(self, X: Tensor) -> Tensor:
        """Raw points in transformed space, float64."""
        return transformed_inputs(self._input_transform(), X)

    def _raw_inputs(self, X: Tensor) -> Tensor:
        """Raw inputs of transformed ones, float64; a copy."""
        return raw_inputs(self._input_transform(), X)

    def _input_transform(self) -> InputTransform | None:
        return cast("InputTransform | None", getattr(self, "input_transform", None))

    def _outcomes(self, Y: Tensor, Yvar: Tensor | None, X: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes and noise in transformed space, ``batch x n x m``, float64."""
        return transformed_outcomes(getattr(self, "outcome_transform", None), Y, Yvar, X)

    def _noise_to_add(self, wanted: bool | Tensor, X: Tensor, now: Moment) -> Tensor | None:
        """Noise as ``... x o x (q | 1)``, or None."""
        if isinstance(wanted, Tensor):
            shape, q = wanted.shape, X.shape[-2]
            if len(shape) < 2 or shape[-1] != self.num_outputs or shape[-2] not in (1, q):
                raise ShapeError(
                    f"observation_noise `... x {q} x {self.num_outputs}`, or one row",
                    f"{tuple(shape)}",
                    "Give one variance per point and output, outcome-transformed.",
                )
            check_noise(wanted, zero_allowed=True)
            return wanted.double().mT
        if not isinstance(wanted, bool):
            check_tensors(observation_noise=wanted)
        return now.typical_noise().unsqueeze(-1) if wanted else None

    def _check_points(self, X: Tensor) -> None:
        check_points(X, self._dim, self.bounds)

    @property
    def dtype(self) -> torch.dtype:
        """The interface's dtype; state and factorisations are float64 whatever it is."""
        return cast(Tensor, self._interface).dtype


def refuse_unknown(kwargs: dict[str, Any]) -> None:
    """Refuse arguments of `condition_on_observations` that mean nothing here."""
    unknown = set(kwargs) - {"propagate_grads"}
    if unknown:
        raise UnsupportedError(
            "X, Y and noise", f"unknown arguments {sorted(unknown)}", "Remove them."
        )
