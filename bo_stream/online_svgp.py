"""Online SVGP: a sparse GP of fixed size, learned by Adam steps on each batch.

[Bui] Bui, Nguyen, Turner 2017, Streaming Sparse Gaussian Process Approximations; its objective
generalised as in [WISKI] Stanton, Maddox, Delbridge, Wilson 2021, A.7 and A.8. It is the baseline
that studies of streaming surrogates compare with. Its mathematics is `bo_stream.variational`.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NoReturn, Self

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from bo_stream.core.streaming import Promises, StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.fitting.objective import log_prior
from bo_stream.posterior.factor import frozen_kernel
from bo_stream.posterior.process import PosteriorProcess
from bo_stream.sparse.state import Batch, solve
from bo_stream.variational.adam import Memory, climb, empty_memory
from bo_stream.variational.network import Network, best_mean, objective
from bo_stream.variational.posterior import VariationalProcess
from bo_stream.variational.state import Past, SVGPState, condition, empty_state, factor, grow

__all__ = ["OnlineSVGP"]

HYPERPARAMETERS = ("covar_module", "mean_module", "likelihood")


class OnlineSVGP(StreamingGP):
    """Sparse variational GP whose inducing points, mean and covariance climb with every batch.

    Each batch's online bound (`bo_stream.variational`) is climbed by Adam; its moments are carried
    from batch to batch. Inducing points are taken from the data by greedy variance until there are
    ``num_inducing``, and move from then on; nothing is random. With M inducing points: memory
    O(M^2 + the last batch) whatever has been seen; `observe` of N points O(N M^2 + M^3) a step; a
    posterior O(M^3) once, then O(M^2) a point. One output.

    It is a baseline: what it makes of a point depends on the steps it takes, so that the order and
    size of batches matter, and a point seen once may be half learned or half forgotten. Where the
    likelihood is Gaussian, as here, `OnlineSGPR` takes the best step in closed form.

    Hyperparameters stay unless ``learn_hyperparameters``, or `fit`: both climb the objective of one
    batch, on which the noise in particular drifts. Changed in any way, they keep ``q(v)``, the
    posterior relative to the prior.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes.
        train_Yvar: ``n x 1`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        covar_module, mean_module, likelihood, input_transform, outcome_transform: see
            `StreamingGP`; any gpytorch kernel.
        num_inducing: Number of inducing points M, once so many distinct points were seen.
            Conditioning adds its points beyond it.
        beta: Weight of the three divergences of the objective; 1 is Bui's bound. The WISKI study
            takes 0.001 with one step a point, where it makes no difference: at the first step the
            divergences' gradient is zero. With the default ten steps a small beta only forgets: on
            a stream of exchange rates the mean log loss is 1.28 nats with 1 and 3.36 with 0.001
            (`experiments/configs/fx.toml`).
        steps: Adam steps on each batch.
        initial_steps: Adam steps on the first batch, at a rate annealed from 0.05 to ``lr`` and
            with ``beta = 1``, as in the study.
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
        num_inducing: int = 64,
        beta: float = 1.0,
        steps: int = 10,
        initial_steps: int = 400,
        lr: float = 2e-3,
        learn_inducing: bool = True,
        learn_hyperparameters: bool = False,
        jitter: float = 1e-8,
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
        for name, count in (("num_inducing", num_inducing), ("initial_steps", initial_steps)):
            if count < 1:
                raise InputError(f"a positive {name}", f"{count}", "Leave it out for the default.")
        _check_steps(steps)
        if not 0.0 <= beta < float("inf"):
            raise InputError("a non-negative beta", f"{beta}", "1 is the online evidence bound.")
        if not 0.0 < lr <= 1.0:
            raise InputError("a learning rate lr in (0, 1]", f"{lr}", "0.002 is the default.")
        if not 0.0 < jitter < 1e-2:
            raise InputError("a jitter between 0 and 0.01", f"{jitter}", "1e-8 suits float64.")
        self.num_inducing, self.beta, self.jitter = num_inducing, beta, jitter
        self.steps, self.initial_steps, self.lr = steps, initial_steps, lr
        self.learn_inducing, self.learn_hyperparameters = learn_inducing, learn_hyperparameters
        nothing = empty_state(train_X, jitter)
        self._store(nothing, Past(nothing, nothing.T, nothing.mu.new_zeros(())))
        self._store_memory(empty_memory(train_X))
        for name, value in (("X", nothing.Z), ("y", nothing.mu), ("r", nothing.mu)):
            self._keep(f"batch_{name}", value)
        self.observe(train_X, train_Y, train_Yvar)
        self.eval()

    # -- what the user sees ----------------------------------------------------------------------

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
            StateError: if the climb goes astray, which leaves the surrogate as it was.
        """
        if steps is not None:
            _check_steps(steps)
        self._wanted = steps
        try:
            return super().observe(X, Y, Yvar)
        finally:
            self._wanted = None

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, ``M x d``, raw, float64."""
        return self._raw_inputs(self.get_buffer("_now_Z"))

    def log_evidence(self) -> NoReturn:
        """Refused: data absorbed earlier are known through ``q`` only."""
        raise UnsupportedError(
            "a family that can give the evidence of all its data",
            "an OnlineSVGP, which keeps only its last batch",
            "`make_mll` has the online objective of that batch, which `fit` climbs; "
            "`log_predictive` scores new data.",
        )

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "jitter": self.jitter, "num_inducing": self.num_inducing}

    def _absorb(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Grow, climb, and keep what the objective of the batch is made of."""
        batch, past = self._batch_of(X, Y, Yvar), self._past_now()
        first = not past.state.size
        kernel = frozen_kernel(self.covar_module)
        network = self._copied_network(grow(past.state, X, kernel, self.num_inducing))
        default = self.initial_steps if first else self.steps
        learn = self.learn_hyperparameters

        def value() -> Tensor:
            bound = objective(network, past, batch, self._weight(past))
            return bound + log_prior(network) if learn else bound

        with torch.enable_grad():
            memory = climb(
                network,
                value,
                self._memory(),
                steps=default if self._wanted is None else self._wanted,
                rate=self.lr,
                warm_up=first,
            )
        self._store(network.state(), past)
        self._store_memory(memory)
        self._store_batch(batch)
        if learn:
            for name in HYPERPARAMETERS:
                learned = getattr(network, name).parameters()
                for own, p in zip(getattr(self, name).parameters(), learned, strict=True):
                    own.data.copy_(p.data)

    def _condition_in_place(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """X joins the inducing points: exact, without any step (MATHS 1)."""
        if not X.shape[0]:
            return
        batch, past = self._batch_of(X, Y, Yvar), self._past_now()
        noise = self._noise_scale().detach() * batch.noise
        kernel = frozen_kernel(self.covar_module)
        given = Batch(batch.X, batch.y, noise)
        self._store(condition(past.state, given, kernel, past.mean), past)
        self._store_batch(batch)
        self._counted(X, Yvar)

    def _rescale(self, shift: Tensor, factor: Tensor) -> None:
        """The inducing values keep their law, in the new units; between them the prior speaks.

        Not quite what the same batches would have led to in the new units: Adam's steps are not
        free of units.
        """
        s, f = shift[0], factor[0]
        now, past, m = self._now(), self._past(), self._prior_mean().detach()[0]
        mu = now.mu / f + solve(self._past_now().L, torch.ones_like(now.mu)) * ((m - s) / f - m)
        before = Past(past.state, past.L / f, (past.mean - s) / f)
        self._store(replace(now, mu=mu, T=now.T / f), before)
        self._keep("batch_y", (self.get_buffer("_batch_y") - s) / f)
        if self.noise_mode != "learned":
            self._keep("batch_r", self.get_buffer("_batch_r") / f.square())

    def _batch_of(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Batch:
        """The batch, with its noise before any learned scale."""
        return Batch(X, Y[0], torch.ones_like(Y[0]) if Yvar is None else Yvar[0])

    def _past_now(self) -> Past:
        """The law now, as a batch to come will see it."""
        state, kernel = self._now(), frozen_kernel(self.covar_module)
        return Past(state, factor(state, kernel), self._prior_mean().detach()[0].clone())

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

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, previous: PosteriorProcess | None) -> PosteriorProcess:
        kernel = frozen_kernel(self.covar_module)
        return VariationalProcess.of(kernel, self._now(), self._prior_mean().detach()[0].clone())

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Online objective of the last batch at the ``q(v)`` it led to: O(N M^2 + M^3)."""
        X, y, r = (self.get_buffer(f"_batch_{name}") for name in "Xyr")
        if not X.shape[0]:
            return y.new_zeros(()), None
        past, batch = self._past(), Batch(X, y, r)
        now, modules = self._now(), (self.covar_module, self.mean_module, self.likelihood)
        network, weight = self._network(now, *modules), self._weight(past)
        best = best_mean(network, past, batch, weight) if profile_mean else None
        if best is None:
            return objective(network, past, batch, weight), None
        mean = copy.deepcopy(self.mean_module)
        mean.constant = best.reshape(mean.constant.shape).to(mean.constant)
        network = self._network(now, self.covar_module, mean, self.likelihood)
        return objective(network, past, batch, weight), best.reshape(1)

    # -- buffers ---------------------------------------------------------------------------------

    _wanted: int | None = None

    def _now(self) -> SVGPState:
        Z, mu, T = (self.get_buffer(f"_now_{name}") for name in ("Z", "mu", "T"))
        return SVGPState(Z, mu, T, self.jitter)

    def _past(self) -> Past:
        Z, mu, T, L, mean = (
            self.get_buffer(f"_past_{name}") for name in ("Z", "mu", "T", "L", "mean")
        )
        return Past(SVGPState(Z, mu, T, self.jitter), L, mean)

    def _store(self, now: SVGPState, past: Past) -> None:
        for name in ("Z", "mu", "T"):
            self._keep(f"now_{name}", getattr(now, name))
            self._keep(f"past_{name}", getattr(past.state, name))
        self._keep("past_L", past.L)
        self._keep("past_mean", past.mean)

    def _store_batch(self, batch: Batch) -> None:
        for name, value in (("X", batch.X), ("y", batch.y), ("r", batch.noise)):
            self._keep(f"batch_{name}", value)

    def _memory(self) -> Memory:
        first, second = (
            tuple(self.get_buffer(f"_{kind}_{i}") for i in range(4)) for kind in ("first", "second")
        )
        return Memory(self.get_buffer("_adam_step"), first, second)

    def _store_memory(self, memory: Memory) -> None:
        self._keep("adam_step", memory.step)
        for kind in ("first", "second"):
            for i, value in enumerate(getattr(memory, kind)):
                self._keep(f"{kind}_{i}", value)


def _check_steps(steps: int) -> None:
    if steps < 0:
        raise InputError("steps of zero or more", f"{steps}", "Leave them out for the default.")
