"""A Gaussian process behind BoTorch's model interface: posteriors, conditioning, sample functions.

A subclass of `GaussianModel` supplies `_snapshot`, from which posteriors are built. Shapes and
scales of the interface are BoTorch's. Internally the output dimension precedes the points (see
`bo_stream.mathematics.process`) and everything is float64.

Sample functions are registered with BoTorch's `DrawMatheronPaths`. `get_matheron_path_model`,
`PathwiseThompsonSampling`, `optimize_posterior_samples` and the optima of entropy searches
therefore work with any surrogate, conditioned posterior, or `ModelListGP` of them. On a grid the
draws are exact; elsewhere they follow Matheron's rule [Wilson2020].

References:
    [Wilson2020] J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky, M. P. Deisenroth.
        Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin, Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from botorch.sampling.pathwise import draw_kernel_feature_paths, gaussian_update
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.utils import OutcomeUntransformer
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import GP
from linear_operator import to_linear_operator
from linear_operator.operators import (
    BlockDiagLinearOperator,
    ConstantMulLinearOperator,
    DiagLinearOperator,
    TriangularLinearOperator,
)
from torch import Size, Tensor, nn

from bo_stream.base import units
from bo_stream.errors import (
    BoundsError,
    FrozenError,
    NoiseError,
    NoTrainingDataError,
    ShapeError,
    UnsupportedError,
)
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import ExpandedProcess
from bo_stream.mathematics.joint import Joint
from bo_stream.mathematics.process import PosteriorProcess, conditioned_on

__all__ = [
    "ConditionedPosterior",
    "GaussianModel",
    "ModelPath",
    "PosteriorSnapshot",
    "ScaleFreeMultitaskNormal",
    "ScaleFreeNormal",
    "missing",
    "scale_free",
    "shift_and_scale",
    "standardised",
]

LEARN = (
    "To learn hyperparameters, call `fit` or `fit_gpytorch_mll(model.make_mll())`; in a training "
    "loop, `model.make_mll()()` is the objective."
)
READ = ("device", "dtype", "numel", "to")
"""What BoTorch's input constructors ask of targets, to find a model's dtype and device."""


def missing(name: str, learn: str = LEARN) -> NoTrainingDataError:
    """The error that the attribute ``train_inputs`` or ``train_targets`` does not exist."""
    return NoTrainingDataError(
        "something that needs no training data",
        f"a request for `{name}`, which a streaming surrogate does not expose",
        f"{learn} Predictive entropy search, proximal and analytic noisy expected improvement need "
        "training data; use qLogNoisyExpectedImprovement, max-value or joint entropy search.",
    )


class MissingTargets(Tensor):
    """An empty tensor with a dtype and a device but no values."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Dtype and device, and casts of other tensors to them.

        Raises:
            NoTrainingDataError: for everything that reads values.
        """
        name = getattr(getattr(func, "__self__", None), "__name__", func.__name__)
        if name not in READ:
            raise NoTrainingDataError(
                "something that needs no training targets",
                f"`{name}` of the `train_targets` of a streaming surrogate, which exposes none",
                f"{LEARN} For the best outcome, keep Y in the loop and pass `best_f`.",
            )
        if name == "to" and isinstance(args[-1], cls):
            return func(args[0], device=args[-1].device, dtype=args[-1].dtype)
        return super().__torch_function__(func, types, args, dict(kwargs or {}))


DENSE_POINTS = 256
"""Above this number of points a joint posterior keeps its covariance as a lazy operator with a
cheap diagonal."""


class ScaleFreeNormal(MultivariateNormal):
    """A multivariate normal distribution in any unit.

    gpytorch raises variances to 1e-6 (1e-4 in float32) in the unit of the outcome. Here they are
    the diagonal of the covariance; what rounding has made zero or negative is the smallest
    positive number.
    """

    @property
    def variance(self) -> Tensor:
        """Marginal variances, positive."""
        diagonal = self.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
        diagonal = diagonal.expand(*self.batch_shape, self.loc.shape[-1])
        return diagonal.clamp_min(torch.finfo(diagonal.dtype).tiny)


class ScaleFreeMultitaskNormal(MultitaskMultivariateNormal, ScaleFreeNormal):
    """`ScaleFreeNormal` of several outputs."""


class ScaledCovariance(ConstantMulLinearOperator):
    """A multiple of a covariance, which is factorised before it is multiplied.

    linear_operator adds fixed amounts to the diagonal of a covariance that it cannot factorise:
    here they are added in the units of the model.
    """

    def cholesky(self, upper: bool = False) -> TriangularLinearOperator:
        """The triangular factor."""
        factor = self.base_linear_op.cholesky(upper=upper).to_dense()
        return TriangularLinearOperator(factor * self.expanded_constant.sqrt(), upper=upper)


def scale_free(posterior: Any) -> Any:
    """The posterior with a `ScaleFreeNormal`, if it has a plain multivariate normal distribution.

    Args:
        posterior: BoTorch's posterior, as an outcome or posterior transform returns it.
    """
    found: Any = posterior.distribution if type(posterior) is GPyTorchPosterior else None
    if type(found) is not MultivariateNormal:
        return posterior
    return GPyTorchPosterior(ScaleFreeNormal(found.mean, found.lazy_covariance_matrix))


def distribution(
    joint: Joint,
    noise: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    standardized: Standardize | None = None,
) -> MultivariateNormal:
    """The joint Gaussian plus noise ``... x o x (q | 1)``.

    With ``standardized`` it is returned in raw units. BoTorch's `Standardize` gives the same as a
    product of three operators, which costs more than the joint itself.
    """
    mean = joint.mean
    dense = mean.shape[-1] <= DENSE_POINTS
    cov: Any = joint.covariance(joint) if dense else joint.operator()
    if noise is not None:
        diagonal = noise.expand(*noise.shape[:-1], mean.shape[-1])
        cov = cov + (torch.diag_embed(diagonal) if dense else DiagLinearOperator(diagonal))
    if standardized is not None:
        shift, scales = standardized.means.reshape(-1, 1), standardized.stdvs.reshape(-1)
        mean = shift + scales.unsqueeze(-1) * mean
    mean, cov = mean.to(dtype), cov.to(dtype=dtype)
    if cov.shape[:-1] != mean.shape:  # fantasies share it; BoTorch's transforms need the batch
        cov = cov.expand(*mean.shape, mean.shape[-1])
    single = mean.shape[-2] == 1
    cov = to_linear_operator(cov[..., 0, :, :] if single else cov)
    if standardized is not None:
        squares = scales.square().to(dtype)
        cov = ScaledCovariance(cov, squares[0] if single else squares.expand(cov.batch_shape))
    if single:
        return ScaleFreeNormal(mean[..., 0, :], cov)
    # block-diagonal, not interleaved: BoTorch's cached roots rely on it
    cov = BlockDiagLinearOperator(cov, block_dim=-3)
    return ScaleFreeMultitaskNormal(mean.mT, cov, interleaved=False)


def botorch_posterior(
    joint: Joint, noise: Tensor | None, transform: OutcomeTransform | None, X: Tensor
) -> Any:
    """The posterior in raw units and in the dtype of the raw points X.

    Args:
        joint: The joint Gaussian at the points.
        noise: Noise to add, ``... x o x (q | 1)``, or None.
        transform: The outcome transform to undo.
        X: The raw points.
    """
    standardized = transform if type(transform) is Standardize else None
    posterior = GPyTorchPosterior(distribution(joint, noise, X.dtype, standardized))
    if transform is None or standardized is not None:
        return posterior
    if X.dtype != torch.float64:
        transform = copy.deepcopy(transform).to(X)
    return transform.untransform_posterior(posterior, X=X)


@dataclass(frozen=True)
class PosteriorSnapshot:
    """The ingredients of a posterior, independent of later changes of the surrogate.

    Attributes:
        process: The posterior process, in transformed space.
        noise: Typical noise variance (``o``), transformed; None if the noise is known and none
            was seen.
        outcome_transform: How raw outcomes became those of the process, or None.
        lengths: The kernel's shortest lengthscale along each of its inputs, infinite for none;
            None for a process without an expansion.
    """

    process: PosteriorProcess
    noise: Tensor | None
    outcome_transform: OutcomeTransform | None
    lengths: Array | None = None

    def of_outputs(self, outputs: list[int]) -> PosteriorSnapshot:
        """The same of some outputs."""
        transform = self.outcome_transform
        return PosteriorSnapshot(
            self.process.outputs(outputs),
            None if self.noise is None else self.noise[outputs],
            None if transform is None else transform.subset_output(outputs),
            self.lengths,
        )

    def typical_noise(self) -> Tensor:
        """The typical noise variance (``o``).

        Raises:
            NoiseError: if no noise was seen.
        """
        if self.noise is None:
            raise NoiseError(
                "observations with known noise before their typical noise is used",
                "none so far",
                "Give the noise of new observations as a Tensor (`observation_noise`, `noise`).",
            )
        return self.noise


OUTSIDE = 0.1
"""Share of the box outside of a bound in which predictions are those at the bound."""


class GaussianModel(GPyTorchModel, GP, FantasizeMixin):
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

    def expanded(self) -> ExpandedProcess | None:
        """The posterior in numpy, in raw units; None if it has no closed form there.

        That is so for several outcomes, kernels other than RBF, Matern and products on a grid,
        transforms that are not linear, and batches of data conditioned on.
        """
        snapshot = self._snapshot()
        inputs = units.affine(getattr(self, "input_transform", None), self._dim)
        outcomes = cast(Any, snapshot.outcome_transform)
        linear = outcomes is None or type(outcomes) is Standardize
        process = snapshot.process.expansion if linear else None
        if process is None or inputs is None or snapshot.lengths is None:
            return None
        low, width = inputs
        unit = process.functions.lengths(snapshot.lengths) * width
        if self.bounds is not None:
            lower, upper = self.bounds.double().numpy(force=True)
            unit = np.minimum(unit, upper - lower)
        about = (0.0, 1.0) if outcomes is None else (float(outcomes.means), float(outcomes.stdvs))
        return ExpandedProcess(process, unit, low, width, *about)

    def transformed(self, X: Tensor) -> Tensor:
        """Raw points ``batch x q x d``, checked, in transformed space, float64.

        Raises:
            ShapeError, InputError, BoundsError: for points where the process is not defined.
        """
        bounds, transform = self.bounds, getattr(self, "input_transform", None)
        units.check_points(X, self._dim, bounds)
        return units.transformed_inputs(transform, X)

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
            ShapeError, InputError, BoundsError: for points where the process is not defined. Those
                up to a tenth of the box outside of it are moved to its bounds, with a warning:
                BoTorch draws some there to bound an objective from below.
        """
        if self.training:
            self.eval()
        if self.num_outputs == 1:  # lists of models pass the output's place among all of theirs
            output_indices = None
        snapshot = self._snapshot()
        Z = self._transformed(self._moved_inside(X))
        noise: Tensor | None = None
        if not isinstance(observation_noise, bool):
            noise = units.added_noise(observation_noise, X, self.num_outputs)
        elif observation_noise:
            noise = snapshot.typical_noise().unsqueeze(-1)
        if output_indices is not None:
            snapshot = snapshot.of_outputs(output_indices)
            noise = None if noise is None else noise[..., output_indices, :]
        joint = snapshot.process.at(Z)
        posterior = botorch_posterior(joint, noise, snapshot.outcome_transform, X)
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

    @lasting
    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> GaussianModel:
        """Condition on more data by exact Gaussian conditioning of the joint posterior (MATHS 1).

        Args:
            X: ``batch_shape x n x d`` raw points.
            Y: ``batch_shape' x n x m`` raw values; ``batch_shape'`` may have leading fantasy
                dimensions that share X.
            noise: Variances ``... x (n | 1) x m``, outcome-transformed, whose batch dimensions
                broadcast with those of ``Y``; by default the typical.
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
        units.check_tensors(X=X, Y=Y)
        Z = self.transformed(X).clone()
        units.check_rows("Y", Y, X, self.num_outputs, self.dtype)
        units.check_outcomes(Y)
        if noise is not None:
            noise = units.added_noise(noise, Y, self.num_outputs)
        snapshot = self._snapshot()
        noise = snapshot.typical_noise().unsqueeze(-1) if noise is None else noise
        targets = self._outcomes(Y, None, X)[0].mT.clone()
        noise = noise.expand(torch.broadcast_shapes(noise.shape, targets.shape[-2:])).clone()
        process = conditioned_on(snapshot.process, Z, targets, noise)  # clones: X and Y may change
        return ConditionedPosterior(self, replace(snapshot, process=process))

    def subset_output(self, idcs: list[int]) -> GaussianModel:
        """Select outputs as a snapshot; selecting all returns the model itself."""
        if list(idcs) == list(range(self.num_outputs)):
            return self
        kept = self._snapshot().of_outputs(idcs)
        return ConditionedPosterior(self, kept, len(idcs))

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
        if observation_noise is None:
            observation_noise = self.typical_noise().unsqueeze(0).to(self._interface)
        units.check_tensors(X=X, observation_noise=observation_noise)
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> GaussianModel:
        """Condition on raw ``inputs`` and transformed ``targets``, ``noise``: ``batch_shape x n``.

        `ModelListGP.condition_on_observations` calls this on each of its models.
        """
        if self.num_outputs != 1:
            raise UnsupportedError(
                "models of one output in a ModelListGP",
                f"{self.num_outputs} outputs",
                "Condition this surrogate directly, or join single-output ones.",
            )
        transform = getattr(self, "outcome_transform", None)
        if transform is not None and inputs.ndim == 2 and targets.ndim == 2 and len(targets) == 1:
            targets = targets[0]  # a ModelListGP's transforms add a dimension to plain targets
        Y = targets.unsqueeze(-1)
        if transform is not None:
            Y = transform.untransform(Y.double(), X=inputs)[0].to(inputs)
        if noise is not None:  # for a single point, a ModelListGP may drop its dimension
            noise = noise.unsqueeze(-1) if noise.ndim else noise.reshape(1, 1)
        return self.condition_on_observations(inputs, Y, noise, **kwargs)

    # -- transforms are frozen: no mode switching, no training inputs to revert ------------------

    @property
    def train_targets(self) -> Tensor:
        """No values; BoTorch's input constructors ask for dtype and device."""
        return self._interface.as_subclass(MissingTargets)

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

    def _moved_inside(self, X: Tensor) -> Tensor:
        """Points of a posterior, checked; those slightly outside are moved to the bounds."""
        try:
            units.check_points(X, self._dim, self.bounds)
        except BoundsError:
            units.check_points(X, self._dim, self.bounds, OUTSIDE)
            low, high = cast(Tensor, self.bounds).to(X)
            warnings.warn(
                "Predictions outside of the bounds are those at the bounds.",
                InputDataWarning,
                stacklevel=3,
            )
            return X.clamp(low, high)
        return X

    def _transformed(self, X: Tensor) -> Tensor:
        """Raw points in transformed space, float64."""
        return units.transformed_inputs(getattr(self, "input_transform", None), X)

    def _raw_inputs(self, X: Tensor) -> Tensor:
        """Untransform inputs, float64; a copy."""
        return units.raw_inputs(getattr(self, "input_transform", None), X)

    def _outcomes(self, Y: Tensor, Yvar: Tensor | None, X: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raw outcomes and noise in transformed space, ``batch x n x m``, float64."""
        return units.transformed_outcomes(self.outcome_map(), Y, Yvar, X)

    @property
    def _frozen_outcomes(self) -> OutcomeTransform | None:
        """``outcome_transform`` without what a family adds to it."""
        return cast(OutcomeTransform | None, dict(self.named_children()).get("outcome_transform"))

    @property
    def dtype(self) -> torch.dtype:
        """The interface's dtype; state and factorisations are always float64."""
        return self._interface.dtype


class ConditionedPosterior(GaussianModel):
    """A surrogate's posterior given more (real or fantasized) data.

    It is a frozen snapshot: later changes of the surrogate do not affect it, and it learns nothing.
    BoTorch can condition and fantasize on it again. Shapes and scales are those of the surrogate;
    `batch_shape` is ``fantasies x batch``.
    """

    def __init__(
        self,
        parent: GaussianModel,
        snapshot: PosteriorSnapshot,
        outputs: int | None = None,
    ) -> None:
        sizes = (parent._dim, parent.num_outputs if outputs is None else outputs)
        inputs, outcomes = getattr(parent, "input_transform", None), snapshot.outcome_transform
        super().__init__(sizes, parent._interface, parent.bounds, inputs, outcomes)
        self._frozen, self.likelihood = snapshot, parent.likelihood
        self.training = False

    @property
    def batch_shape(self) -> Size:
        """Batch shape of the conditioning data: ``fantasies x batch``."""
        return self._frozen.process.batch_shape

    def __getattr__(self, name: str) -> Any:
        if name == "train_inputs":
            raise missing(name)
        if name in ("observe", "fit", "custom_fit", "make_mll", "log_evidence", "log_predictive"):
            raise FrozenError(
                f"`{name}` of a surrogate",
                "a conditioned posterior, which is a frozen snapshot",
                "Use the surrogate, or `copy.deepcopy(surrogate).observe(X, Y)`.",
            )
        return super().__getattr__(name)

    def _snapshot(self) -> PosteriorSnapshot:
        return self._frozen

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast the interface (BoTorch calls ``.to(X)`` freely); the process is not moved."""
        moved = fn(self._interface)
        if moved.device != self._interface.device:
            raise UnsupportedError(
                f"a conditioned posterior to stay on {self._interface.device}",
                f"a move to {moved.device}",
                "Move its surrogate, then condition or fantasize again.",
            )
        self._interface = moved
        return self


def standardised(model: Model) -> Any:
    """A surrogate's posterior as a snapshot in the units of its `Standardize`.

    Tolerances and smoothing widths of BoTorch's acquisition functions and of their optimisation
    are fixed numbers: here they mean the same for outcomes in any unit.

    Args:
        model: The surrogate. Models without a `Standardize`, and those that are no surrogates, are
            returned as they are.
    """
    if not isinstance(model, GaussianModel) or _standardize_of(model) is None:
        return model
    snapshot = replace(model._snapshot(), outcome_transform=model.outcome_map(raw=False))
    return ConditionedPosterior(model, snapshot)


def shift_and_scale(model: Model) -> tuple[float, float]:
    """Shift and scale from the units of `standardised` to raw ones, of one outcome."""
    transform = _standardize_of(model)
    if transform is None or transform.stdvs.numel() > 1:
        return 0.0, 1.0
    return float(transform.means), float(transform.stdvs)


def _standardize_of(model: Model) -> Standardize | None:
    transform = getattr(model, "outcome_transform", None)
    found = isinstance(model, GaussianModel) and type(transform) is Standardize
    return cast(Standardize, transform) if found else None


class ModelPath(SamplePath):
    """Sample functions of a surrogate's posterior at the time of construction, in raw units.

    Called at raw points ``batch x q x d`` it returns ``batch' x q`` for one output, where
    ``batch'`` is ``batch`` broadcast with ``sample_shape x batch_shape``; for ``m`` outputs, points
    ``batch x (1 | m) x q x d`` give ``batch' x m x q``, as in BoTorch. Differentiable in points.
    """

    def __init__(self, model: GaussianModel, sample_shape: Size) -> None:
        super().__init__()
        self._outputs = model.num_outputs
        self._transformed: Callable[[Tensor], Tensor] = model.transformed
        self._draws = model.process().path(sample_shape)
        outcomes = model.outcome_map()
        self._untransform = (
            None if outcomes is None else OutcomeUntransformer(outcomes, self._outputs)
        )

    def forward(self, X: Tensor) -> Tensor:
        """Values of the sample functions at X; see the class for shapes."""
        Z = self._transformed(X)
        if self._outputs == 1:
            values = self._draws(Z).squeeze(-2)
        elif Z.ndim == 2 or Z.shape[-3] == 1:
            values = self._draws(Z if Z.ndim == 2 else Z.squeeze(-3))
        elif Z.shape[-3] == self._outputs:
            each = [self._draws(Z[..., i, :, :])[..., i, :] for i in range(self._outputs)]
            values = torch.stack(each, -2)
        else:
            raise ShapeError(
                f"points `batch x (1 or {self._outputs}) x q x d` for {self._outputs} outputs",
                f"{tuple(X.shape)}",
                "Insert the output dimension before the points: X.unsqueeze(-3).",
            )
        return (values if self._untransform is None else self._untransform(values)).to(X.dtype)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: no surrogate here is an ensemble."""


@DrawMatheronPaths.register(GaussianModel)  # type: ignore[untyped-decorator]
def _draw(
    model: GaussianModel,
    *,
    sample_shape: Size,
    prior_sampler: Any = draw_kernel_feature_paths,
    update_strategy: Any = gaussian_update,
) -> ModelPath:
    if prior_sampler is not draw_kernel_feature_paths or update_strategy is not gaussian_update:
        raise UnsupportedError(
            "the default prior_sampler and update_strategy",
            "others",
            f"{type(model).__name__} draws its own sample functions; leave both out.",
        )
    return ModelPath(model, sample_shape)
