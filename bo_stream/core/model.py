"""What any surrogate shows BoTorch: posterior, fantasies, conditioning and output subsets over one
latent law.

A subclass supplies `_process()`, the law at transformed points, and `_conditioned(...)`, the
model given more data. All shapes and scales of the interface are BoTorch's; inside, the output
dimension stands before the point dimension (see `bo_stream.posterior`) and everything is float64.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, DiagLinearOperator
from torch import Size, Tensor, nn

from bo_stream.errors import (
    BoundsError,
    DtypeError,
    InputError,
    NoiseError,
    NoTrainingDataError,
    ShapeError,
    UnsupportedError,
)
from bo_stream.posterior.process import JointGaussian, PosteriorProcess

__all__ = ["ProcessModel", "check_noise", "check_noise_fits", "refuse_unknown"]

DENSE_POINTS = 256
"""Joint posteriors over more points than this keep their covariance as an operator with a cheap
diagonal."""
SLACK = 1e-4
"""Share of a bound's width by which a point may lie outside: rounding, and difference quotients at
the edge."""


class ProcessModel(GPyTorchModel, FantasizeMixin):
    """A BoTorch model whose posterior is one latent law plus independent noise. Not to be used by
    itself.
    """

    bounds: Tensor | None
    _num_outputs: int
    _dim: int

    @abstractmethod
    def _process(self) -> PosteriorProcess:
        """The frozen posterior process at this moment, in transformed space, float64."""

    @abstractmethod
    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ProcessModel:
        """The law given ``Y`` (``batch' x o x n``) at transformed ``X`` (``batch x n x d``), noise
        ``o x n``-like.
        """

    @abstractmethod
    def _typical_noise_or_none(self) -> Tensor | None:
        """Noise variance of a typical observation (``o``), transformed; None where none was
        seen.
        """

    # -- for acquisition functions of our own ----------------------------------------------------

    def process(self) -> PosteriorProcess:
        """The posterior process now, in transformed space: a frozen snapshot.

        The same object until data or hyperparameters change, so that it tells whether what was
        derived from it still holds. Points go through `transformed` first.
        """
        return self._process()

    def transformed(self, X: Tensor) -> Tensor:
        """Raw points ``batch x q x d``, checked, in transformed space, float64.

        Raises:
            ShapeError, InputError, BoundsError: on points no law is defined at.
        """
        self._check_points(X, "X")
        return self._transformed(X)

    def typical_noise(self) -> Tensor:
        """Noise variance of a typical observation per output (``m``), transformed.

        Raises:
            NoiseError: if noise is known and nothing was observed.
        """
        return self._mean_noise()

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
            ShapeError, InputError, BoundsError: on points no law is defined at.
        """
        if self.training:
            self.eval()
        self._check_points(X, "X")
        latent = self._process().at(self._transformed(X))
        noise = self._noise_to_add(observation_noise, X)
        transform = getattr(self, "outcome_transform", None)
        if type(transform) is Standardize and self.num_outputs == 1:
            law = _distribution(latent, noise, output_indices, X.dtype, transform)
            posterior: Any = GPyTorchPosterior(law)
        else:
            posterior = GPyTorchPosterior(_distribution(latent, noise, output_indices, X.dtype))
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
        """The latent law at points in transformed space, as a (multitask) multivariate normal."""
        return _distribution(self._process().at(X.double()), dtype=X.dtype)

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
        self._check_points(X, "X")
        self._check_targets(X, Y)
        Y_t = self._outcomes(Y, None, X)[0].mT
        if noise is None:
            noise_t = self._mean_noise().unsqueeze(-1).expand(self.num_outputs, X.shape[-2])
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
        if observation_noise is None:
            observation_noise = self._mean_noise().unsqueeze(0).to(X)
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    # -- transforms are frozen: no mode switching, no train inputs to revert ---------------------

    def __getattr__(self, name: str) -> Any:
        if name in ("train_inputs", "train_targets"):
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

    def _mean_noise(self) -> Tensor:
        noise = self._typical_noise_or_none()
        if noise is None:
            raise NoiseError(
                "observations with known noise before their typical noise is used",
                "none so far",
                "Give the noise of new observations as a Tensor (`observation_noise`, `noise`).",
            )
        return noise

    # -- pieces ----------------------------------------------------------------------------------

    def _transformed(self, X: Tensor) -> Tensor:
        """Raw points in transformed space, float64.

        Raises:
            InputError: where the input transform is not defined.
        """
        transformed = self.transform_inputs(X.double())
        if hasattr(self, "input_transform") and not bool(transformed.isfinite().all()):
            raise InputError(
                "points at which the input transform is defined",
                "NaN or infinite transformed inputs",
                "Drop those points, or choose `bounds` within the transform's domain.",
            )
        return transformed

    def _raw_inputs(self, X: Tensor) -> Tensor:
        """Raw inputs of transformed ones, float64; a copy."""
        if hasattr(self, "input_transform"):
            return cast(Tensor, self.input_transform.untransform(X))
        return X.clone()

    def _outcomes(self, Y: Tensor, Yvar: Tensor | None, X: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes and noise in transformed space, ``batch x n x m``, float64."""
        Yvar = None if Yvar is None else Yvar.double()
        if not hasattr(self, "outcome_transform"):
            return Y.double(), Yvar
        transform = cast(OutcomeTransform, self.outcome_transform)
        Y_t, Yvar_t = transform(Y.double(), Yvar, X=X)
        if not all(bool(t.isfinite().all()) for t in (Y_t, Yvar_t) if t is not None):
            raise InputError(
                "outcomes at which the outcome transform is defined",
                "NaN or infinite transformed outcomes",
                "Drop those rows, or choose another transform.",
            )
        return Y_t, Yvar_t

    def _noise_to_add(self, observation_noise: bool | Tensor, X: Tensor) -> Tensor | None:
        """Noise as ``... x o x (q | 1)``, or None."""
        if isinstance(observation_noise, Tensor):
            shape, q = observation_noise.shape, X.shape[-2]
            if len(shape) < 2 or shape[-1] != self.num_outputs or shape[-2] not in (1, q):
                raise ShapeError(
                    f"observation_noise `... x {q} x {self.num_outputs}`, or one row",
                    f"{tuple(shape)}",
                    "Give one variance per point and output, outcome-transformed.",
                )
            check_noise(observation_noise, zero_allowed=True)
            return observation_noise.double().mT
        return self._mean_noise().unsqueeze(-1) if observation_noise else None

    def _check_points(self, X: Tensor, name: str) -> None:
        if X.ndim < 2 or X.shape[-1] != self._dim:
            raise ShapeError(
                f"{name} of shape `batch_shape x q x {self._dim}`",
                f"{tuple(X.shape)}",
                "Give points as rows, one column per input dimension.",
            )
        if not X.is_floating_point():
            raise DtypeError(f"floating-point {name}", f"{X.dtype}", f"Cast it: {name}.double().")
        if not bool(X.isfinite().all()):
            raise InputError(
                f"finite {name}", "NaN or infinite entries", "Drop or repair those rows."
            )
        if self.bounds is not None:
            bounds = self.bounds
            slack = SLACK * (bounds[1] - bounds[0])
            outside = ((bounds[0] - slack > X) | (bounds[1] + slack < X)).any(-1)
            if bool(outside.any()):
                first = X.detach()[outside][0].tolist()
                raise BoundsError(
                    f"points inside bounds {bounds.tolist()}",
                    f"{int(outside.sum())} outside, the first {first}",
                    "Widen `bounds` when building the surrogate, or drop those points.",
                )

    def _check_targets(self, X: Tensor, Y: Tensor) -> None:
        """Y fits X: same rows, right number of outputs, finite, of the interface's dtype."""
        if Y.ndim < 2 or Y.shape[-1] != self.num_outputs or Y.shape[-2] != X.shape[-2]:
            raise ShapeError(
                f"Y `batch_shape x {X.shape[-2]} x {self.num_outputs}` for X {tuple(X.shape)}",
                f"{tuple(Y.shape)}",
                "Give one row per point and an explicit output dimension.",
            )
        pairs = zip(reversed(X.shape[:-2]), reversed(Y.shape[:-2]), strict=False)
        if Y.ndim >= X.ndim and any(x not in (1, y) for x, y in pairs):
            raise ShapeError(
                f"batch dimensions of Y ending in those of X, {tuple(X.shape[:-2])}",
                f"{tuple(Y.shape[:-2])}",
                "Fantasy dimensions come first.",
            )
        if X.dtype != Y.dtype or X.dtype != self.dtype:
            raise DtypeError(
                f"X and Y in the surrogate's dtype {self.dtype}",
                f"{X.dtype} and {Y.dtype}",
                "Cast the data, or the surrogate with `.to(dtype)`.",
            )
        if not bool(Y.isfinite().all()):
            raise InputError("finite Y", "NaN or infinite entries", "Drop or impute those rows.")

    @property
    def dtype(self) -> torch.dtype:
        """The interface's dtype; state and factorisations are float64 whatever it is."""
        return cast(Tensor, self._interface).dtype


def check_noise(noise: Tensor, zero_allowed: bool = False) -> None:
    """Refuse noise variances that are not finite and positive."""
    low = noise < 0 if zero_allowed else noise <= 0
    if bool((low | ~noise.isfinite()).any()):
        kind = "non-negative" if zero_allowed else "positive"
        raise NoiseError(
            f"finite, {kind} noise variances",
            "NaN, infinite or too small entries",
            "Give variances (not standard deviations); put a floor under zeros.",
        )


def check_noise_fits(noise: Tensor, Y: Tensor) -> None:
    """Refuse noise variances that do not broadcast to ``Y``'s points and outputs."""
    pairs = zip(reversed(noise.shape), reversed(Y.shape), strict=False)
    fits = noise.ndim >= 2 and all(
        a == b or a == 1 for a, b in zip(noise.shape[-2:], Y.shape[-2:], strict=True)
    )
    if not fits or any(a != b and 1 not in (a, b) for a, b in pairs):
        raise ShapeError(
            f"noise that broadcasts to Y, {tuple(Y.shape)}",
            f"{tuple(noise.shape)}",
            "Give one variance per value, or one row for all points.",
        )


def _distribution(
    latent: JointGaussian,
    noise: Tensor | None = None,
    outputs: list[int] | None = None,
    dtype: torch.dtype = torch.float64,
    standardized: Standardize | None = None,
) -> MultivariateNormal:
    """The law plus noise ``... x o x (q | 1)`` as the distribution BoTorch's posterior wraps.

    With ``standardized`` (one output only) it is in raw units: what BoTorch's `Standardize` gives
    as a product of three operators, which costs more than the law itself inside an optimiser.
    """
    mean = latent.mean
    dense = mean.shape[-1] <= DENSE_POINTS
    cov: Any = latent.covariance(latent) if dense else latent.operator()
    if noise is not None:
        diagonal = noise.expand(*noise.shape[:-1], mean.shape[-1])
        cov = cov + (torch.diag_embed(diagonal) if dense else DiagLinearOperator(diagonal))
    if outputs is not None:
        index = torch.as_tensor(outputs, device=mean.device)
        mean, cov = mean[..., index, :], cov[..., index, :, :]
    if standardized is not None:
        scale = standardized.stdvs.squeeze()
        mean, cov = standardized.means.squeeze() + scale * mean, cov * scale.square()
    mean, cov = mean.to(dtype), cov.to(dtype=dtype)
    if cov.shape[:-1] != mean.shape:  # fantasies share it; BoTorch's transforms want the batch
        cov = cov.expand(*mean.shape, mean.shape[-1])
    if mean.shape[-2] == 1:
        return MultivariateNormal(mean[..., 0, :], to_linear_operator(cov[..., 0, :, :]))
    # block-diagonal and not interleaved: what BoTorch's cached roots take apart again
    cov = BlockDiagLinearOperator(to_linear_operator(cov), block_dim=-3)
    return MultitaskMultivariateNormal(mean.mT, cov, interleaved=False)


def refuse_unknown(kwargs: dict[str, Any]) -> None:
    """Refuse arguments of `condition_on_observations` that mean nothing here."""
    unknown = set(kwargs) - {"propagate_grads"}
    if unknown:
        raise UnsupportedError(
            "X, Y and noise", f"unknown arguments {sorted(unknown)}", "Remove them."
        )
