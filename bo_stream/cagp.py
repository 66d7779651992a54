"""CaGP: a Gaussian process that counts its own computation as uncertainty, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS 5, the streaming part (5.4)
ours. The posterior is exact conditioning on i projections S'y of the data, so its covariance is
never below the exact GP's, whatever the budget, the stream or the compression of S.

State: the data (all of them), the actions S, and L = chol(S'(K + D)S) under the hyperparameters it
was made with. `observe` appends actions and borders L; only a change of hyperparameters makes L
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_stream.actions import Actions, BlockSparse
from bo_stream.actions.climb import ActionMLL, Loss
from bo_stream.actions.stages import fit_in_legs
from bo_stream.core.state import Memo
from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.errors import InputError
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.report import FitReport
from bo_stream.fitting.schedule import RefitSchedule
from bo_stream.posterior.factor import frozen_kernel
from bo_stream.posterior.process import PosteriorProcess
from bo_stream.projection.compression import compress
from bo_stream.projection.locality import locality_blocks
from bo_stream.projection.matrix import (
    ActionMatrix,
    BlockMatrix,
    DenseMatrix,
    identity_actions,
    one_action,
)
from bo_stream.projection.objective import Projected, border, chol_of
from bo_stream.projection.posterior import ProjectedProcess
from bo_stream.projection.products import cross_product, symmetric_product

__all__ = ["CaGP"]

RELEARN, RECUT = 1.25, 1.5
"""A fit learns the values of actions again, and cuts blocks ordered by locality anew, when n has
grown by these factors.
"""


class CaGP(StreamingGP):
    """Computation-aware GP: i numbers computed from n data, and uncertainty about the rest.

    It keeps all data (state O(n + i^2)). With n data and i actions: `observe` of q points O(n q +
    i^2 q), independent of how often it was called; the posterior O(n + i^2) a point; after a change
    of hyperparameters once O(n^2) kernel values in O(n i) memory; one evidence and its gradient
    O(n^2 + n i^2). One output.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
            `StreamingGP`. RBF and Matern kernels are the fastest.
        actions: How actions are chosen from the first data, and again by `fit`; default
            ``BlockSparse(256)``, which orders rows by locality itself and is the exact GP up to
            256 points.
        append: What later data add: ``"identity"``, one action a point (exact conditioning; a
            batch larger than the budget is cut into blocks), or ``"block"``, one a batch.
        max_actions: Actions are compressed to the policy's number when they exceed this; default a
            quarter more than that number.
        schedule: When `refit_due` says that a loop should call `fit`.

    Raises:
        UnsupportedError: for more than one output (use a `ModelListGP` of surrogates).

    Example:
        >>> import torch
        >>> from bo_stream.actions import BlockSparse
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> model = CaGP(X, X.sum(-1, keepdim=True), actions=BlockSparse(10))
        >>> model.observe(X[:2] / 2, X[:2].sum(-1, keepdim=True) / 2).num_actions
        12
        >>> model.posterior(X[:5]).mean.shape
        torch.Size([5, 1])
    """

    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=False
    )
    X: Tensor
    Y: Tensor
    R: Tensor
    block: Tensor
    values: Tensor
    dense: Tensor
    L: Tensor
    made_with: Tensor
    _fitted: Tensor  # number of data at the last fit, the last cut, the last learning of S
    start: Tensor  # hyperparameters before the first fit, in coordinates of a fit
    _score: Tensor  # sum of squared standardised residuals since the last fit, and their number

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
        actions: Actions | None = None,
        append: Literal["identity", "block"] = "identity",
        max_actions: int | None = None,
        schedule: RefitSchedule | None = None,
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
        self.actions = BlockSparse(256) if actions is None else actions
        self.append = append
        self.schedule = schedule or RefitSchedule()
        self.max_actions = _limit(self.actions, append, max_actions)
        empty = torch.empty(0, dtype=torch.float64)
        self._register_state("X", empty.new_empty(0, self._dim))
        for name in ("Y", "R", "values", "made_with", "start"):
            self._register_state(name, empty)
        self._register_state("block", torch.empty(0, dtype=torch.int64))
        for name in ("dense", "L"):
            self._register_state(name, empty.new_empty(0, 0))
        self._register_state("_fitted", torch.zeros(3, dtype=torch.int64))
        self._register_state("_score", torch.zeros(2, dtype=torch.float64))
        self._conditioning = False
        self._factored = Memo()
        self._held: ActionMatrix | None = None
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    # -- state: data, S, and L under the hyperparameters `made_with` -----------------------------

    @property
    def S(self) -> ActionMatrix:
        """The actions in use, ``n x i``; every column of unit length."""
        return self._factor()[0] if self.actions.follows_hyperparameters else self._kept_actions()

    def _kept_actions(self) -> ActionMatrix:
        """S as the state has it."""
        if self.dense.numel():
            return DenseMatrix(self.dense)
        count = int(self.block.max()) + 1 if self.block.numel() else 0
        return BlockMatrix(self.block, self.values, count)

    @property
    def num_actions(self) -> int:
        """The number of actions in use."""
        return self.S.num_actions

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        y, r = Y[0], torch.ones_like(Y[0]) if Yvar is None else Yvar[0]
        if self.X.shape[0] == 0:
            S = self._first_actions(X, y, r)
            L = self._fresh_factor(X, S, self._noise_scale() * r)
            self.X, self.Y, self.R = X.clone(), y.clone(), r.clone()
            self._write(S, L, self._hyperparameters())
            return
        S2 = identity_actions(len(y), X) if self._conditioning else self._new_actions(X)
        self._append(X, y, r, S2)

    def _write(
        self, S: ActionMatrix, L: Tensor | None = None, made_with: Tensor | None = None
    ) -> None:
        """Store S and, where it is known, its factor under the hyperparameters ``made_with``."""
        if isinstance(S, BlockMatrix):
            self.block, self.values, self.dense = S.block, S.values, self.dense[:0, :0]
        else:
            self.block, self.values, self.dense = self.block[:0], self.values[:0], S.S
        self.L = self.L[:0, :0] if L is None else L
        self.made_with = self.made_with[:0] if made_with is None else made_with

    def _append(self, X: Tensor, y: Tensor, r: Tensor, S2: BlockMatrix) -> None:
        """S <- blkdiag(S, S2), L bordered: n q kernel values and O(i^2 j) (MATHS 5.4)."""
        hyperparameters, noise = self._hyperparameters(), self._noise_scale()
        S, L = self._factor(hyperparameters)
        i, S = S.num_actions, S.append(S2)
        X, y, r = (torch.cat(pair) for pair in ((self.X, X), (self.Y, y), (self.R, r)))
        new = slice(self.X.shape[0], None)
        rows = S2.transpose_times(cross_product(self.covar_module, X[new], X, S))  # j x (i + j)
        L = border(L, rows[:, :i], rows[:, i:] + S2.gram(noise * r[new]))
        u = S.transpose_times(y - self._prior_mean())
        w = torch.linalg.solve_triangular(L, u[:, None], upper=False)[i:]
        self._score = self._score + torch.stack([w.square().sum(), w.new_tensor(len(w))])
        limit = None if self._conditioning else self.max_actions
        if limit is not None and S.num_actions > limit:
            S, L = compress(S, L, u, noise * r, self.actions.budget() or limit)
        self.X, self.Y, self.R = X, y, r
        self._write(S, L, hyperparameters)

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """Targets in the new units; known noise too, which takes a new factor."""
        self.Y = (self.Y - shift) / factor
        if self.noise_mode != "learned":
            self.R = self.R / factor.square()
            self._write(self._kept_actions())

    def _first_actions(self, X: Tensor, y: Tensor, r: Tensor) -> ActionMatrix:
        if self._conditioning:
            return identity_actions(len(y), X)
        e, noise = y - self._prior_mean(), self._noise_scale() * r
        return self.actions.build(X, e, noise, self.covar_module)

    def _new_actions(self, X: Tensor) -> BlockMatrix:
        n, budget = X.shape[0], self.actions.budget()
        if self.append == "block":
            return one_action(n, X)
        if budget is None or n <= budget:
            return identity_actions(n, X)
        return BlockMatrix(
            locality_blocks(X, budget), torch.ones_like(X[:, 0]), budget
        ).normalised()

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Exact: identity actions, no compression."""
        self._conditioning = True
        try:
            super()._condition_in_place(X, Y, Yvar)
        finally:
            self._conditioning = False

    # -- posterior -------------------------------------------------------------------------------

    def _factor_is_current(self, hyperparameters: Tensor) -> bool:
        return self.L.shape[0] > 0 and torch.equal(self.made_with, hyperparameters)

    def _factor(self, hyperparameters: Tensor | None = None) -> tuple[ActionMatrix, Tensor]:
        """S and L under the hyperparameters of now: O(n^2) kernel values if they have changed.

        The state is left as it is: only `observe` and `fit` write it.
        """
        hyperparameters = self._hyperparameters() if hyperparameters is None else hyperparameters
        if self.X.shape[0] == 0 or self._factor_is_current(hyperparameters):
            return self._kept_actions(), self.L
        made = self._factored
        if not made.fits(hyperparameters) or made.revision != self._revision:
            S = self._current_actions()
            L = self._fresh_factor(self.X, S, self._noise())
            made = self._factored = Memo((S, L), hyperparameters.clone(), self._revision)
        return cast(tuple[ActionMatrix, Tensor], made.value)

    def _fresh_factor(self, X: Tensor, S: ActionMatrix, noise: Tensor) -> Tensor:
        B = symmetric_product(self.covar_module, X, S)
        return chol_of(S.transpose_times(B) + S.gram(noise), jitter=True)

    def _current_actions(self) -> ActionMatrix:
        """S, made anew if it is a function of hyperparameters that have changed."""
        if self._held is not None:
            return self._held
        follows = self.actions.follows_hyperparameters and self.X.shape[0]
        if not follows or self._factor_is_current(self._hyperparameters()):
            return self._kept_actions()
        return self._built_actions()

    def _built_actions(self) -> ActionMatrix:
        """S as the policy makes it of all data under the hyperparameters of now."""
        e, noise = self.Y - self._prior_mean().detach(), self._noise().detach()
        return self.actions.build(self.X, e, noise, self.covar_module)

    def _noise(self) -> Tensor:
        """Noise variances ``n``, differentiable."""
        return self._noise_scale() * self.R

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        S, L = self._factor()
        mean = self._prior_mean().detach().clone()
        u = S.transpose_times(self.Y - mean)
        w = torch.linalg.solve_triangular(L, u[:, None], upper=False)[:, 0]
        kernel = previous.kernel if isinstance(previous, ProjectedProcess) else None
        kernel = kernel or frozen_kernel(self.covar_module)
        return ProjectedProcess(kernel, self.X, S, L, w, self._noise(), mean)

    # -- objectives ------------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The evidence lower bound [CaGP, eq. 11], without priors: at most the log evidence.

        0-dim, constants included, differentiable in every hyperparameter. O(n^2) kernel values,
        O(n i^2) time, O(n i) memory.
        """
        return super().log_evidence()

    def projected_log_likelihood(self) -> Tensor:
        """Log density of the projected data S'y, S normalised [CaGP, eq. 9], without priors."""
        return self._bound("projected", self._current_actions())[0]

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        return self._bound("elbo", self._current_actions(), profile_mean)

    def _bound(
        self,
        loss: str,
        S: ActionMatrix,
        profile_mean: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, Tensor | None]:
        """One of the two losses for given actions, as a log likelihood, differentiable in S too."""
        if not self.X.shape[0]:
            zero = sum((p.double().sum() for p in self.parameters()), self.X.new_zeros(())) * 0.0
            return zero, None
        B = symmetric_product(self.covar_module, self.X, S, dtype)
        projected = Projected.of(B, S, self._noise())
        best = projected.best_constant(self.Y).detach().reshape(1) if profile_mean else None
        e = self.Y - (self._prior_mean() if best is None else best)
        if loss == "projected":
            return projected.log_likelihood(e), best
        prior_variance = self.covar_module(self.X, diag=True).double().reshape(-1)
        return projected.elbo(prior_variance, e), best

    # -- fitting ---------------------------------------------------------------------------------

    def make_mll(self, loss: Loss = "elbo", dtype: torch.dtype = torch.float64) -> ActionMLL:
        """The objective of `fit`, for `fit_gpytorch_mll`: a loss plus log priors.

        Args:
            loss: ``"elbo"``, or ``"projected"`` for study.
            dtype: Working dtype of the kernel products while fitting; float32 is faster on large
                data whose noise is not tiny.
        """
        return ActionMLL(self, loss, dtype)

    def fit(self, max_evals: int | None = None, **options: Any) -> FitReport:
        """Fit hyperparameters and, for learned actions, the values of S; warm-started.

        Policies that order rows by locality do so in units of lengthscales. So where the data have
        grown by half since the last such fit (or never had one) the fit goes in legs, with S cut
        anew between them: the learned lengthscales say what a neighbour is; the first legs start
        from the hyperparameters of now and, on a stream, from those before the first fit, and the
        better goes on. Where they have grown by a quarter, values are learned again: those that
        compression merged under earlier hyperparameters favour them. Any other fit keeps S, and
        takes a handful of evaluations.

        The bound takes what too few actions cannot resolve for noise: with many more data than
        actions, and a rough function, a fit learns more noise than there is and longer
        lengthscales. Hyperparameters learned while the actions still sufficed then predict better.

        Long fits log a line every ten seconds, at level INFO, to the logger `bo_stream.cagp`.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until converged, at most 200
                (Adam: 600 epochs) where values are learned.
            options: ``optimizer`` ("lbfgs" or "adam"; naming one learns values of S again), ``lr``,
                ``loss`` and ``dtype`` (see `make_mll`), ``progress`` (called with the number and
                the value of each evaluation).

        Returns:
            The report; a `LearningCurve` where values are learned or options given.
        """
        loss, dtype = options.pop("loss", "elbo"), options.pop("dtype", torch.float64)
        return fit_in_legs(self.make_mll(loss, dtype), max_evals, **options)

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`: `fit`, or a user's optimizer on the same objective.

        Raises:
            UnsupportedError: if a closure is given: the objective is the family's.
        """
        objective = mll if isinstance(mll, ActionMLL) else self.make_mll()
        objective.refresh()
        if optimizer is None and closure is None and not closure_kwargs:
            wanted = dict(optimizer_kwargs or {})
            wanted.setdefault("max_evals", wanted.get("options", {}).get("maxiter"))
            known = ("max_evals", "optimizer", "lr", "progress")
            fit_in_legs(objective, **{name: wanted[name] for name in known if name in wanted})
            return mll.eval()
        super().custom_fit(objective, closure, closure_kwargs, optimizer_kwargs, optimizer)
        objective.commit()
        self.mark_fitted(learned=True)
        return mll.eval()

    def replace_actions(self, S: ActionMatrix) -> None:
        """Use these actions (``n x i``, columns of length one) from now on."""
        self._write(S)
        self._changed()

    def recut(self) -> None:
        """Let the policy choose S anew for all data under the hyperparameters of now."""
        self.replace_actions(self._built_actions())
        self._fitted = torch.stack([self._fitted[0], self.get_buffer("_count"), self._fitted[2]])

    @property
    def recut_due(self) -> bool:
        """Whether blocks ordered by locality should be cut anew: the data have grown by half."""
        n, cut = self.num_observed, int(self._fitted[1])
        return self.actions.ordered_by_locality and n > self.num_actions and n >= RECUT * cut

    def remember_start(self) -> None:
        """Keep the hyperparameters of now as those of the start, unless there was a fit before."""
        coordinates = Coordinates(self, skip_mean=False)
        if not int(self._fitted[0]) and coordinates.items:
            self.start = coordinates.get().to(self.values.device)

    @property
    def learning_due(self) -> bool:
        """Whether values of S should be learned again: the data have grown by a quarter."""
        return self.num_observed >= RELEARN * int(self._fitted[2])

    def mark_fitted(self, learned: bool | None = None) -> None:
        """Start counting growth and surprise from here.

        Args:
            learned: Whether learning the values of S has converged; None: it was not tried.
        """
        n = self.get_buffer("_count")
        last = self._fitted[2] if learned is None else n * learned
        self._fitted = torch.stack([n, self._fitted[1], last])
        self._score = torch.zeros_like(self._score)

    @contextmanager
    def held_actions(self) -> Iterator[None]:
        """Hold the actions of now, whatever the hyperparameters become meanwhile."""
        self._held = self._current_actions()
        try:
            yield
        finally:
            self._held = None

    @property
    def refit_due(self) -> bool:
        """Whether the schedule says that it is time to `fit`: ask after each `observe`."""
        chi_square, residuals = self._score.tolist()
        return self.schedule.due(
            self.num_observed, int(self._fitted[0]), chi_square, int(residuals)
        )


def _limit(actions: Actions, append: str, max_actions: int | None) -> int | None:
    """The number of actions above which they are compressed."""
    if append not in ("identity", "block"):
        raise InputError('append "identity" or "block"', f"{append!r}", "Choose one of the two.")
    if not isinstance(actions, Actions):
        raise InputError(
            "an action policy: an object of a subclass of `bo_stream.actions.Actions`",
            f"{actions!r}",
            "Take one from bo_stream.actions, for example actions=BlockSparse(256).",
        )
    budget = actions.budget()
    if max_actions is None:
        return None if budget is None else budget + budget // 4
    if budget is None or max_actions < budget:
        raise InputError(
            "max_actions of at least the policy's number of actions",
            f"{max_actions} for {actions}",
            "Give a policy fewer actions, or leave max_actions out.",
        )
    return max_actions
