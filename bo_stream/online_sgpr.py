"""Online SGPR: a sparse Gaussian process whose inducing points grow as the data ask for.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; [VIPS]
Pescador-Barrios, Filippi, van der Wilk 2025, Adjusting Model Size in Continual Gaussian Processes;
mathematics as corrected in MATHS 3 and 4. The update is `bo_stream.sparse`, the choice of
inducing points `bo_stream.growth`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.fitting.bfgs import fit_model
from bo_stream.fitting.report import FitReport
from bo_stream.growth import VIPS, GrowthPolicy
from bo_stream.growth.step import JOIN, Choice, Outcome, step
from bo_stream.posterior.factor import frozen_kernel
from bo_stream.posterior.process import PosteriorProcess
from bo_stream.sparse.bounds import merged_moments, moments_of
from bo_stream.sparse.posterior import SparseProcess
from bo_stream.sparse.state import Batch, SGPRState, empty_state, factor_B
from bo_stream.sparse.update import best_mean, rebase, update

__all__ = ["LastUpdate", "OnlineSGPR"]

PIECES = ("Z", "L", "G", "c", "mean", "kappa")
REFIT_FROM = 20
"""Batches of at least this many points teach hyperparameters by default."""


@dataclass(frozen=True)
class LastUpdate:
    """What the last batch did.

    Attributes:
        kept: Indices of the inducing points before it that stayed.
        entered: Indices of its points that became inducing points, in order of choice.
        lower_bound: The online bound ``L-hat`` reached, in nats, transformed units.
        optimal_bound: ``L*``, what no choice of inducing points can beat; NaN for batches too large
            to work it out.
        upper_bound: ``U-hat``, what was known without ``L*``; NaN if an inducing point was dropped.
    """

    kept: Tensor
    entered: Tensor
    lower_bound: Tensor
    optimal_bound: Tensor
    upper_bound: Tensor


class OnlineSGPR(StreamingGP):
    """Sparse GP with inducing points that a growth policy chooses, updated in closed form.

    With M inducing points: memory O(M^2 + the last batch) whatever has been seen; `observe` of N
    points O(N M^2 + M^3); a posterior O(M^3) once, then O(M^2) a point. One output.

    Hyperparameters are learned from the last batch's online bound, in which the past speaks through
    the function values it left behind: the noise is learned from that batch alone, and what an old
    batch said under its own noise stays as it is. Learned from small or unrepresentative batches
    they drift; keep priors on them, and refit on batches of tens of points or not at all.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
            `StreamingGP`; any gpytorch kernel.
        growth: Which inducing points a batch leaves behind; see `bo_stream.growth`.
        jitter: Added to ``K(Z, Z)``, relative to the prior variance.
        trust: Largest change of the logarithm of a hyperparameter in one fit to any batch but the
            first, against drift; None for no limit.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> model = OnlineSGPR(X[:20], X[:20].sum(-1, keepdim=True))
        >>> model.observe(X[20:], X[20:].sum(-1, keepdim=True), refit=False).num_observed
        40
        >>> bool(model.last_update.lower_bound <= model.last_update.optimal_bound)
        True
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=False,
        updates_without_drift=10_000,
        multi_output=False,
    )

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        growth: GrowthPolicy | None = None,
        jitter: float = 1e-8,
        trust: float | None = None,
    ) -> None:
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            bounds=bounds,
            covar_module=covar_module,
            mean_module=mean_module,
            likelihood=likelihood,
            input_transform=input_transform,
            outcome_transform=outcome_transform,
        )
        self.growth: GrowthPolicy = VIPS() if growth is None else growth
        if isinstance(self.growth, type) or not isinstance(self.growth, GrowthPolicy):
            raise InputError(
                "a growth policy: an object with a method `select(state, batch, kernel)`",
                f"{self.growth!r}",
                "Take one from bo_stream.growth, for example growth=VIPS(0.035).",
            )
        if not 0.0 < jitter < 1e-2:
            raise InputError("a jitter between 0 and 0.01", f"{jitter}", "1e-8 suits float64.")
        if trust is not None and not trust > 0.0:
            raise InputError("a positive trust, or None", f"{trust}", "0.5 allows a factor of 1.6.")
        self.jitter, self.trust = jitter, trust
        nothing = empty_state(train_X, torch.zeros(()), jitter)
        for which in ("now", "before"):
            self._store(which, nothing, self._kernel_values())
        for name in ("batch_y", "batch_r"):
            self._keep(name, nothing.c)
        self._keep("batch_X", nothing.Z)
        self._keep("moments", nothing.c.new_zeros(3))
        self._keep("bounds", nothing.c.new_zeros(4))  # the sum before, then as in LastUpdate
        for name in ("entered", "old_index"):
            self._keep(name, nothing.c.long())
        self._keep("batches", nothing.kappa.long())
        self.observe(train_X, train_Y, train_Yvar, refit=False)
        self.eval()

    # -- what the user sees ----------------------------------------------------------------------

    def observe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, refit: bool | None = None
    ) -> Self:
        """Absorb data in place: choose inducing points, update, and perhaps refit.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x 1`` raw outcomes.
            Yvar: ``n x 1`` raw noise variances, for a surrogate of known noise only.
            refit: Learn hyperparameters from this batch; None: if it has at least 20 points.

        Returns:
            The surrogate itself.

        Raises:
            ShapeError, DtypeError, InputError, NoiseError, BoundsError: before any change.
        """
        super().observe(X, Y, Yvar)
        if X.shape[0] and (X.shape[0] >= REFIT_FROM if refit is None else refit):
            self.fit()
        return self

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters to the last batch's online bound, and replay its update.

        Inducing points stay as they are; see `reselect`. From the second batch on no
        hyperparameter moves further than `trust`.

        Args:
            max_evals: Most objective-and-gradient evaluations, O(N M^2 + M^3) each.
        """
        first = int(self.get_buffer("_batches")) <= 1
        report = fit_model(self, max_evals, None if first else self.trust)
        self._again(reselect=False)
        return report

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`; like `fit`, it ends by replaying the last update."""
        mll = super().custom_fit(
            mll, closure, closure_kwargs, optimizer_kwargs, optimizer, **kwargs
        )
        self._again(reselect=False)
        return mll

    def reselect(self) -> Self:
        """Choose the inducing points of the last batch again, under the hyperparameters it taught.

        Meant for the first batch, whose points were chosen under the hyperparameters a stream
        started with.
        """
        self._again(reselect=True)
        return self

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.get_buffer("_now_Z"))

    @property
    def last_update(self) -> LastUpdate:
        """What the last batch (or conditioning) did to the inducing points, and its bounds."""
        kept = (self.get_buffer("_old_index") >= 0).nonzero().squeeze(-1)
        bounds = self.get_buffer("_bounds")[1:]
        lower, optimal, upper = bounds.masked_fill(bounds.isinf(), torch.nan)
        return LastUpdate(kept, self._entries(), lower, optimal, upper)

    @property
    def bound_sum(self) -> Tensor:
        """Sum of the online bounds of all batches, 0-dim, in nats, transformed units.

        With inducing points and hyperparameters fixed it is the collapsed bound on the evidence of
        all data; with all inputs among the inducing points it is the evidence. Otherwise it is an
        estimate and no bound (MATHS 3.5).
        """
        return self.get_buffer("_bounds")[:2].sum()

    def log_evidence(self) -> NoReturn:
        """Refused: data absorbed earlier are summarised under the hyperparameters of their time."""
        raise UnsupportedError(
            "a family that can give the evidence of all its data",
            "an OnlineSGPR, which keeps only its last batch",
            "`bound_sum` has the sum of the online bounds; `make_mll` the bound that `fit` climbs.",
        )

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "jitter": self.jitter}

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Select, update, and keep what it takes to replay the update."""
        batch, r = self._batch_of(X, Y, Yvar)
        before, values = self._pieces("now"), self._values("now")
        outcome = self._step(before, values, batch, self.growth)
        self._remember(batch, r, outcome, before, values)
        self.get_buffer("_batches").add_(1)

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """X joins the inducing points: exact, whatever the growth policy (MATHS 3.6)."""
        if not X.shape[0]:
            return
        batch, r = self._batch_of(X, Y, Yvar)
        before, values = self._pieces("now"), self._values("now")
        outcome = self._step(before, values, batch, JOIN)
        self._remember(batch, r, outcome, before, values)
        self._counted(X, Yvar)

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """Old likelihoods of function values and the last batch in the new units.

        The bounds stay those worked out in the old units, as densities per new unit.
        """
        s, f = shift[0], factor[0]
        precision = torch.ones_like(f) if self.noise_mode == "learned" else f.square()
        for which in ("now", "before"):
            o = self._pieces(which)
            G, c = precision * o.G, precision / f * o.c
            rescaled = replace(o, G=G, c=c, mean=(o.mean - s) / f, kappa=factor_B(G, c)[2])
            self._store(which, rescaled, self._values(which))
        self._keep("batch_y", (self.get_buffer("_batch_y") - s) / f)
        self._keep("batch_r", self.get_buffer("_batch_r") / precision)
        count, mean, squares = self.get_buffer("_moments")
        self._keep("moments", torch.stack([count, (mean - s) / f, squares / f.square()]))
        N = self.get_buffer("_batch_y").numel()
        points = torch.stack([count - N, *[count.new_tensor(float(N))] * 3])
        self._keep("bounds", self.get_buffer("_bounds") + points * f.log())

    def _batch_of(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> tuple[Batch, Tensor]:
        """The batch under the current noise, and its noise before any learned scale (``N``)."""
        y, r = Y[0], torch.ones_like(Y[0]) if Yvar is None else Yvar[0]
        seen = tuple(self.get_buffer("_moments").tolist())
        moments = merged_moments(cast(tuple[float, float, float], seen), moments_of(y))
        noise = self._noise_scale().detach() * r
        return Batch(X, y, noise, moments, int(self.get_buffer("_batches"))), r

    def _step(
        self, before: SGPRState, values: Tensor, batch: Batch, choose: Choice | GrowthPolicy | str
    ) -> Outcome:
        """`bo_stream.growth.step.step` under the hyperparameters of now."""
        kernel, mean = frozen_kernel(self.covar_module), self._prior_mean().detach()[0]
        return step(before, batch, kernel, mean, choose, same_kernel=self._unchanged(values))

    def _unchanged(self, values: Tensor) -> bool:
        """Whether the kernel has these hyperparameters."""
        return torch.equal(values, self._kernel_values())

    def _remember(
        self, batch: Batch, r: Tensor, outcome: Outcome, before: SGPRState, values: Tensor
    ) -> None:
        """Write a batch and its outcome to the state."""
        total = self.bound_sum
        self._store("before", before, values)
        self._keep("batch_X", batch.X)
        self._keep("batch_y", batch.y)
        self._keep("batch_r", r)
        self._keep("moments", batch.y.new_tensor(batch.moments))
        self._settle(outcome, total)

    def _settle(self, outcome: Outcome, total: Tensor) -> None:
        """Write an outcome to the state; ``total`` is the sum of bounds before its batch."""
        self._store("now", outcome.state, self._kernel_values())
        entered = torch.full_like(self.get_buffer("_batch_y"), -1, dtype=torch.int64)
        entered[: len(outcome.choice.entered)] = outcome.choice.entered
        self._keep("entered", entered)  # padded: constant bytes
        self._keep("old_index", outcome.choice.old_index)
        # What is unknown is kept as infinity: NaN would not equal itself after a round trip.
        bounds = torch.cat([total.reshape(1), outcome.bounds]).nan_to_num(torch.inf, torch.inf)
        self._keep("bounds", bounds)

    def _entries(self) -> Tensor:
        """Indices of the last batch's points that became inducing points."""
        entered = self.get_buffer("_entered")
        return entered[entered >= 0]

    def _last_batch(self) -> Batch:
        """The last batch under the current noise."""
        X, y, r = (self.get_buffer(f"_batch_{name}") for name in "Xyr")
        moments = cast(tuple[float, float, float], tuple(self.get_buffer("_moments").tolist()))
        return Batch(X, y, self._noise_scale() * r, moments, int(self.get_buffer("_batches")) - 1)

    def _again(self, *, reselect: bool) -> None:
        """Absorb the last batch once more, from the state before it, as hyperparameters now are."""
        with torch.no_grad():
            batch = self._last_batch()
            if not batch.size:
                return
            old_index = self.get_buffer("_old_index")
            choice = Choice(self.get_buffer("_now_Z"), old_index, self._entries())
            outcome = self._step(
                self._pieces("before"),
                self._values("before"),
                batch,
                self.growth if reselect else choice,
            )
            self._settle(outcome, self.get_buffer("_bounds")[0])
        self._changed()

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        kernel = frozen_kernel(self.covar_module)
        state, same = self._pieces("now"), self._unchanged(self._values("now"))
        mean = self._prior_mean().detach()[0]
        return SparseProcess.of(kernel, rebase(state, kernel, mean, same_kernel=same)[0])

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Online bound of the last batch (MATHS 3.3, step 5): O(N M^2 + M^3)."""
        batch = self._last_batch()
        before, mean = self._pieces("before"), self._prior_mean()[0]
        if not batch.size:
            return before.kappa.new_zeros(()), None
        Z, old_index = self.get_buffer("_now_Z"), self.get_buffer("_old_index")
        if not profile_mean:
            return update(before, batch, self.covar_module, mean, Z, old_index).bound, None
        out = update(before, batch, self.covar_module, mean.detach(), Z, old_index)
        best, bound = best_mean(out, batch)
        return bound, best.detach().reshape(1)

    # -- buffers ---------------------------------------------------------------------------------

    def _kernel_values(self) -> Tensor:
        """All kernel hyperparameters, flat, float64."""
        parameters = [p.detach().double().reshape(-1) for p in self.covar_module.parameters()]
        return torch.cat([self.get_buffer("_noise_sum").new_empty(0), *parameters])

    def _values(self, which: str) -> Tensor:
        return self.get_buffer(f"_{which}_theta")

    def _pieces(self, which: str) -> SGPRState:
        """A stored state: "now", or "before" the last batch."""
        Z, L, G, c, mean, kappa = (self.get_buffer(f"_{which}_{name}") for name in PIECES)
        return SGPRState(Z, L, G, c, mean, kappa, self.jitter)

    def _store(self, which: str, state: SGPRState, values: Tensor) -> None:
        for name in PIECES:
            self._keep(f"{which}_{name}", getattr(state, name))
        self._keep(f"{which}_theta", values)
