"""Online SVGP: a sparse GP of fixed size, learned by Adam steps on each batch.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; its objective
generalised as in [WISKI] Stanton, Maddox, Delbridge, Wilson 2021, A.7 and A.8. It is the baseline
that studies of streaming surrogates compare with.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self, Unpack, cast

import torch
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_stream.base.fitting.objective import log_prior
from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.inducing.state import Batch
from bo_stream.mathematics.posterior.factor import frozen_kernel
from bo_stream.mathematics.variational.adam import Memory, climb
from bo_stream.mathematics.variational.network import Network, best_mean, objective
from bo_stream.mathematics.variational.posterior import VariationalProcess
from bo_stream.mathematics.variational.record import OnlineSVGPState
from bo_stream.mathematics.variational.settings import check_settings, check_steps
from bo_stream.mathematics.variational.state import Past, SVGPState, condition, factor, grow

__all__ = ["OnlineSVGP"]

HYPERPARAMETERS = ("covar_module", "mean_module", "likelihood")


class OnlineSVGP(StreamingGP):
    """Sparse variational GP whose inducing points, mean and covariance climb with every batch.

    Each batch's online bound (`bo_stream.mathematics.variational`) is climbed by Adam; its moments
    are carried from batch to batch. Inducing points are taken from the data by greedy variance
    until there are ``num_inducing``, and move from then on; nothing is random. With M inducing
    points: memory O(M^2 + the last batch) whatever has been seen; `observe` of N points O(N M^2 +
    M^3) a step; a posterior O(M^3) once, then O(M^2) a point. One output.

    It is a baseline: what it makes of a point depends on the steps it takes, so that the order and
    size of batches matter; `OnlineSGPR` takes the best step in closed form. Hyperparameters stay
    unless ``learn_hyperparameters``, or `fit`: both climb the objective of one batch, on which the
    noise in particular drifts. Changed in any way, they keep ``q(v)``.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module`` (any gpytorch kernel), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        num_inducing: Number of inducing points M, once so many distinct points were seen.
            Conditioning adds its points beyond it.
        beta: Weight of the three divergences of the objective; 1 is Bui's bound.
        steps: Adam steps on each batch.
        initial_steps: Those on the first, with ``beta = 1``, at a rate annealed from 0.05.
        lr: Adam's learning rate, also of inducing points (in units of their spread) and
            hyperparameters (in their logarithms, where positive).
        learn_inducing: Whether the inducing points move.
        learn_hyperparameters: Whether Adam moves the hyperparameters too, up the objective plus
            their log priors.
        jitter: Added to ``K(Z, Z)``, relative to the prior variance.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> Y = X.sum(-1, keepdim=True)
        >>> model = OnlineSVGP(X[:20], Y[:20], num_inducing=16)
        >>> model.observe(X[20:], Y[20:]).num_observed
        40
        >>> model.inducing_points.shape
        torch.Size([16, 2])
    """

    promises = Promises(
        order_invariant=False, bytes_constant=True, updates_without_drift=300, multi_output=False
    )
    _wanted: int | None = None  # steps asked for on the batch at hand

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_inducing: int = 64,
        beta: float = 1.0,
        steps: int = 10,
        initial_steps: int = 400,
        lr: float = 2e-3,
        learn_inducing: bool = True,
        learn_hyperparameters: bool = False,
        jitter: float = 1e-8,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        check_settings(num_inducing, initial_steps, steps, beta, lr, jitter)
        self.num_inducing, self.beta, self.jitter = num_inducing, beta, jitter
        self.steps, self.initial_steps, self.lr = steps, initial_steps, lr
        self.learn_inducing, self.learn_hyperparameters = learn_inducing, learn_hyperparameters
        self._begin(train_X, train_Y, train_Yvar)

    def observe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, steps: int | None = None
    ) -> Self:
        """Absorb data in place: let inducing points join while there is room, then climb.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x 1`` raw outcomes.
            Yvar: ``n x 1`` raw noise variances, for a surrogate of known noise only.
            steps: Adam steps on this batch; None: ``steps`` of the constructor, ``initial_steps``
                on a first batch.

        Returns:
            The surrogate itself.

        Raises:
            ShapeError, DtypeError, InputError, NoiseError, BoundsError: before any change.
            StateError: if the climb goes astray.
        """
        if steps is not None:
            check_steps(steps)
        self._wanted = steps
        try:
            return super().observe(X, Y, Yvar)
        finally:
            self._wanted = None

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.state.now.Z)

    def log_evidence(self) -> NoReturn:
        """Refused: data absorbed earlier are known through ``q`` only."""
        raise UnsupportedError(
            "a family that can give the evidence of all its data",
            "an OnlineSVGP, which keeps only its last batch",
            "`make_mll` has the online objective of that batch, which `fit` climbs; "
            "`log_predictive` scores new data.",
        )

    @property
    def explores(self) -> bool:
        """False: one batch's objective does not judge hyperparameters far from now."""
        return False

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "jitter": self.jitter, "num_inducing": self.num_inducing}

    def _empty_state(self) -> OnlineSVGPState:
        return OnlineSVGPState.empty(self._dim, self.jitter)

    def _absorb(
        self, state: OnlineSVGPState, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool
    ) -> OnlineSVGPState:
        """Grow, climb, and keep what the objective of the batch is made of.

        Exact conditioning: X joins the inducing points, without any step (MATHS 1).
        """
        batch, past = Batch(X.clone(), Y[0].clone(), R[0].clone()), self._past_of(state.now)
        kernel = frozen_kernel(self.covar_module)
        if exact:
            given = replace(batch, noise=self._noise_scale().detach() * batch.noise)
            now = condition(past.state, given, kernel, past.mean)
            return replace(state, now=now, past=past, batch=batch)
        network = self._copied_network(grow(past.state, X, kernel, self.num_inducing))
        memory = self._climb(network, past, batch, state.memory)
        if self.learn_hyperparameters:
            self._learn(network)
        return OnlineSVGPState(network.state(), past, batch, memory)

    def _climb(self, network: Network, past: Past, batch: Batch, memory: Memory) -> Memory:
        """Adam steps on a batch, in place on the network."""
        first = not past.state.size
        steps = self.initial_steps if first else self.steps

        def value() -> Tensor:
            bound = objective(network, past, batch, self._weight(past))
            return bound + log_prior(network) if self.learn_hyperparameters else bound

        with torch.enable_grad():
            return climb(
                network,
                value,
                memory,
                steps=steps if self._wanted is None else self._wanted,
                rate=self.lr,
                warm_up=first,
            )

    def _learn(self, network: Network) -> None:
        """Take the hyperparameters that a climb has moved."""
        for name in HYPERPARAMETERS:
            learned = getattr(network, name).parameters()
            for own, p in zip(getattr(self, name).parameters(), learned, strict=True):
                self._undo.append(partial(own.data.copy_, own.detach().clone()))
                own.data.copy_(p.data)

    def _rescale(self, state: OnlineSVGPState, shift: Tensor, factor: Tensor) -> OnlineSVGPState:
        mean, known = self._prior_mean().detach()[0], self.noise_mode != "learned"
        return state.rescaled(shift[0], factor[0], mean, self._past_of(state.now).L, known)

    def _past_of(self, state: SVGPState) -> Past:
        """A law as a batch to come will see it."""
        kernel, mean = frozen_kernel(self.covar_module), self._prior_mean().detach()[0].clone()
        return Past(state, factor(state, kernel)[0], mean)

    def _copied_network(self, state: SVGPState) -> Network:
        """A network over copies of the hyperparameters, which learn if they are to."""
        copies = [copy.deepcopy(getattr(self, name)).double() for name in HYPERPARAMETERS]
        if not self.learn_hyperparameters:
            for module in copies:
                module.requires_grad_(False)
        return self._network(state, *copies)

    def _network(self, state: SVGPState, kernel: Any, mean: Any, likelihood: Any) -> Network:
        known, learn = self.noise_mode == "known", self.learn_inducing
        return Network(state, kernel, mean, likelihood, known=known, learn_inducing=learn)

    def _weight(self, past: Past) -> float:
        """What multiplies the divergences: ``beta``, but 1 on a first batch."""
        return self.beta if past.state.size else 1.0

    def _build_process(self, state: OnlineSVGPState) -> VariationalProcess:
        kernel = frozen_kernel(self.covar_module)
        return VariationalProcess.of(kernel, state.now, self._prior_mean().detach()[0].clone())

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Online objective of the last batch at the ``q(v)`` it led to: O(N M^2 + M^3)."""
        state = cast(OnlineSVGPState, self.state)
        now, past, batch = state.now, state.past, state.batch
        if not batch.size:
            return batch.y.new_zeros(()), None
        modules = (self.covar_module, self.mean_module, self.likelihood)
        network, weight = self._network(now, *modules), self._weight(past)
        best = best_mean(network, past, batch, weight) if profile_mean else None
        if best is None:
            return objective(network, past, batch, weight), None
        mean = cast(ConstantMean, copy.deepcopy(self.mean_module))
        mean.constant = best.reshape(mean.constant.shape).to(mean.constant)
        network = self._network(now, self.covar_module, mean, self.likelihood)
        return objective(network, past, batch, weight), best.reshape(1)
