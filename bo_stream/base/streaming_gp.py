"""The base of every surrogate: construction, data, conditioning and saving.

A family supplies its state before any data (`_empty_state`), how the state absorbs a batch
(`_absorb`), the posterior process (`_build_process`), and the objective of its hyperparameters
(`_objective`). BoTorch's interface is in `bo_stream.base.gaussian_model`. `FeatureGP` is the base
of families that choose features; models of other outcomes are built around a surrogate, as a
`CompositeModel`.

Thread safety: any number of threads may compute posteriors while one thread observes or fits; each
posterior is that before or after a change. Only one thread may write. `state_dict`, ``deepcopy``
and ``to`` belong to the writing thread.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import (
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NoReturn,
    Self,
    Unpack,
    cast,
)

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch.optim.closures.core import ForwardBackwardClosure
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Size, Tensor, nn
from typing_extensions import TypeVar

from bo_stream.base import checkpoint, options, units
from bo_stream.base.fitting import (
    FitReport,
    Fittable,
    StreamMLL,
    check_evaluations,
    fit_model,
    shortfall,
)
from bo_stream.base.gaussian_model import PosteriorSnapshot, missing
from bo_stream.base.stream import (
    Derived,
    Key,
    StateLock,
    Stream,
    StreamBuffers,
    all_or_nothing,
    exclusive,
    fingerprint,
    numbers_of,
)
from bo_stream.errors import (
    InputError,
    NoiseError,
    ShapeError,
    StateError,
    UnsupportedError,
    is_number,
)
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.kernels import Prior, shortest_lengths
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import PosteriorProcess, conditioned_on
from bo_stream.mathematics.shapes import DataclassInstance, Rows, loaded
from bo_stream.mathematics.sums import FeatureStatistics, SufficientStatistics

__all__ = [
    "CompositeModel",
    "FeatureGP",
    "PredictiveScore",
    "Promises",
    "StreamingGP",
    "emptied",
    "fill",
]


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Guarantees declared on a family's class and tested by the streaming contract.

    Attributes:
        order_invariant: Batch sizes and order of the data do not matter, and fantasizing equals
            `observe`.
        bytes_constant: `state_bytes` does not grow with the number of observations.
        updates_without_drift: Number of one-point updates after which the posterior still equals
            that of a rebuild.
        multi_output: Several (independent) outputs are supported.
        additive: The state is a sum over observations (`bo_stream.mathematics.sums`), so streams
            can be merged and observations forgotten.
        keeps_data: The state is the observations themselves.
        rebuilds: The state is no sum, but one built from all observations at once serves as well.
        takes_modules: Kernels, means and likelihoods of one's own are supported.
    """

    order_invariant: bool
    bytes_constant: bool
    updates_without_drift: int
    multi_output: bool
    additive: bool = False
    keeps_data: bool = False
    rebuilds: bool = False
    takes_modules: bool = True


S = TypeVar("S", bound=DataclassInstance, covariant=True, default=DataclassInstance)
"""The state of a family: a dataclass of tensors (`bo_stream.mathematics.shapes`). Covariant,
although methods take it: only the surrogate itself passes it to them."""
F = TypeVar("F", bound=FeatureStatistics, covariant=True, default=FeatureStatistics)


ROUNDS = 2
"""A fit selects features at most this many times, with a fit of the hyperparameters after each."""
PREDICT = "To learn hyperparameters, call `fit`; to predict, `posterior`."
WITHOUT_DATA = ("class", "version", "dim", "outputs", "noise", "kernel")
"""Entries of a header that must match if only hyperparameters are loaded."""
LEAST_NOISE = 1e-12
"""Smallest noise variance that float64 sums can hold, as a share of the prior variance."""


class PredictiveScore(NamedTuple):
    """The score of a prediction; all 0-dim.

    Attributes:
        log_density: Log density of the data in raw units, nats.
        shortfall: Expected minus actual log density under the prediction, nats.
        variance: Variance of the shortfall if the prediction is right.
    """

    log_density: Tensor
    shortfall: Tensor
    variance: Tensor


class StreamingGP(checkpoint.Saveable, Fittable, Generic[S]):
    """A Gaussian-process surrogate on a stream of data, with BoTorch's model interface.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances; None to learn the noise. With
            ``likelihood=GaussianLikelihood()``, they are known up to a learned scale.
        common: Options of every family; see `bo_stream.base.options.CommonOptions`.

    Raises:
        ShapeError, DtypeError, InputError, NoiseError, BoundsError: if the data are invalid.
        UnsupportedError: for modules or transforms that are not supported on a stream.
    """

    promises: ClassVar[Promises]
    needs_bounds: ClassVar[bool] = False
    """Whether the family requires the bounds of its inputs."""
    conditions_up_to: ClassVar[int] = 0
    """Points that a posterior is conditioned on before it is built anew from the state."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        options.publish_signature(cls)

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        **common: Unpack[options.CommonOptions],
    ) -> None:
        given = options.with_defaults(common)
        dim, outputs = units.sizes_of(train_X, train_Y)
        if outputs > 1 and not self.promises.multi_output:
            raise UnsupportedError(
                f"one output for {type(self).__name__}",
                f"{outputs}",
                "Build one surrogate per output and join them in a botorch ModelListGP.",
            )
        bounds = units.bounds_for(given["bounds"], given["input_transform"], train_X)
        units.check_batch(
            train_X,
            train_Y,
            train_Yvar,
            (dim, outputs),
            train_X.dtype,
            bounds,
            train_Yvar is not None,
        )
        inputs = units.input_transform_for(given["input_transform"], train_X, bounds)
        choice = given["outcome_transform"]
        outcomes = units.outcome_transform_for(choice, train_Y, train_Yvar)
        super().__init__((dim, outputs), train_X, bounds, inputs, outcomes)
        self._outcomes_left_out, self._loads_data = choice is DEFAULT, given["loads_data"]
        batch = Size([outputs] if outputs > 1 else [])
        self.covar_module = given["covar_module"] or options.default_kernel(dim, batch)
        self.mean_module = options.mean_for(given["mean_module"], batch)
        noise = options.noise_model(train_Yvar, given["likelihood"], batch)
        self.noise_mode, self.likelihood = noise
        self._lock, self._posterior = StateLock(), Derived[PosteriorSnapshot]()
        self.stream = StreamBuffers(Stream.empty(outputs))
        self.to(device=train_X.device, dtype=train_X.dtype)

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **extra: Any) -> dict[str, Any]:
        """Constructor arguments from a data set; called by BoTorch and Ax.

        A surrogate built from them loads only hyperparameters from a `state_dict`, which Ax's
        cross-validation requires.

        Args:
            training_data: Inputs, outcomes, and noise variances or None.
            extra: Further constructor arguments (in Ax: ``model_options``).

        Raises:
            UnsupportedError: for arguments that the constructor does not take.
        """
        unknown = sorted(set(extra) - set(inspect.signature(cls).parameters))
        if unknown:
            raise UnsupportedError(
                f"options of {cls.__name__}, and a search space of plain numbers",
                ", ".join(unknown),
                "Check the spelling; encode categories as numbers (in Ax, by its transforms).",
            )
        inputs: dict[str, Any] = {**super().construct_inputs(training_data), "loads_data": False}
        if "train_Yvar" in inputs:
            inputs["train_Yvar"] = options.with_floor(inputs["train_Yvar"], inputs["train_Y"])
        bounds = extra.get("bounds")
        unit = cls.needs_bounds and bounds is None and extra.get("grid") is None
        if isinstance(bounds, Tensor | list | tuple):
            value = torch.as_tensor(bounds, dtype=torch.float64)
            unit = value.ndim == 2 and value.T.unique(dim=0).tolist() == [[0.0, 1.0]]
        return {**inputs, **extra, **({"bounds": "unit"} if unit else {})}

    def __getattr__(self, name: str) -> Any:
        if name == "train_inputs":
            raise missing(name)
        return super().__getattr__(name)

    def _begin(self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None) -> None:
        """Finish construction: create the empty state and absorb the first data."""
        self._replace(state=self._empty_state())
        if len(train_X):
            self._absorb_batch(train_X, train_Y, train_Yvar)
        self.eval()

    # -- implemented by a family -----------------------------------------------------------------

    @abstractmethod
    def _empty_state(self) -> S:
        """The state before any data: a dataclass of tensors (`bo_stream.mathematics.shapes`)."""

    @abstractmethod
    def _absorb(self, state: S, rows: Rows) -> S:  # type: ignore[misc]
        """The state after absorbing at least one row; the old state is not changed.

        If the noise is learned, ``rows.R`` is ``1 x n`` of ones, else ``o x n``.
        """

    @abstractmethod
    def _build_process(self, state: S) -> PosteriorProcess:  # type: ignore[misc]
        """The frozen posterior process, without gradients to hyperparameters."""

    def _to_condition(self, process: PosteriorProcess, points: int) -> PosteriorProcess | None:
        """An earlier process that, given the points absorbed since, is the current posterior.

        Args:
            process: The last posterior under the current hyperparameters.
            points: Number of points absorbed since, at most `conditions_up_to`.

        Returns:
            None if the posterior must be built from the state, as where `_absorb` approximates.
        """
        return process

    def _choose_features(self, state: S, rows: Rows) -> S:  # type: ignore[misc]
        """The state with features to suit rows that are about to be absorbed.

        For families that choose features of a sum.
        """
        return state

    def _search(self, max_evals: int | None) -> FitReport:
        """What `fit` does: set the hyperparameters to those that maximise the objective."""
        return fit_model(self, max_evals)

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Bring the state up to date with new hyperparameters, where it depends on them.

        Called after every fit, also by a user's optimizer, and when others are loaded.

        Args:
            saved: The saved `state_dict` that they are from, in whose stream fits may have left
                more than parameters; None after a fit.
        """

    def _fit_if_due(self) -> None:
        """Fit after a batch if the family refits by itself; by default it does not."""

    def _layout(self) -> dict[str, Any]:
        """Properties that a saved state must share to be loaded; families add to it."""
        transforms = getattr(self, "input_transform", None), self._frozen_outcomes
        return {
            "dim": self._dim,
            "outputs": self.num_outputs,
            "noise": self.noise_mode,
            "kernel": fingerprint(self.covar_module),
            "transforms": [type(transform).__name__ for transform in transforms],
        }

    def _sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter; families add to it."""
        return {"d": self._dim, "o": self.num_outputs, "p": len(self._numbers())}

    def _options(self) -> dict[str, Any]:
        """The family's own options for a checkpoint, read from attributes of the same names."""
        return {name: getattr(self, name) for name in options.own_options(type(self))}

    def _arguments(self) -> dict[str, Any]:
        """The arguments of its constructor by name, with no data."""
        X = torch.empty(0, self._dim, dtype=self.dtype)
        Y = X.new_empty(0, self.num_outputs)
        likelihood = {} if self.noise_mode == "known" else {"likelihood": self.likelihood}
        return {
            "train_X": X,
            "train_Y": Y,
            "train_Yvar": None if self.noise_mode == "learned" else Y,
            "bounds": self.bounds,
            "covar_module": self.covar_module,
            "mean_module": self.mean_module,
            "input_transform": getattr(self, "input_transform", None),
            "outcome_transform": self._frozen_outcomes,
            **likelihood,
            **self._options(),
        }

    # -- data ------------------------------------------------------------------------------------

    @exclusive  # so that posteriors wait for a fit that follows
    def observe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, refit: bool | None = None
    ) -> Self:
        """Absorb data in place, in batches of any size; if they are refused, nothing has changed.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x m`` raw outcomes.
            Yvar: ``n x m`` raw noise variances, required if and only if the noise is known.
            refit: Whether to `fit` afterwards. By default only `OnlineSGPR` does, on its schedule.

        Raises:
            ShapeError, DtypeError, InputError, NoiseError, BoundsError: if the data are invalid.
        """
        self._check_batch(X, Y, Yvar)
        if X.shape[0]:
            self._absorb_batch(X, Y, Yvar)
            if refit:
                self.fit()
            elif refit is None:
                self._fit_if_due()
        return self

    @all_or_nothing
    def _absorb_batch(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, *, same_features: bool = False
    ) -> None:
        """Absorb raw, checked data."""
        Y_t, Yvar_t = self._outcomes(Y, Yvar, X)
        R = torch.ones_like(Y_t[:, :1]) if Yvar_t is None else Yvar_t
        rows = Rows(self._transformed(X).clone(), Y_t.mT.clone(), R.mT.clone())
        self._absorb_rows(rows, same_features=same_features)

    def _absorb_rows(self, rows: Rows, *, same_features: bool = False) -> None:
        """Absorb transformed data as a step of a change, with features to suit them or the same."""
        buffers, learned = self.stream, self.noise_mode == "learned"
        stream, state = buffers.contents, cast(S, buffers.contents.state)
        changed = buffers.replaced(
            buffers.version.absorbing(rows, self.conditions_up_to),
            state=self._absorb(
                state if same_features else self._choose_features(state, rows), rows
            ),
            count=stream.count + len(rows.X),
            noise_sum=stream.noise_sum if learned else stream.noise_sum + rows.R.sum(-1),
        )
        self._set("stream", changed)
        self._show_typical_noise()

    @all_or_nothing
    def restandardise(self, Y: Tensor) -> Self:
        """Replace the standardisation and re-express the state exactly (MATHS 2.2).

        The result equals a rebuild on all data under the new `Standardize`. Hyperparameters keep
        their values, which are in standardised units; call `fit` next.

        Args:
            Y: ``n x m`` raw outcomes to standardise by, usually all observed ones.

        Raises:
            UnsupportedError: if it was built without a `Standardize`, or the family cannot.
            ShapeError, InputError: if the outcomes are invalid.
        """
        stream, old = self.stream.contents, self._frozen_outcomes
        if units.columns_of("Y", Y) != self.num_outputs or not len(Y):
            raise ShapeError(
                f"Y `n x {self.num_outputs}`, n >= 1",
                f"{tuple(Y.shape)}",
                "Give one row per observation.",
            )
        state: Any = self.state
        if not (isinstance(old, Standardize) and hasattr(state, "rescaled")):
            raise UnsupportedError(
                "a surrogate built with outcome_transform=Standardize(m), whose state can be "
                "re-expressed in other units",
                f"{type(self).__name__} with {type(old).__name__}",
                "Rebuild it with one, or from the data.",
            )
        units.check_outcomes(Y)
        new = units.frozen_transform(Standardize(m=self.num_outputs), Y.to(self._like.device))
        shift, factor = units.change_of_units(old.state_dict(), new.state_dict(), self._like)
        state = state.rescaled(shift, factor, self.noise_mode != "learned")
        self._lock.keeps(self, "outcome_transform")
        self.outcome_transform = new
        self._replace(state=state, noise_sum=stream.noise_sum / factor.square())
        return self

    @all_or_nothing
    def forget(self, factor: float) -> Self:
        """Down-weight everything absorbed so far: exponential forgetting (MATHS 2.2).

        Exact: an observation followed by k calls enters posterior and evidence with its
        likelihood to the power ``factor^k``, and the prior replaces what is forgotten.
        `num_observed` and the typical noise of a known-noise surrogate are unchanged.

        Args:
            factor: Above 0 and at most 1; 1 changes nothing. For a half-life of h steps, call it
                once per step with ``0.5 ** (1 / h)``.

        Raises:
            InputError: for any other factor.
            UnsupportedError: if the family's state is not a sum over observations.
        """
        if not is_number(factor, 0.0, 1.0) or not factor:
            raise InputError(
                "a factor above 0 and at most 1",
                repr(factor),
                "Give the weight of past observations from now on, say 0.99.",
            )
        self._check_additive("forget")
        self._replace(state=self.stream.contents.sums.discounted(float(factor)))
        return self

    @all_or_nothing
    def merge(self, other: StreamingGP) -> Self:
        """Add another stream's observations in place, as in map-reduce ingestion. O(m^2).

        Raises:
            UnsupportedError: if the family's state is not a sum over observations.
            StateError: if families, options, transforms or noise modes differ.
        """
        self._check_additive("merge")
        mine = self._layout()
        theirs = other._layout() if isinstance(other, type(self)) else {}
        differ = sorted(n for n in mine.keys() | theirs if theirs.get(n) != mine.get(n))
        for name in ("input_transform", "outcome_transform"):
            if not units.are_equal(getattr(self, name, None), getattr(other, name, None)):
                differ.append(name)
        if differ:
            raise StateError(
                f"a {type(self).__name__} of {mine}, with equal transforms",
                f"{theirs or type(other).__name__} (different: {', '.join(differ)})",
                "Build both streams with the same bounds, options and noise model, and hand both "
                "one transform in eval mode.",
            )
        merged = self.stream.contents.merged(other.stream.contents)
        self._replace(state=merged.state, count=merged.count, noise_sum=merged.noise_sum)
        return self

    def _check_additive(self, what: str) -> None:
        if not self.promises.additive:
            raise UnsupportedError(
                "a family of additive statistics (WISKI, HSGP)",
                f"{type(self).__name__}, which cannot {what}",
                "Use one of those, or rebuild this one on the data to keep.",
            )

    @property
    def num_observed(self) -> int:
        """Number of observations absorbed."""
        return int(self.stream.count)

    @property
    def effective_observations(self) -> float:
        """Total weight of the observations: `num_observed`, less what was forgotten."""
        return float(
            self.stream.contents.sums.weight if self.promises.additive else self.num_observed
        )

    @property
    def state(self) -> S:
        """The family's state."""
        return cast(S, self.stream.contents.state)

    def _replace(self, **changes: Any) -> None:
        """Replace parts of the stream that posteriors depend on."""
        self._set("stream", self.stream.replaced(**changes))
        self._show_typical_noise()

    @property
    def _like(self) -> Tensor:
        """A float64 tensor on the surrogate's device."""
        return self.stream.noise_sum

    def _noise_scale(self) -> Tensor:
        """The scale of the noise held in the state (``o``), differentiable."""
        if self.noise_mode == "known":
            return torch.ones_like(self._like)
        return cast(Tensor, self.likelihood.noise).double().reshape(-1).expand(self._like.shape)

    def _prior_mean(self) -> Tensor:
        """The constant prior mean (``o``), float64, differentiable."""
        if isinstance(self.mean_module, ZeroMean):
            return torch.zeros_like(self._like)
        constant = cast(ConstantMean, self.mean_module).constant
        return constant.double().reshape(-1).expand(self._like.shape)

    def _numbers(self) -> Tensor:
        """All hyperparameters, flat, with a digest of the kernel's settings; see `numbers_of`."""
        return numbers_of(self.covar_module, self.likelihood, self.mean_module).to(self._like)

    def _prior(self) -> Prior:
        """The current hyperparameters, differentiable."""
        return Prior(self.covar_module, self._noise_scale(), self._prior_mean())

    def _noise_of_an_observation(self) -> Tensor | None:
        """The typical noise variance (``o``), transformed; None if no noise was seen."""
        scale = self._noise_scale().detach().clone()  # no view of the parameter
        if self.noise_mode == "learned":
            return scale
        count = self.stream.count
        return scale * self.stream.noise_sum / count if int(count) else None

    def _show_typical_noise(self) -> None:
        """Set a known-noise likelihood, which BoTorch reads, to the mean of the noise seen."""
        mean = self._noise_of_an_observation() if self.noise_mode == "known" else None
        if mean is not None:
            likelihood = cast(FixedNoiseGaussianLikelihood, self.likelihood)
            noise = mean.unsqueeze(-1).to(self._interface)
            self._lock.keeps(likelihood, "noise")
            likelihood.noise = noise

    def _check_batch(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        sizes, known = (self._dim, self.num_outputs), self.noise_mode != "learned"
        units.check_batch(X, Y, Yvar, sizes, self.dtype, self.bounds, known)

    # -- hyperparameters -------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The log evidence summed over outputs, without priors; for some families a lower bound.

        0-dim, with all constants, differentiable in every hyperparameter.
        """
        return self._objective(profile_mean=False)[0]

    def make_mll(self) -> MarginalLogLikelihood:
        """The objective of `fit_gpytorch_mll`: log evidence (or bound) plus log priors."""
        return StreamMLL(self.likelihood, self)

    @property
    def refit_due(self) -> bool:
        """Whether the refit schedule asks for a `fit`; False for families without a schedule."""
        return False

    @exclusive
    @torch.inference_mode(False)
    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, starting from their current values.

        If interrupted, the best hyperparameters found so far are kept. Predictions take the mean as
        known, so the output scale stays at its squared standard error or above.

        Args:
            max_evals: Maximum number of evaluations of objective and gradient; by default the
                fit stops once the gain falls below 0.01 nat.

        Raises:
            InputError: for ``max_evals`` below 1.
        """
        check_evaluations(max_evals)
        try:
            return self._search(max_evals)
        finally:
            self._hyperparameters_changed()

    @exclusive
    @torch.inference_mode(False)
    def custom_fit(
        self,
        /,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`.

        Without an optimizer, ``optimizer_kwargs`` may hold ``max_evals`` or BoTorch's ``options``.

        Raises:
            UnsupportedError: if a closure is given, because the family defines the objective.
        """
        if closure is not None or closure_kwargs:
            raise UnsupportedError(
                "no closure", "a user's closure", "Change priors or pass an optimizer instead."
            )
        options = optimizer_kwargs or {}
        if optimizer is None:
            self.fit(options.get("max_evals", options.get("options", {}).get("maxiter")))
        else:
            objective = mll if isinstance(mll, StreamMLL) else self.make_mll()
            free = {n: p for n, p in objective.train().named_parameters() if p.requires_grad}
            optimizer(
                objective, closure=ForwardBackwardClosure(lambda: -objective(), free), **options
            )
            self._hyperparameters_changed()
        return mll.eval()

    # -- posterior -------------------------------------------------------------------------------

    def _snapshot(self) -> PosteriorSnapshot:
        entry, version = self._posterior.entry, self.stream.version
        if entry is not None and entry[0].version is version and entry[0] == self._key():
            return entry[1]
        return self._lock.during(self._renewed_snapshot)  # waits for a change in progress

    @torch.inference_mode(False)
    @torch.no_grad()
    def _renewed_snapshot(self) -> PosteriorSnapshot:
        """Conditioned from the last one if few points were absorbed since, else built anew."""
        key, before, snapshot = self._key(), self._posterior.entry, None
        if before is not None and before[0].same_but_for_data(key):
            snapshot = self._conditioned(before[1], key.version.since(before[0].version))
        if snapshot is None:
            process, noise = self._build_process(self.state), self._noise_of_an_observation()
            lengths = shortest_lengths(self.covar_module, self._dim)
            snapshot = PosteriorSnapshot(process, noise, self.outcome_map(), lengths)
        self._posterior.entry = key, snapshot
        return snapshot

    def _conditioned(
        self, last: PosteriorSnapshot, batches: Sequence[Rows] | None
    ) -> PosteriorSnapshot | None:
        """The last snapshot given the batches absorbed since; None if it must be built anew."""
        if not batches:
            return None if batches is None else last
        rows = reduce(Rows.joined, batches)
        base = self._to_condition(last.process, len(rows.X))
        if base is None:
            return None
        noise = self._noise_scale().unsqueeze(-1) * rows.R
        try:
            process = conditioned_on(base, rows.X, rows.Y, noise)
        except (NoiseError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return None
        return replace(last, process=process, noise=self._noise_of_an_observation())

    def _key(self) -> Key:
        """Everything that the posterior depends on."""
        modules = (self.covar_module, self.likelihood, self.mean_module)
        return Key(self.stream.version, modules, self._frozen_outcomes)

    def refresh(self) -> None:
        """Compute the next posterior from the state alone, as after loading.

        Otherwise the posterior is updated, and may differ in the last digits.
        """
        self._replace()

    def log_predictive(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Tensor:
        """Joint log density of new raw data before they are absorbed, 0-dim."""
        return self.predictive_score(X, Y, Yvar).log_density

    @torch.no_grad()
    def predictive_score(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> PredictiveScore:
        """`log_predictive` and its deviation from its expectation."""
        self._check_batch(X, Y, Yvar)
        with torch.inference_mode(False), torch.enable_grad():
            raw = Y.detach().double().clone().requires_grad_()
            Y_t, Yvar_t = self._outcomes(raw, Yvar, X)
            (slope,) = torch.autograd.grad(Y_t.sum(), raw)
        mean, covariance = self._moments(self._transformed(X))
        noise = self._noise_scale().unsqueeze(-1).expand(Y_t.mT.shape)
        noise = noise if Yvar_t is None else noise * Yvar_t.mT
        L = chol_psd(covariance + torch.diag_embed(noise))
        residuals = (Y_t.mT.detach() - mean).unsqueeze(-1)
        white = torch.linalg.solve_triangular(L, residuals, upper=False)
        log_density = -0.5 * white.square().sum() - L.diagonal(dim1=-2, dim2=-1).log().sum()
        log_density += slope.abs().log().sum() - 0.5 * white.numel() * math.log(2.0 * math.pi)
        return PredictiveScore(log_density, *shortfall(white))

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean ``o x n`` and covariance ``o x n x n`` at transformed points."""
        joint = self._snapshot().process.at(X)
        return joint.mean, joint.covariance(joint)

    # -- saving ----------------------------------------------------------------------------------

    @all_or_nothing
    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Load hyperparameters and, if it has no data, everything; on an error nothing changes.

        A surrogate built without data (n = 0) takes over the saved data and transforms, also a
        standardisation that the constructor left out, and resumes bit-identically. One that has
        data keeps them and its transforms and takes over the hyperparameters (in units of
        ``outcome_transform``) with what else fits learn: the start of the next fit, as with
        BoTorch's models. It warns if the state is of more observations than it has. The option
        ``loads_data`` decides otherwise.

        Args:
            state_dict: A saved state, a copy of its tensors, or a part of it with ``strict=False``.
            strict: Whether missing and unexpected entries are refused.
            keep_transforms: For BoTorch; without effect.
            assign: For torch; without effect, because tensors are copied.

        Raises:
            StateError: if class, version, layout, keys, shapes or values do not match.
        """
        buffers = (b for name, b in self.named_buffers() if not name.startswith(checkpoint.STREAM))
        self._lock.restores([*self.parameters(), *buffers])
        try:
            return nn.Module.load_state_dict(self, dict(state_dict), strict)
        except StateError:
            raise
        except RuntimeError as error:
            raise StateError(
                f"the state of a {type(self).__name__} built with the same arguments",
                str(error),
                "Build the surrogate with the modules and transforms the saved one had, then load.",
            ) from error

    def _load_from_state_dict(
        self, state_dict: MutableMapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        saved = checkpoint.entries(state_dict, prefix)
        checkpoint.check_values(saved)
        some = checkpoint.EXTRA in saved or any(n.startswith(checkpoint.STREAM) for n in saved)
        full = self.num_observed == 0 if self._loads_data is None else self._loads_data
        full = full and some  # else hyperparameters alone
        self._check_header(saved, full)
        if full:
            stream, tensors = self.stream.contents, checkpoint.entries(saved, checkpoint.STREAM)
            sizes = {**self._sizes(), "n": int(tensors.get("count", stream.count))}
            self._replace(**vars(loaded(stream, tensors, sizes)))
        else:
            self._load_learned(saved)
            of_data = tuple(prefix + name for name in checkpoint.OF_DATA)
            for name in [name for name in state_dict if name.startswith(of_data)]:
                del state_dict[name]  # the data are this surrogate's
            mine = self.state_dict(prefix=prefix).items()
            state_dict.update({name: value for name, value in mine if name.startswith(of_data)})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _load_learned(self, saved: Mapping[str, Any]) -> None:
        """Load what fits learn from a saved `state_dict`."""
        count = int(saved.get("stream.count", 0))
        if self._loads_data is None and count > self.num_observed > 0:
            warnings.warn(
                f"The surrogate keeps its {self.num_observed} observations and takes only the "
                f"hyperparameters of a state of {count}. To resume that state, use `save` and "
                "`bo_stream.load`, or load it into a surrogate built without data (n = 0).",
                stacklevel=5,
            )
        before = [p.detach().clone() for p in self.parameters()]
        for name in ("covar_module", "mean_module", "likelihood"):
            part = checkpoint.entries(saved, f"{name}.")
            getattr(self, name).load_state_dict(part, strict=False)
        if not all(map(torch.equal, self.parameters(), before)):
            self._hyperparameters_changed(saved)

    def _check_header(self, saved: Mapping[str, Any], full: bool) -> None:
        """Refuse a saved `state_dict` of another version or layout; adapt to it if its data are to
        be loaded. Hyperparameters alone need no metadata.
        """
        if checkpoint.EXTRA not in saved and not full:
            return
        header = checkpoint.unpacked(saved.get(checkpoint.EXTRA))
        if full:
            self._adopt(header)
        own = checkpoint.unpacked(checkpoint.packed(self._header()))
        compared = [k for k in own.keys() | header.keys() if full or k in WITHOUT_DATA]
        differs = sorted(key for key in compared if own.get(key) != header.get(key))
        if differs:
            raise StateError(
                f"a state of {own}",
                f"{header} (different: {', '.join(differs)})",
                "Load it into a surrogate built as the saved one was, by the same release.",
            )

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """Adapt to a saved state, given its metadata; families add to it.

        The saved standardisation, or its absence, is taken over if the constructor left it out.
        """
        kind = (header.get("transforms") or [None, None])[1]
        old, name = self._frozen_outcomes, "outcome_transform"
        if not self._outcomes_left_out or {kind, type(old).__name__} != {"Standardize", "NoneType"}:
            return
        self._lock.keeps(self, name)
        if old is None:
            self.outcome_transform = Standardize(m=self.num_outputs).to(self._like).eval()
        else:
            del self.outcome_transform

    def _header(self) -> dict[str, Any]:
        """Class, version and layout, which are checked when a state is loaded."""
        head = {"class": type(self).__name__, "version": checkpoint.STATE_VERSION}
        return {**head, **self._layout()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move everything; cast interface and hyperparameters but never state or transforms."""
        before, device, buffers = (
            self._like.device,
            fn(self._interface).device,
            self.named_buffers(),
        )
        kept = {id(b) for name, b in buffers if name.startswith(checkpoint.OF_DATA)}
        super()._apply(lambda t: t.to(device) if id(t) in kept else fn(t), recurse)
        if self._like.device != before:
            self.refresh()
        return self


class FeatureGP(StreamingGP[F]):
    """A surrogate whose `fit` selects features for the hyperparameters it finds.

    Its state is a set of sums over features (`bo_stream.mathematics.sums`), and either a buffer of
    the first points or sums that hold for any features, from which the sums over others follow
    exactly.

    If a fit is interrupted, the best hyperparameters found under the features in use are kept.
    """

    conditions_up_to = 64
    opening: int

    def _absorb(self, state: F, rows: Rows) -> F:  # type: ignore[misc]
        """A += W'R^-1 W, b += W'R^-1 y, yy += y'R^-1 y, ld += sum log r (MATHS 2.2, 12.2)."""
        self._check_noise(rows.X, rows.R)
        return state.absorb_at(rows, self.num_observed)

    def _check_noise(self, X: Tensor, R: Tensor) -> None:
        """Refuse known noise (``o x n``) too small for float64 sums.

        Raises:
            NoiseError: if a variance is below 1e-12 of the prior variance at its point.
        """
        if self.noise_mode == "learned":
            return
        scale, kernel = self._noise_scale().detach().unsqueeze(-1), self.covar_module
        prior = cast(Tensor, kernel(X[:1], diag=True)).detach().double().reshape(-1, 1)
        least = LEAST_NOISE * prior / scale
        if bool((least > R).any()):
            raise NoiseError(
                f"noise variances of at least {LEAST_NOISE:g} of the prior variance",
                f"{float((R / least).min()) * LEAST_NOISE:.1e} of it",
                "Put a floor under Yvar: sums in float64 cannot tell it from zero.",
            )

    @abstractmethod
    def _better(self) -> F | None:
        """The state over the best features for the current hyperparameters; None if those in use
        serve them.
        """

    @property
    def _all_buffered(self) -> bool:
        """Whether all points seen are still buffered."""
        return self.state.holds_all(self.num_observed)

    def _check_selectable(self, remedy: str) -> None:
        """Refuse to select features if points are no longer buffered.

        Raises:
            StateError: naming the remedy.
        """
        if not self._all_buffered:
            raise StateError(
                "all points seen to be buffered, so that the features can be replaced",
                f"{self.num_observed} seen and at most {self._sizes()['w']} buffered",
                remedy,
            )

    @all_or_nothing
    def _reselected(self) -> bool:
        state = self._better() if self._can_select() else None
        if state is not None:
            self._replace(state=state)
        return state is not None

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters, and features for them while they can be selected.

        Without evaluations left after a selection, which takes none, the report holds the value
        under the previous features.
        """
        due = self.state.worth_choosing(self.num_observed)
        report = super()._search(max_evals)
        for _ in range(ROUNDS if due else 0):
            if not self._reselected():
                break
            left = None if max_evals is None else max_evals - report.evaluations
            if left == 0:
                break
            report = report.and_then(super()._search(left))
        return report

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Select features for loaded hyperparameters, if that is possible."""
        loaded = saved is not None and self.num_observed > 0
        if loaded:
            self._reselected()


class CompositeModel(checkpoint.Saveable, Model):
    """Base of models that predict from the posterior of a surrogate of their own.

    Attributes:
        model: The surrogate.
    """

    model: StreamingGP

    def _streams(self) -> list[StreamingGP]:
        """All surrogates."""
        return [part for part in self.children() if isinstance(part, StreamingGP)]

    def _share_lock(self) -> None:
        for stream in self._streams():
            stream._lock = self._lock

    def __getattr__(self, name: str) -> Any:
        if name in ("train_inputs", "train_targets"):
            raise missing(name, PREDICT)
        return super().__getattr__(name)

    def forward(self, X: Tensor) -> NoReturn:
        """Refuse: `posterior` predicts.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a posterior to be asked for", "a call of the model", PREDICT)

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


@lasting
def emptied(model: StreamingGP) -> StreamingGP:
    """A copy before any data, with hyperparameters, features, warp and transforms of a surrogate.

    Args:
        model: The surrogate, which is not changed.
    """
    made, state = copy.deepcopy(model), model._empty_state()
    if isinstance(state, SufficientStatistics):  # its features, which fits may have chosen
        state = state.along(model.stream.contents.sums, 0)
    elif hasattr(state, "warp"):
        state = replace(state, **{"warp": vars(model.state)["warp"]})
    none = Stream.empty(model.num_outputs)
    made._replace(state=state, count=none.count, noise_sum=none.noise_sum)
    return made


def fill(model: StreamingGP, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
    """Let an emptied surrogate observe data ``n x d``, ``n x m``, with its features as they are."""
    model._check_batch(X, Y, Yvar)
    model._absorb_batch(X, Y, Yvar, same_features=model.promises.additive)
