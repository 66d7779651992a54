"""CaGP: a Gaussian process that counts its own computation as uncertainty, on a stream.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024, Computation-Aware Gaussian Processes:
Model Selection And Linear-Time Inference; mathematics in MATHS section 5, the streaming part (5.4)
ours. The posterior is exact conditioning on i projections S'y of the data, so its covariance is
never below the exact GP's, whatever the budget, the stream or the compression of S.

State: the data (all of them), the actions S, and L = chol(S'(K + D)S) under the hyperparameters it
was made with. `observe` appends actions and borders L; only a change of hyperparameters makes L
anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from torch import Size, Tensor

from bo_stream.action_matrix import (
    ActionMatrix,
    BlockMatrix,
    DenseMatrix,
    identity_actions,
    one_action,
)
from bo_stream.actions import Actions, BlockSparse
from bo_stream.actions.locality import locality_blocks
from bo_stream.compression import choose_merges, merged_factor
from bo_stream.errors import InputError
from bo_stream.exact import prior_path
from bo_stream.kernel_products import cross_product, kernel_values, symmetric_product
from bo_stream.latent import FactorLatent, Path, Predictor, frozen_kernel
from bo_stream.projected import Projected, border, chol_of
from bo_stream.streaming import Promises, StreamingGP

__all__ = ["CaGP"]


@dataclass(frozen=True)
class ProjectedPredictor:
    """Posterior given S'y: mean ``c + A_x'w``, ``A_x = L^-1 S'k(X, x)``, ``w = L^-1 S'(y - c)``."""

    kernel: Kernel
    X: Tensor
    S: ActionMatrix
    L: Tensor
    w: Tensor
    noise: Tensor
    mean: Tensor

    def latent(self, X: Tensor) -> FactorLatent:
        """The law at points ``batch x q x d``: O(n + i^2) each."""
        KS = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
        A = torch.linalg.solve_triangular(self.L, KS.mT, upper=False)  # i x batch q
        mean = (self.mean + self.w @ A).reshape(*X.shape[:-2], 1, X.shape[-2])
        A = A.reshape(-1, *X.shape[:-1]).movedim(0, -2).unsqueeze(-3)
        return FactorLatent(mean, X, self.kernel, A)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on random features of the prior."""
        prior = prior_path(self.kernel, self.X.shape[-1], self.mean, sample_shape, self.X)
        values = prior(self.X)
        noisy = values + self.noise.sqrt() * torch.randn_like(values) - self.mean
        u = self.S.transpose_times(noisy.reshape(-1, self.X.shape[0]).mT)
        gap = self.w[:, None] - torch.linalg.solve_triangular(self.L, u, upper=False)
        weights = torch.linalg.solve_triangular(self.L.mT, gap, upper=True)  # i x samples

        def sample(X: Tensor) -> Tensor:
            KS = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.X, self.S)
            return prior(X) + (KS @ weights).mT.reshape(*sample_shape, *X.shape[:-2], 1, -1)

        return sample


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
        self.actions = actions or BlockSparse(256)
        self.append = append
        self.max_actions = _limit(self.actions, append, max_actions)
        empty = torch.empty(0, dtype=torch.float64)
        self._register_state("X", empty.new_empty(0, self._dim))
        for name in ("Y", "R", "values", "made_with"):
            self._register_state(name, empty)
        self._register_state("block", torch.empty(0, dtype=torch.int64))
        for name in ("dense", "L"):
            self._register_state(name, empty.new_empty(0, 0))
        self._conditioning = False
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    def _layout(self) -> dict[str, Any]:
        policy = f"{type(self.actions).__name__}({self.actions.budget()})"
        return {**super()._layout(), "actions": policy, "append": self.append}

    # -- state: data, S, and L under the hyperparameters `made_with` -----------------------------

    @property
    def S(self) -> ActionMatrix:
        """The actions in use, ``n x i``; every column of unit length."""
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
        S, L = self._extended(X, y, r)
        data = [torch.cat(pair) for pair in ((self.X, X), (self.Y, y), (self.R, r))]
        if L is not None and self.max_actions is not None and not self._conditioning:
            S, L = self._compressed(S, L, data[1], data[2])
        self.X, self.Y, self.R = data
        self._write(S, L)

    def _write(self, S: ActionMatrix, L: Tensor | None) -> None:
        """Store S and, if it is known under the hyperparameters of now, its factor."""
        if isinstance(S, BlockMatrix):
            self.block, self.values, self.dense = S.block, S.values, self.dense[:0, :0]
        else:
            self.block, self.values, self.dense = self.block[:0], self.values[:0], S.S
        self.L = self.L[:0, :0] if L is None else L
        self.made_with = self.made_with[:0] if L is None else self._hyperparameters().clone()

    def _extended(self, X: Tensor, y: Tensor, r: Tensor) -> tuple[ActionMatrix, Tensor | None]:
        """S and L with the actions of new data: built from the first, appended for later ones.

        Appending costs n q kernel values and O(i^2 j) (MATHS 5.4). L is None where hyperparameters
        have changed since it was made, and whoever needs it next makes it for all data at once.
        """
        noise, exact = self._noise_scale() * r, identity_actions(X.shape[0], X)
        if self.X.shape[0] == 0:
            if self._conditioning:
                return exact, None
            return self.actions.build(X, y - self._prior_mean(), noise, self.covar_module), None
        S, S2 = self.S, exact if self._conditioning else self._new_actions(X)
        over = self.max_actions is not None and S.num_actions + S2.num_actions > self.max_actions
        must_factor = self.actions.follows_hyperparameters or (over and not self._conditioning)
        if not must_factor and not torch.equal(self.made_with, self._hyperparameters()):
            return S.append(S2), None
        S, L = self._factor()
        cross = S2.transpose_times(cross_product(self.covar_module, X, self.X, S))
        K22 = kernel_values(self.covar_module, X, X)
        corner = S2.transpose_times(S2.right_of(K22)) + S2.gram(noise)
        return S.append(S2), border(L, cross, corner)

    def _new_actions(self, X: Tensor) -> BlockMatrix:
        n, budget = X.shape[0], self.actions.budget()
        if self.append == "block":
            return one_action(n, X)
        if budget is None or n <= budget:
            return identity_actions(n, X)
        return BlockMatrix(
            locality_blocks(X, budget), torch.ones_like(X[:, 0]), budget
        ).normalised()

    def _compressed(
        self, S: ActionMatrix, L: Tensor, y: Tensor, r: Tensor
    ) -> tuple[ActionMatrix, Tensor]:
        """S and L within the budget: merges that lose least, no kernel value formed (MATHS 5.4)."""
        budget = self.actions.budget()
        if budget is None or self.max_actions is None or S.num_actions <= self.max_actions:
            return S, L
        noise, e = self._noise_scale() * r, y - self._prior_mean()
        while S.num_actions > budget:
            target, weights = choose_merges(L, S.gram(noise), S.transpose_times(e), budget)
            S, L = S.merge(target, weights), merged_factor(L, target, weights)
        return S, L

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Exact: identity actions, no compression."""
        self._conditioning = True
        try:
            super()._condition_in_place(X, Y, Yvar)
        finally:
            self._conditioning = False

    # -- posterior -------------------------------------------------------------------------------

    def _factor(self) -> tuple[ActionMatrix, Tensor]:
        """S and L under the hyperparameters of now: O(n^2) kernel values if they have changed."""
        if self.X.shape[0] and not torch.equal(self.made_with, self._hyperparameters()):
            S = self._current_actions()
            B = symmetric_product(self.covar_module, self.X, S)
            self._write(S, chol_of(S.transpose_times(B) + S.gram(self._noise())))
        return self.S, self.L

    def _current_actions(self) -> ActionMatrix:
        """S, made anew if it is a function of hyperparameters that have changed."""
        follows = self.actions.follows_hyperparameters and self.X.shape[0]
        if follows and not torch.equal(self.made_with, self._hyperparameters()):
            e = self.Y - self._prior_mean().detach()
            return self.actions.build(self.X, e, self._noise().detach(), self.covar_module)
        return self.S

    def _noise(self) -> Tensor:
        """Noise variances ``n``, differentiable."""
        return self._noise_scale() * self.R

    def _build_predictor(self, previous: Predictor | None) -> Predictor:
        S, L = self._factor()
        mean = self._prior_mean().detach().clone()
        u = S.transpose_times(self.Y - mean)
        w = torch.linalg.solve_triangular(L, u[:, None], upper=False)[:, 0]
        kernel = previous.kernel if isinstance(previous, ProjectedPredictor) else None
        kernel = kernel or frozen_kernel(self.covar_module)
        return ProjectedPredictor(kernel, self.X, S, L, w, self._noise(), mean)

    # -- objectives ------------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The evidence lower bound [CaGP, eq. 11], without priors: at most the log evidence.

        0-dim, constants included, differentiable in every hyperparameter. O(n^2) kernel values,
        O(n i^2) time, O(n i) memory.
        """
        return super().log_evidence()

    def projected_log_likelihood(self) -> Tensor:
        """Log density of the projected data S'y, S normalised [CaGP, eq. 9], without priors."""
        return self._objective("projected", self._current_actions())

    def _evidence(self, profile_mean: bool) -> Tensor:
        return self._objective("elbo", self._current_actions(), profile_mean)

    def _objective(
        self,
        loss: str,
        S: ActionMatrix,
        profile_mean: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> Tensor:
        """One of the two losses for given actions, as a log likelihood, differentiable in S too."""
        if not self.X.shape[0]:
            return self.X.new_zeros(())
        B = symmetric_product(self.covar_module, self.X, S, dtype)
        projected = Projected.of(B, S, self._noise())
        if profile_mean:
            with torch.no_grad():
                mean = cast(ConstantMean, self.mean_module)
                constant = projected.best_constant(self.Y)
                mean.constant = constant.reshape(mean.constant.shape).to(mean.constant)
        e = self.Y - self._prior_mean()
        if loss == "projected":
            return projected.log_likelihood(e)
        return projected.elbo(self.covar_module(self.X, diag=True).double().reshape(-1), e)


def _limit(actions: Actions, append: str, max_actions: int | None) -> int | None:
    """The number of actions above which they are compressed."""
    if append not in ("identity", "block"):
        raise InputError('append "identity" or "block"', f"{append!r}", "Choose one of the two.")
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
