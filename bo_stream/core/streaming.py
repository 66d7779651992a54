"""The base of every surrogate: what is true of all families, once.

A family says three things: how its state absorbs a batch (`_absorb`), what its posterior process is
(`_build_process`), and what its hyperparameters climb (`_objective`). Input checks, frozen
transforms, noise models and fitting are here; posteriors and fantasies in `bo_stream.core.model`;
state, its saving and its moves in `bo_stream.core.state`.

The way of an observation: `observe` -> check -> transform -> `_absorb`.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from torch import Tensor

from bo_stream.core import conditioned
from bo_stream.core.checks import checked_bounds, noise_mode_of, sizes_of
from bo_stream.core.model import ProcessModel, check_noise, check_noise_fits, refuse_unknown
from bo_stream.core.modules import default_kernel, default_likelihood, frozen_transform
from bo_stream.core.state import Memo, StateBuffers
from bo_stream.errors import InputError, NoiseError, ShapeError, UnsupportedError
from bo_stream.fitting.bfgs import fit_model
from bo_stream.fitting.objective import StreamMLL
from bo_stream.fitting.report import FitReport
from bo_stream.linalg import chol_psd
from bo_stream.posterior.process import PosteriorProcess

__all__ = ["Promises", "StreamingGP"]


class Promises:
    """What a family promises, declared on the class and tested by the streaming contract.

    Attributes:
        order_invariant: One batch equals many, in any order, and a fantasy equals an `observe`.
        bytes_constant: `state_bytes` does not grow with the number of observations.
        updates_without_drift: One-point updates after which the posterior equals a rebuild's.
        multi_output: Takes more than one (independent) output.
    """

    def __init__(
        self,
        *,
        order_invariant: bool,
        bytes_constant: bool,
        updates_without_drift: int,
        multi_output: bool,
    ) -> None:
        self.order_invariant = order_invariant
        self.bytes_constant = bytes_constant
        self.updates_without_drift = updates_without_drift
        self.multi_output = multi_output


class StreamingGP(StateBuffers, ProcessModel, GP):
    """A Gaussian-process surrogate that absorbs data as they come and is a BoTorch model.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances. None: the noise is learned. Given: it is known,
            and with ``likelihood=GaussianLikelihood()`` known up to a learned scale.
        bounds: ``2 x d`` raw bounds, as given to `optimize_acqf`; points outside are refused.
        covar_module: A gpytorch kernel (``batch_shape`` ``[m]`` for hyperparameters per output).
        mean_module: `ConstantMean` or `ZeroMean`.
        likelihood: A `GaussianLikelihood`.
        input_transform: Frozen: used as it is in evaluation mode, learned once from ``train_X``
            in training mode. The transform handed over is copied.
        outcome_transform: Likewise, from ``train_Y``.

    Raises:
        ShapeError, DtypeError, InputError, NoiseError, BoundsError: on data that do not fit.
        UnsupportedError: on modules or transforms that a stream cannot have.
    """

    promises: ClassVar[Promises]

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None,
        *,
        bounds: Tensor | None,
        covar_module: Kernel | None,
        mean_module: Mean | None,
        likelihood: Likelihood | None,
        input_transform: InputTransform | None,
        outcome_transform: OutcomeTransform | None,
    ) -> None:
        super().__init__()
        self._dim, self._num_outputs = sizes_of(train_X, train_Y, train_Yvar)
        if self.num_outputs > 1 and not self.promises.multi_output:
            raise UnsupportedError(
                f"one output for {type(self).__name__}",
                f"{self.num_outputs}",
                "Build one surrogate per output and join them in a botorch ModelListGP.",
            )
        self.register_buffer("bounds", checked_bounds(bounds, train_X))
        self.register_buffer("_interface", train_X.new_empty(0), persistent=False)
        self._check_batch(train_X, train_Y, train_Yvar, noise_known=train_Yvar is not None)
        if input_transform is not None:
            self.input_transform = frozen_transform(input_transform, train_X)
        if outcome_transform is not None:
            self.outcome_transform = frozen_transform(outcome_transform, train_Y, train_Yvar)
        self.noise_mode = noise_mode_of(train_Yvar, likelihood)
        self.covar_module = covar_module or default_kernel(self._dim, self.num_outputs)
        self.mean_module = mean_module or ConstantMean(batch_shape=self._batch())
        if type(self.mean_module) not in (ConstantMean, ZeroMean):
            raise UnsupportedError(
                "a ConstantMean or a ZeroMean",
                type(self.mean_module).__name__,
                "Subtract other trends from Y before observing it.",
            )
        if self.noise_mode == "known":
            ones = torch.ones(*self._batch(), 1)
            likelihood = FixedNoiseGaussianLikelihood(noise=ones)
        self.likelihood = likelihood or default_likelihood(self._batch())
        self._state: list[str] = []
        self._register_state("_count", torch.zeros((), dtype=torch.int64))
        self._register_state("_noise_sum", torch.zeros(self.num_outputs, dtype=torch.float64))
        self._revision = 0
        self._memo = Memo()
        self._register_state("_curvature", torch.empty(0, 0, dtype=torch.float64))
        self.to(device=train_X.device, dtype=train_X.dtype)

    # -- what a family says ----------------------------------------------------------------------

    @abstractmethod
    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Absorb checked, transformed data: X ``n x d``, Y and Yvar ``o x n``. Fails before it
        writes.
        """

    @abstractmethod
    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        """The posterior process now; `previous` is the last one if no hyperparameter has changed
        since.
        """

    @abstractmethod
    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """What the hyperparameters climb, without priors: 0-dim, differentiable. Writes nothing.

        With ``profile_mean`` it is the value at the best constant means given the rest, which are
        returned beside it (``o``, without gradient; None where nothing tells); else at the present
        ones, and None.
        """

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """Re-express the state for targets ``(y - shift) / factor`` (both ``o``), noise to match.

        Families whose state allows it exactly override it; it writes only the family's own buffers.
        """
        raise UnsupportedError(
            "a family whose state can be re-expressed in other units",
            type(self).__name__,
            "Keep the Standardize it was built with, or rebuild it from the data.",
        )

    def _layout(self) -> dict[str, Any]:
        """What a saved state must agree with to be loaded; families add to it."""
        kinds = [
            type(getattr(self, name, None)).__name__
            for name in ("input_transform", "outcome_transform")
        ]
        return {
            "dim": self._dim,
            "outputs": self.num_outputs,
            "noise": self.noise_mode,
            "transforms": kinds,
        }

    # -- the stream ------------------------------------------------------------------------------

    def observe(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Self:
        """Absorb data in place; any batch size.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x m`` raw outcomes.
            Yvar: ``n x m`` raw noise variances, for a surrogate of known noise only.

        Returns:
            The surrogate itself.

        Raises:
            ShapeError, DtypeError, InputError, NoiseError, BoundsError: before anything has
            changed.
        """
        self._check_batch(X, Y, Yvar, noise_known=self.noise_mode != "learned")
        if X.shape[0] == 0:
            return self
        with torch.no_grad():
            Y_t, Yvar_t = self._outcomes(Y, Yvar, X)
            self._take(self._transformed(X), Y_t.mT, None if Yvar_t is None else Yvar_t.mT)
            self._keep_incumbents(X, Y)
        return self

    def restandardise(self, Y: Tensor) -> Self:
        """Standardise by these outcomes from now on, the state re-expressed exactly (MATHS 2.2).

        The same surrogate as one built anew on all the data under the new `Standardize`, with the
        hyperparameters at their present values, which are in standardised units: `fit` next. Cost:
        one pass over the state.

        Args:
            Y: ``n x m`` raw outcomes whose mean and standard deviation are to be used: usually
                all that were observed, which who runs the stream records.

        Returns:
            The surrogate itself.

        Raises:
            UnsupportedError: unless it was built with a `Standardize`, or if the family cannot.
            ShapeError, InputError: on outcomes that do not fit.
        """
        old = getattr(self, "outcome_transform", None)
        if not isinstance(old, Standardize):
            raise UnsupportedError(
                "a surrogate built with outcome_transform=Standardize(m)",
                type(old).__name__,
                "Build it with one.",
            )
        if Y.ndim != 2 or Y.shape[1] != self.num_outputs or len(Y) == 0:
            raise ShapeError(
                f"Y `n x {self.num_outputs}`, n >= 1",
                f"{tuple(Y.shape)}",
                "Give one row per observation.",
            )
        if not bool(Y.isfinite().all()):
            raise InputError("finite Y", "NaN or infinite entries", "Drop those rows.")
        new = frozen_transform(
            Standardize(m=self.num_outputs), Y.to(self.get_buffer("_noise_sum").device)
        )
        with torch.no_grad():
            means, stdvs = _coefficients(old)
            new_means, new_stdvs = _coefficients(cast(Standardize, new))
            factor = new_stdvs / stdvs
            self._rescale((new_means - means) / stdvs, factor)
            self.outcome_transform = new
            if self.noise_mode != "learned":
                self.get_buffer("_noise_sum").div_(factor.square())
            self._changed()
        return self

    def _take(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Absorb transformed data and count them."""
        self._absorb(X, Y, Yvar)
        self._counted(X, Yvar)

    def _counted(self, X: Tensor, Yvar: Tensor | None) -> None:
        """Book data that the state has absorbed."""
        self.get_buffer("_count").add_(X.shape[0])
        if Yvar is not None:
            self.get_buffer("_noise_sum").add_(Yvar.sum(-1))
        self._changed()

    def _changed(self) -> None:
        """The state has changed: forget what was derived from it, keep BoTorch's view of the
        noise.
        """
        self._revision += 1
        noise = self._seen_noise()
        if self.noise_mode == "known" and noise is not None:
            cast(Any, self.likelihood).noise = noise.unsqueeze(-1).to(self.dtype)

    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ProcessModel:
        return conditioned.conditioned(self, X, Y, noise)

    def condition_on_observations(  # type: ignore[override]
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> ProcessModel:
        """The surrogate given more data, exactly; it stays untouched itself.

        Args:
            X: ``batch_shape x n x d`` raw points.
            Y: ``batch_shape' x n x m`` raw values; leading fantasy dimensions share X.
            noise: Noise variances like ``Y``, already outcome-transformed; by default those of a
                typical observation.
            kwargs: What BoTorch passes along (``propagate_grads``).

        Returns:
            For unbatched data that need no gradient, a surrogate of the same class with the points
            absorbed (unless explicit noise is given where noise is learned, which its state cannot
            hold); else a `ConditionedPosterior`.
        """
        plain = X.ndim == 2 and Y.ndim == 2 and not (X.requires_grad or Y.requires_grad)
        if plain and noise is not None:
            holds = self.noise_mode != "learned" and noise.ndim == 2 and not noise.requires_grad
            plain = holds and bool((noise > 0).all())
        if not plain:
            return super().condition_on_observations(X, Y, noise, **kwargs)
        refuse_unknown(kwargs)
        self._check_points(X, "X")
        self._check_targets(X, Y)
        if noise is not None:
            check_noise_fits(noise, Y)
            check_noise(noise)
        with torch.no_grad():
            Y_t = self._outcomes(Y, None, X)[0].mT
            child = copy.deepcopy(self)
            child._condition_in_place(
                self._transformed(X), Y_t, self._conditioning_noise(Y_t, noise)
            )
        return child

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Exact conditioning of this very object; families whose `observe` approximates override
        it.
        """
        if X.shape[0]:
            self._take(X, Y, Yvar)

    def _conditioning_noise(self, Y: Tensor, noise: Tensor | None) -> Tensor | None:
        """Noise to absorb with ``Y`` (``o x n``), in the units of the state (scaled noise:
        unscaled).
        """
        if self.noise_mode == "learned":
            return None
        variance = self._mean_noise().unsqueeze(-1) if noise is None else noise.double().mT
        return (variance / self._noise_scale().unsqueeze(-1)).expand(Y.shape)

    def log_predictive(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Tensor:
        """Log density of new data before they are absorbed: the prequential score, 0-dim, in raw
        units.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x m`` raw outcomes.
            Yvar: ``n x m`` raw noise variances, where noise is known.
        """
        self._check_batch(X, Y, Yvar, noise_known=self.noise_mode != "learned")
        if not X.shape[0]:
            return self.get_buffer("_noise_sum").new_zeros(())
        with torch.enable_grad():
            raw = Y.detach().double().requires_grad_()
            Y_t, Yvar_t = self._outcomes(raw, Yvar, X)
            (slope,) = torch.autograd.grad(Y_t.sum(), raw)
        with torch.no_grad():
            latent = self._process().at(self._transformed(X))
            noise = self._noise_scale().unsqueeze(-1).expand(Y_t.mT.shape)
            noise = noise if Yvar_t is None else noise * Yvar_t.mT
            chol = chol_psd(latent.covariance(latent) + torch.diag_embed(noise))
            law = torch.distributions.MultivariateNormal(latent.mean, scale_tril=chol)
            return law.log_prob(Y_t.mT).sum() + slope.abs().log().sum()

    @property
    def num_observed(self) -> int:
        """How many observations the state holds."""
        return int(self.get_buffer("_count"))

    def subset_output(self, idcs: list[int]) -> ProcessModel:
        """Some of the outputs, as a snapshot; all of them: the surrogate itself."""
        if list(idcs) == list(range(self.num_outputs)):
            return self
        return conditioned.subset(self, idcs)

    # -- incumbents ------------------------------------------------------------------------------

    def track_incumbents(self, k: int) -> Self:
        """Keep the k best points observed from now on (one output), for an acquisition's
        X_baseline.
        """
        if self.num_outputs != 1 or k < 1:
            raise InputError(
                "one output and k >= 1",
                f"{self.num_outputs} outputs, k = {k}",
                "Keep points yourself.",
            )
        self._incumbent_limit = k
        self._register_state("_incumbent_X", torch.empty(0, self._dim, dtype=torch.float64))
        self._register_state("_incumbent_Y", torch.empty(0, dtype=torch.float64))
        return self

    @property
    def incumbents(self) -> Tensor | None:
        """The best points seen, raw, best first, ``k x d``; None unless `track_incumbents` was
        called.
        """
        if "_incumbent_X" not in self._state:
            return None
        return self.get_buffer("_incumbent_X").to(self.dtype)

    def _keep_incumbents(self, X: Tensor, Y: Tensor) -> None:
        if "_incumbent_X" not in self._state:
            return
        points = torch.cat([self.get_buffer("_incumbent_X"), X.double()])
        values = torch.cat([self.get_buffer("_incumbent_Y"), Y[:, 0].double()])
        best = values.argsort(descending=True, stable=True)[: self._incumbent_limit]
        self._incumbent_X, self._incumbent_Y = points[best], values[best]

    # -- hyperparameters -------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The log evidence (families say where it is a bound), summed over outputs, without priors.

        0-dim, constants included, differentiable in every hyperparameter.
        """
        return self._objective(profile_mean=False)[0]

    def make_mll(self) -> MarginalLogLikelihood:
        """The objective of `fit`, for `fit_gpytorch_mll`: evidence (or bound) plus log priors."""
        return StreamMLL(self)

    @property
    def refit_due(self) -> bool:
        """Whether the surrogate itself says that it is time to `fit`; without a schedule, never."""
        return False

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started from where they are.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        return fit_model(self, max_evals)

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`. A user's optimizer is honoured, a closure refused.

        Without an optimizer, ``optimizer_kwargs`` may hold ``max_evals`` (or, as BoTorch's default
        optimizer has it, ``options={"maxiter": ...}``).

        Raises:
            UnsupportedError: if a closure is given: the objective is the family's.
        """
        if closure is not None or closure_kwargs:
            raise UnsupportedError(
                "no closure", "a user's closure", "Change priors or pass an optimizer instead."
            )
        if optimizer is None:
            wanted = optimizer_kwargs or {}
            self.fit(wanted.get("max_evals", wanted.get("options", {}).get("maxiter")))
        else:
            own = mll if isinstance(mll, StreamMLL) else self.make_mll()
            own.train()
            optimizer(own, closure=cast(StreamMLL, own).closure(), **(optimizer_kwargs or {}))
            own.eval()
        return mll.eval()

    def _noise_scale(self) -> Tensor:
        """What multiplies the noise held in the state (``o``): the learned noise or scale, or
        one.
        """
        if self.noise_mode == "known":
            return self.get_buffer("_noise_sum").new_ones(self.num_outputs)
        noise = cast(Tensor, self.likelihood.noise).double()
        return noise.reshape(-1).expand(self.num_outputs)

    def _prior_mean(self) -> Tensor:
        """The constant prior mean (``o``), float64, differentiable."""
        if isinstance(self.mean_module, ZeroMean):
            return self.get_buffer("_noise_sum").new_zeros(self.num_outputs)
        return self.mean_module.constant.double().reshape(-1).expand(self.num_outputs)

    def _set_prior_mean(self, means: Tensor) -> None:
        """Write constant prior means (``o``) to the mean module."""
        module = cast(ConstantMean, self.mean_module)
        module.constant = means.reshape(module.constant.shape).to(module.constant)

    def _seen_noise(self) -> Tensor | None:
        """Running mean of the noise variances seen (``o``), before any learned scale."""
        count = self.get_buffer("_count")
        return self.get_buffer("_noise_sum") / count if int(count) else None

    def _typical_noise_or_none(self) -> Tensor | None:
        if self.noise_mode == "learned":
            return self._noise_scale().detach().clone()  # no view of the parameter
        seen = self._seen_noise()
        return None if seen is None else self._noise_scale().detach() * seen

    # -- derived quantities ----------------------------------------------------------------------

    def _hyperparameters(self, means: Tensor | None = None) -> Tensor:
        """All hyperparameter values, flat, with these constant means (``o``) if they are given.

        Setters write through ``.data``: only values tell a change.
        """
        constants = list(self.mean_module.parameters()) if means is None else [means]
        parameters = [*self.covar_module.parameters(), *self.likelihood.parameters(), *constants]
        values = [p.detach().reshape(-1).double() for p in parameters]
        return torch.cat(values) if values else self.get_buffer("_noise_sum").new_empty(0)

    def _process(self) -> PosteriorProcess:
        values = self._hyperparameters()
        previous = self._memo.value if self._memo.fits(values) else None
        if previous is None or self._memo.revision != self._revision:
            with torch.no_grad():
                previous = self._build_process(previous)
            self._memo = Memo(previous, values.clone(), self._revision)
        return previous

    def _batch(self) -> torch.Size:
        return torch.Size([self.num_outputs] if self.num_outputs > 1 else [])

    # -- checks ----------------------------------------------------------------------------------

    def _check_batch(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, *, noise_known: bool) -> None:
        self._check_points(X, "X")
        if X.ndim != 2 or Y.ndim != 2:
            raise ShapeError(
                "X `n x d` and Y `n x m`",
                f"{tuple(X.shape)} and {tuple(Y.shape)}",
                "Surrogates are unbatched; build one per batch.",
            )
        self._check_targets(X, Y)
        if (Yvar is not None) != noise_known:
            raise NoiseError(
                "Yvar with every batch" if noise_known else "no Yvar",
                "none" if noise_known else "Yvar",
                "A surrogate is built with known noise (train_Yvar) or without, and stays so.",
            )
        if Yvar is not None:
            if Yvar.shape != Y.shape or Yvar.dtype != Y.dtype:
                raise ShapeError(
                    f"Yvar like Y, {tuple(Y.shape)} {Y.dtype}",
                    f"{tuple(Yvar.shape)} {Yvar.dtype}",
                    "Give one variance per value.",
                )
            check_noise(Yvar)


def _coefficients(transform: Standardize) -> tuple[Tensor, Tensor]:
    """Means and standard deviations, each ``o``."""
    return transform.means.reshape(-1), transform.stdvs.reshape(-1)
