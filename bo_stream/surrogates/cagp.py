"""CaGP: a Gaussian process whose uncertainty includes its limited computation, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS 5, with our streaming part in 5.4.
The posterior conditions exactly on i projections S'y of the data, so its covariance is never below
the exact GP's, whatever the budget, the stream or the compression of S.

A fit learns the values of S together with the hyperparameters [CaGP, eq. 13]: the first time, and
after the data have grown by a quarter, because values merged under earlier hyperparameters favour
these. Rows are divided into new blocks before, as neighbours are measured in lengthscales. Any
other fit keeps S and takes a handful of evaluations. Actions that are functions of the
hyperparameters alternate with these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

import numpy as np
import torch
from torch import Tensor, nn

from bo_stream.actions import Actions, BlockSparse
from bo_stream.base.fitting import (
    MAX_EVALS,
    AscentObjective,
    Coordinates,
    Correlated,
    FitReport,
    Surprise,
    profiled_mean,
)
from bo_stream.base.options import CommonOptions, from_plain
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError, check_choice
from bo_stream.mathematics.computation_aware import (
    ActionBasis,
    ActionMatrix,
    BlockMatrix,
    CaGPState,
    Projected,
    compress,
    cross_product,
    neighbours,
)
from bo_stream.mathematics.data_evidence import correlations_at
from bo_stream.mathematics.exact import maximised
from bo_stream.mathematics.kernels import frozen_kernel
from bo_stream.mathematics.linalg import REPAIR, bordered
from bo_stream.mathematics.process import Process, warn_if_missed
from bo_stream.mathematics.radial import Array
from bo_stream.mathematics.shapes import Rows

__all__ = ["CaGP"]

RELEARN = 1.25
"""Growth of n after which a fit learns the values of actions again."""

LEAST = 10
"""Evaluations below which a fit leaves the values as they are."""

TURNS = 5
"""Most alternations between hyperparameters and actions that are functions of them."""

GROWTH = 1.5
"""Growth of n after which a refit is due."""

GAIN = 2e-6
"""Learning values has converged once a step gains less than this many nats per datum and 1e-3."""


class CaGP(StreamingGP[CaGPState]):
    """Computation-aware Gaussian process: exact conditioning on i projections of n data.

    It keeps all data (state O(n + i^2)). With n data and i actions: `observe` of q points takes
    O(n q + i^2 q), independent of the number of earlier calls, and the posterior O(n + i^2) per
    point. A change of hyperparameters costs O(n^2) kernel values once, in O(n i) memory. One
    evidence with its gradient costs O(n^2 + n i^2). One output.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        common: ``bounds``, ``covar_module`` (RBF and Matern kernels are the fastest),
            ``mean_module``, ``likelihood``, ``input_transform``, ``outcome_transform``: see
            `CommonOptions`.
        actions: Policy that chooses the actions from the first data and again in `fit`, or its name
            and options as plain data: ``{"name": "block_sparse", "num_actions": 64}``. The default
            ``BlockSparse(256)`` orders rows by locality and is the exact GP for up to 256 points.
        append: How later data are added: ``"identity"`` adds one action per point (exact
            conditioning; batches larger than the budget are divided into blocks), ``"block"`` one
            per batch. Once there are a quarter more than the policy's, they are compressed.

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

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        actions: Actions | str | Mapping[str, Any] | None = None,
        append: Literal["identity", "block"] = "identity",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        self.actions = BlockSparse(256) if actions is None else from_plain("actions", actions)
        self.append = append
        check_choice("append", append, "identity", "block")
        if not isinstance(self.actions, Actions):
            raise InputError(
                "an action policy: an object of a subclass of `bo_stream.actions.Actions`",
                f"{self.actions!r}",
                "Take one from bo_stream.actions, for example actions=BlockSparse(256).",
            )
        self._begin(train_X, train_Y, train_Yvar)

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    def _empty_state(self) -> CaGPState:
        return CaGPState.empty(self._dim, self.actions.follows_hyperparameters, self._numbers())

    @property
    def S(self) -> ActionMatrix:
        """The current actions, ``n x i``, with columns of unit length."""
        follows = self.actions.follows_hyperparameters
        return self._factored(self.state).S if follows else self.state.S

    @property
    def num_actions(self) -> int:
        """Number of current actions."""
        return self.S.num_actions

    # -- state -----------------------------------------------------------------------------------

    def _absorb(self, state: CaGPState, rows: Rows) -> CaGPState:
        """S <- blkdiag(S, S2), with L bordered; actions in excess are merged (MATHS 5.4).

        One action for each new point, or one for the batch; more points than the budget are divided
        into blocks of neighbours. O(n q) kernel values, O(i^2 q), and O(i^3) where actions are
        merged. What is counted of surprises are the standardised residuals of the new projected
        data, predicted from the old.
        """
        data = replace(state, rows=state.rows.joined(rows))
        if not len(state.rows):
            return self._factored(data.with_actions(state.S))
        old, budget = self._factored(state), self.actions.budget()
        S2 = neighbours(rows.X, 1 if self.append == "block" else budget)
        i, S = old.S.num_actions, old.S.append(S2)
        cross = S2.transpose_times(cross_product(self.covar_module, rows.X, data.rows.X, S))
        corner = cross[:, i:] + S2.gram(self._noise(data)[len(state.rows) :])
        L = bordered(old.L, cross[:, :i].mT, corner)
        u = S.transpose_times(data.rows.y - self._prior_mean())
        w = torch.linalg.solve_triangular(L, u[:, None], upper=False)[i:, 0]
        if budget is not None and S.num_actions > budget + budget // 4:
            S, L = compress(S, L, u, self._noise(data), budget)
        surprise, residuals = state.chi_square + w.square().sum(), state.residuals + len(w)
        return replace(old, rows=data.rows, S=S, L=L, chi_square=surprise, residuals=residuals)

    def _noise(self, state: CaGPState) -> Tensor:
        """The noise variances of the data, ``n``, differentiable."""
        return self._noise_scale() * state.rows.r

    @torch.no_grad()
    def _built(self, state: CaGPState) -> ActionMatrix:
        """The policy's actions for the data under the current hyperparameters."""
        e, noise = state.rows.y - self._prior_mean(), self._noise(state)
        return self.actions.build(state.rows.X, e, noise, self.covar_module)

    def _projected(self, state: CaGPState, S: ActionMatrix, repair: float = 0.0) -> Projected:
        return Projected.of(self.covar_module, state.rows.X, S, self._noise(state), repair)

    @torch.no_grad()
    def _factored(self, state: CaGPState) -> CaGPState:
        """The state with actions and their factor under the current hyperparameters: O(n^2) if
        these are not those that it was made with, as after an assignment.
        """
        now = self._numbers()
        if not len(state.rows) or torch.equal(state.made_with, now):
            return state
        again = self.actions.follows_hyperparameters or not state.S.num_actions
        S = self._built(state) if again else state.S
        return replace(state, S=S, L=self._projected(state, S, REPAIR).L, made_with=now)

    @torch.no_grad()
    def _build_process(self, state: CaGPState) -> Process:
        state = self._factored(state)
        mean, noise = self._prior_mean().clone(), self._noise(state)
        u = state.S.transpose_times(state.rows.y - mean)
        w = torch.linalg.solve_triangular(state.L, u[:, None], upper=False)[:, 0]
        kernel = frozen_kernel(self.covar_module)
        basis = ActionBasis(kernel, state.rows.X, noise[None], S=state.S)
        process = Process(kernel, basis, state.L[None], None, w[None], mean)
        warn_if_missed(process, state.rows.X, state.rows.Y, noise[None])
        return process

    # -- objective -------------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The evidence lower bound [CaGP, eq. 11], without priors.

        0-dim, with all constants, differentiable. O(n^2) kernel values, O(n i^2) time.
        """
        return self._bound(self.S)[0]

    def projected_log_likelihood(self) -> Tensor:
        """Log density of the projected data S'y, S normalised [CaGP, eq. 9], without priors."""
        projected, y = self._projected(self.state, self.S), self.state.rows.y
        return projected.log_likelihood(y - self._prior_mean())

    def _rows_of_fit(self) -> tuple[Rows, Correlated | None]:
        """The data; the bound is their evidence if there are as many actions."""
        state, follows = self.state, self.actions.follows_hyperparameters
        exact = not follows and state.S.num_actions == len(state.rows)
        return state.rows, correlations_at if exact else None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The bound for the actions of the state."""
        return self._bound(self.state.S, profile_mean=profile_mean)

    def _bound(self, S: ActionMatrix, profile_mean: bool = False) -> tuple[Tensor, Tensor | None]:
        """As `_objective`, for other actions, differentiable in S."""
        projected, y, best = self._projected(self.state, S), self.state.rows.y, None
        if profile_mean and len(y):
            best = projected.best_constant(y).detach().reshape(1)
        return projected.elbo(y - (self._prior_mean() if best is None else best)), best

    # -- fit -------------------------------------------------------------------------------------

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters and, for learned actions, the values of S.

        With many more data than actions and a rough function, the bound attributes to noise what
        the actions cannot resolve, so that noise and lengthscales are overestimated. Then
        hyperparameters learned earlier, from fewer data, predict better. If values are learned,
        the fit runs for at most 200 evaluations by default.
        """
        most, n = max_evals or MAX_EVALS, self.num_observed
        if self.actions.follows_hyperparameters:
            return self._fit_in_turns(most)
        due = n >= RELEARN * int(self.state.learned) and most >= LEAST
        if due and self.actions.learned and self.state.S.num_actions < n:
            return self._learn(most)
        return super()._search(max_evals)

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Keep the factor under these, and after a fit start the counts of `refit_due` again."""
        self._note(state=self._factored(self.state if saved else self.state.after_fit()))

    def _fit_in_turns(self, most: int) -> FitReport:
        """Alternate fits of the hyperparameters with S fixed and new actions S."""
        report = FitReport(0, -math.inf, False)
        for _ in range(TURNS):
            self._use_actions(self.S)
            turn = super()._search(most - report.evaluations)
            report = report.and_then(turn)
            if turn.evaluations <= 3 or report.evaluations >= most:  # nothing gained, or left
                break
        self._use_actions(self.S)
        return replace(report, value=self._reached())

    def _learn(self, most: int) -> FitReport:
        """Fit hyperparameters on new blocks, and then together with values on newer ones.

        The new blocks may turn out worse than the old ones with learned values, which then return.
        """
        coordinates, S, value = Coordinates(self, skip_mean=False), self.state.S, self._reached()
        before = coordinates.get()
        try:
            self._divide()
            report = super()._search(most // 2)
            self._divide()
            converged, evaluations = self._learn_values(most - report.evaluations - 2)
        finally:
            reached = self._reached()
            if not reached >= value:
                coordinates.set(before)
                self._use_actions(S)
                reached = value
        learned = torch.full_like(self.state.learned, self.num_observed * converged)
        self._note(state=replace(self.state, learned=learned))
        return FitReport(report.evaluations + evaluations, reached, converged)

    def _divide(self) -> None:
        """Divide rows into blocks of neighbours in units of the current lengthscales."""
        if isinstance(self.actions, BlockSparse) and self.actions.order == "locality":
            self._use_actions(self._built(self.state))

    @torch.no_grad()
    def _reached(self) -> float:
        """The objective at the current hyperparameters and actions."""
        return float(self._objective(profile_mean=False)[0] + self._log_priors())

    def _learn_values(self, most: int) -> tuple[bool, int]:
        """Ascend in hyperparameters and values; if interrupted, the best point seen is kept.

        Returns:
            Whether it has converged, and the number of evaluations.
        """
        S, profiled = cast(BlockMatrix, self.state.S), profiled_mean(self)
        unit = S.block.bincount()[S.block].rsqrt()  # in which values are about one
        values, coordinates = nn.Parameter(S.values / unit), Coordinates(self, profiled)
        coordinates.add(values, "action_values")

        def objective() -> tuple[Tensor, Tensor | None]:
            value, mean = self._bound(replace(S, values=values * unit), profiled)
            return value + self._log_priors(), mean

        ascent = AscentObjective(objective, coordinates)
        try:
            return _lbfgs(ascent, most, self.num_observed), ascent.evaluations
        finally:
            ascent.settle()
            if ascent.best is not None and ascent.best.mean is not None:
                self._set_prior_mean(ascent.best.mean)
            self._use_actions(replace(S, values=values.detach() * unit).normalised())

    @all_or_nothing
    def _use_actions(self, S: ActionMatrix) -> None:
        """Replace the actions (``n x i``, columns of length one)."""
        self._replace(state=self.state.with_actions(S))

    @property
    def refit_due(self) -> bool:
        """Whether the data have grown by half since the last `fit`, or were predicted too poorly;
        ask after each `observe`.

        The sum of squared standardised residuals since then is chi-square if the model is right.
        Only too large a sum counts: a model with limited computation is rightly less certain than
        the exact one.
        """
        state, n, k = self.state, self.num_observed, int(self.state.residuals)
        surprise = Surprise(k, float(state.chi_square) - k, 2.0 * k)
        return n > 0 and (n >= GROWTH * int(state.fitted) or surprise.behind)


def _lbfgs(objective: AscentObjective, most: int, n: int) -> bool:
    """L-BFGS-B of scipy, for thousands of parameters.

    Args:
        objective: The objective of n data.
        most: Maximum number of evaluations.
        n: Number of data.

    Returns:
        Whether it has converged.
    """
    start = objective.start()
    nowhere = start.value - 1e3 * (n + abs(start.value))

    def value(x: Array) -> tuple[float, Array]:
        u = torch.from_numpy(x.copy())
        at = start if torch.equal(u, start.u) else objective.evaluate(u)
        return max(at.value, nowhere) / n, at.gradient.numpy() / n

    bounds = torch.stack([objective.coordinates.lower, objective.coordinates.upper]).numpy()
    factr = max(GAIN, 1e-3 / n) / np.finfo(float).eps
    options = {"m": 20, "maxiter": most, "factr": factr, "pgtol": 0.0}
    return maximised(value, bounds, [start.u.numpy()], most, **options).evaluations < most
