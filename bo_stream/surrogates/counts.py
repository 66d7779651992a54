"""Counts as a stream: EP sites over a surrogate of known noise (MATHS 11).

[Minka] Minka 2001, Expectation Propagation for Approximate Bayesian Inference; sites in a stream,
their refreshing and the nugget are ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self, cast

import torch
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.base.checks import inputs_of
from bo_stream.base.fitting.objective import check_evaluations
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import own_options, whole_number
from bo_stream.base.stream import StateLock, all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.units import bounds_for, input_transform_for
from bo_stream.errors import InputError, OptionError, StateError
from bo_stream.likelihoods import Binomial, Likelihood
from bo_stream.mathematics.sites.batch import batch_sites
from bo_stream.mathematics.sites.held import HeldOutcomes
from bo_stream.mathematics.sites.kernel import latent_kernel
from bo_stream.surrogates.count_predictions import CountPredictions
from bo_stream.surrogates.count_state import CountState
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.node_wiski import NodeWISKI
from bo_stream.surrogates.registry import family_named
from bo_stream.surrogates.wiski import WISKI

__all__ = ["CountGP"]

TAKEN = ("train_Yvar", "mean_module", "outcome_transform", "loads_data")
"""Options of a family that the counts determine."""
BLOCK = 64
"""Points whose sites are found together."""
SPARE = 64
"""Outcomes that may be held beyond the first ones, so that they are let go many at a time."""
ROUNDS, CLOSE, STEADY = 8, 0.01, 0.02
"""Most rounds of a fit; it ends once the evidence gains less than this many
nats and the nugget moves by less than this share."""


class CountGP(CountPredictions):
    """A Gaussian process on the logit of a prevalence or the logarithm of a rate, from counts.

    Each outcome enters a streaming surrogate as a target of known noise, chosen by expectation
    propagation. `observe` chooses targets under the posterior of the moment, in blocks of 64;
    `refresh` and `fit` choose them again for the first ``opening`` outcomes, which are held (random
    ones of a large batch that is sorted), after which posterior and evidence equal those of
    expectation propagation on all data at once, in any order. Later outcomes keep the targets of
    their arrival. Before the first of these are let go, hyperparameters and a nugget that is to be
    learned are fitted to the held ones, by `observe`, so that a large table may come at once or in
    parts.

    ``surrogate`` may be ``wiski``, ``hsgp``, ``exact`` (which holds all outcomes), ``node_wiski``
    (refreshed while all outcomes are held) or any other family of one output. Those whose state
    depends on the order of the data (``online_sgpr``, ``cagp``, ...) take one pass: `refresh` is
    refused, the nugget keeps its first value, and `fit` fits hyperparameters to the targets as they
    are.

    Costs are those of the surrogate, about .3 ms an outcome in blocks, and for a refresh a rebuild
    from the held outcomes. Predictions: `response` (prevalence, rate), `predict_counts`, and
    `posterior` on the latent scale, where it is a BoTorch model.

    Args:
        X: ``n x d`` raw points; ``n = 0`` is allowed.
        k: ``n`` counts.
        trials: ``n`` numbers of trials, or exposures; one number for all; None for ones.
        likelihood: A likelihood of `bo_stream.likelihoods`; its nugget is learned by default.
        bounds: ``2 x d`` raw bounds, as required by the family.
        surrogate: A family by name or class. By default ``wiski`` for up to 3 inputs, else
            ``hsgp``.
        covar_module: By default a scaled Matern-3/2 with priors, if a nugget of counts is learned
            on ``wiski``, ``exact`` or ``node_wiski``; otherwise the family's kernel.
        opening: Number of first outcomes that are held for good, at least one; up to 64 later ones
            are, too.
        input_transform: As for every family.
        options: The family's own options: ``grid_size``, ``num_features``, ``cap``, ...

    Raises:
        InputError, ShapeError, DtypeError, BoundsError: for invalid data or options.

    Example:
        >>> X = torch.rand(60, 2, dtype=torch.double)
        >>> positive = (20 * X[:, 0]).round()
        >>> unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = CountGP(X, positive, trials=20, bounds=unit)
        >>> model.fit().converged
        True
        >>> here = model.response(X[:3])
        >>> here.mean.shape, here.quantiles([0.05, 0.95]).shape
        (torch.Size([3]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        X: Tensor,
        k: Any,
        trials: Any = None,
        *,
        likelihood: Likelihood | None = None,
        bounds: Any = None,
        surrogate: str | Callable[..., StreamingGP] | None = None,
        covar_module: Kernel | None = None,
        opening: int = 4096,
        input_transform: Any = DEFAULT,
        **options: Any,
    ) -> None:
        taken = sorted(set(TAKEN) & set(options))
        if taken:
            raise OptionError("options not set by counts", ", ".join(taken), "Leave them out.")
        dim = inputs_of("X", X)
        family, kind = family_named(surrogate, dim), likelihood or Binomial()
        if not isinstance(kind, Likelihood):
            raise InputError("a likelihood, such as Binomial()", repr(kind), "Build one.")
        whole_number("opening", opening, 0)
        if "opening" in own_options(cast(type, family)):
            options["opening"] = opening
        points, bounds = X.detach(), bounds_for(bounds, input_transform, X)
        options["input_transform"] = input_transform_for(input_transform, points, bounds)
        learned = kind.nugget == "learn"
        rough = learned and kind.whole and family in (WISKI, ExactGP, NodeWISKI)
        covar_module = covar_module or (latent_kernel(dim) if rough else None)
        options |= {"bounds": bounds, "outcome_transform": None, "covar_module": covar_module}
        none = points.new_empty(0, 1)
        model = family(points[:0], none, none, **options)
        super().__init__()
        self._lock = StateLock()
        nugget = kind.first_nugget(torch.zeros(1)) if learned else float(kind.nugget)
        state = CountState.empty(dim, model._like, nugget)
        self._hold(model, None, kind, opening, state)
        self.observe(X, k, trials)
        self.eval()

    # -- data ------------------------------------------------------------------------------------

    def observe(self, X: Tensor, k: Any, trials: Any = None) -> Self:
        """Absorb counts in place, in batches of any size; if it raises, nothing has changed.

        Until the first fit the prior mean is the link of the pooled rate of nearly all outcomes.
        The batch with which they exceed ``opening`` takes a `fit`, if the nugget is to be learned.

        Args:
            X: ``n x d`` raw points.
            k: ``n`` counts.
            trials: As for the constructor.

        Raises:
            InputError, ShapeError, DtypeError, BoundsError: for invalid data.
        """
        self._check_points(X)
        y, size = self.likelihood.read(k, trials, X)
        if len(y):
            rows = self._order(y / size)
            points = self.model._transformed(X.detach())[rows]
            self._absorb_outcomes(points, y[rows], size[rows])
        return self

    def _order(self, rate: Tensor) -> Tensor:
        """The order in which to absorb a batch, from its outcomes per size.

        Its own, unless it cannot all be held and the mean rank of the first ones is further than 5
        standard deviations from the others', as in a sorted table. Then it is a random one.
        """
        n, most = len(rate), self._most_held()
        m = most + SPARE - len(self._state.held)
        if most and 0 < m < n:
            _, place, ties = rate.unique(return_inverse=True, return_counts=True)
            ranks = (ties.cumsum(0) - 0.5 * (ties + 1))[place]
            deviation = float(ranks[:m].mean()) - 0.5 * (n - 1)
            if deviation**2 > 25.0 * (n + 1) * (n - m) / (12 * m):
                return torch.randperm(n, generator=torch.Generator().manual_seed(0))
        return torch.arange(n)

    @all_or_nothing
    def _absorb_outcomes(self, X: Tensor, y: Tensor, size: Tensor) -> None:
        """Absorb checked outcomes at transformed points."""
        before, unset = self.num_observed, self._start(y, size)
        for one in zip(X.split(BLOCK), y.split(BLOCK), size.split(BLOCK), strict=True):
            self._absorb_block(*one)
        doubled = self.num_observed.bit_length() > before.bit_length() > 0
        if unset and doubled and self._holds_all:  # under the mean and the nugget of all
            self._sweep(learns=False)

    def _absorb_block(self, X: Tensor, y: Tensor, size: Tensor) -> None:
        prior, state = self._joint(X), self._state
        told = self.likelihood.outcome_size(size, state.nugget)
        sites = batch_sites(self.likelihood, *prior, y, told)
        D = 1.0 / sites.l2 + self._extra()
        block = HeldOutcomes(X, y, size, sites.l1, sites.l2, D)
        self._absorb_targets(self.model, block)
        totals = state.totals + torch.stack([y.sum(), size.sum()])
        self._change(held=state.held.and_then(block), totals=totals, count=state.count + len(y))
        self._let_go()

    def _let_go(self) -> None:
        """Cease to hold outcomes beyond the first ones, if they are many."""
        most = self._most_held()
        if len(self._state.held) > most + SPARE:
            self._learn_while_all_are_held()
            state = self._state
            late = state.late + self._held_corrections(slice(most, None))
            self._freeze(state.held.part(slice(most, None)))
            self._change(held=state.held.part(slice(most)), late=late)

    def _learn_while_all_are_held(self) -> None:
        """Fit before the first targets are let go, if the nugget is to be learned: they keep the
        nugget of their arrival for good.
        """
        if not (self._holds_all and self._learns_nugget):
            return
        for parameter in self.model.parameters():
            before = parameter.detach().clone()
            self._lock.on_failure(partial(parameter.data.copy_, before))
        try:
            self.fit()
        except (StateError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            text = f"Later outcomes get targets of a nugget that could not be fitted: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _start(self, y: Tensor, size: Tensor) -> bool:
        """Start prior mean and nugget from (nearly) all outcomes, old and new.

        Returns:
            Whether the mean has followed them: it was not set or fitted before.
        """
        held, kind, dtype = self._state.held, self.likelihood, self.model.dtype
        count = self.num_observed
        old, new = _nearly(count), _nearly(count + len(y))
        if old == new or not (self._holds_all or not count):
            return False
        seen_y, seen_size = torch.cat([held.y, y])[:new], torch.cat([held.size, size])[:new]
        mean = self.model._prior_mean().detach().to(dtype)
        unset = not count or bool(mean == kind.pooled(held.y[:old], held.size[:old]).to(dtype))
        if unset:
            self._move_prior_mean(kind.pooled(seen_y, seen_size))
        if kind.nugget == "learn" and (not count or self.nugget == kind.first_nugget(held.y[:old])):
            self._change(nugget=self._state.nugget * 0.0 + kind.first_nugget(seen_y))
        return unset

    def forget(self, factor: float) -> Self:
        """Down-weight all outcomes so far by ``factor``; see `StreamingGP.forget`.

        Their targets stay as they are; later outcomes are held and refreshed.

        Raises:
            InputError: for a factor that is not above 0 and at most 1.
            UnsupportedError: if the family cannot forget.
        """
        if factor != 1.0:
            self._forget(factor)
        return self

    @all_or_nothing
    def _forget(self, factor: float) -> None:
        late = self._state.late + self._held_corrections()
        self.model.forget(factor)
        self._freeze_all()
        held = self._state.held.part(slice(0))
        self._change(held=held, late=factor * late)

    def merge(self, other: CountGP) -> Self:
        """Add another stream's outcomes in place.

        Those it holds are held here, too, up to ``opening``. Hyperparameters and nugget keep this
        one's values, unless held ones are let go for the first time, as by `observe`; one without
        outcomes takes the other's nugget and prior mean. Call `refresh` or `fit` next.

        Raises:
            StateError: if families, features, transforms or likelihoods differ.
            UnsupportedError: if the family cannot be merged.
        """
        if not isinstance(other, CountGP) or other.likelihood != self.likelihood:
            got = other.likelihood if isinstance(other, CountGP) else type(other).__name__
            raise StateError(f"a CountGP of {self.likelihood}", f"{got}", "Build both alike.")
        self._merge(other)
        return self

    @all_or_nothing
    def _merge(self, other: CountGP) -> None:
        mine, theirs = self._state, other._state
        if not self.num_observed:
            self._move_prior_mean(other.model._prior_mean())
            if self.likelihood.nugget == "learn":
                self._change(nugget=theirs.nugget.clone())
        self.model.merge(other.model)
        if other.frozen is not None:
            self._frozen_stream().merge(other.frozen)
        held, late = mine.held.and_then(theirs.held), mine.late + theirs.late
        totals, count = mine.totals + theirs.totals, mine.count + theirs.count
        self._change(held=held, totals=totals, count=count, late=late)
        self._let_go()

    # -- hyperparameters -------------------------------------------------------------------------

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit hyperparameters and nugget by EP's evidence, and refresh all held targets.

        While all outcomes are zero, or all are positive, hyperparameters keep their values, with a
        warning, because the mean would run away.

        Args:
            max_evals: Maximum number of evaluations of objective and gradient in each of up to 8
                rounds.

        Returns:
            Evaluations over all rounds, and EP's log evidence; the surrogate's own report where
            targets are not refreshed.
        """
        check_evaluations(max_evals)
        if not self.informative:
            warnings.warn(
                "Hyperparameters and nugget keep their values: all outcomes are zero, or all full.",
                stacklevel=2,
            )
        if not self.refreshable:
            return self.model.fit(max_evals) if self.informative else self._report(0, True)
        evaluations, value, converged = 0, -torch.inf, not self.informative
        for _ in range(ROUNDS):
            before, nugget = value, float(self._state.nugget)
            self.refresh()
            if not self.informative:
                break
            evaluations += self.model.fit(max_evals).evaluations
            value = float(self.log_evidence())
            steady = abs(self.nugget - nugget) <= STEADY * self.nugget
            converged = steady and value - before < CLOSE
            if converged:
                break
        self.refresh()
        return self._report(evaluations, converged)

    def _report(self, evaluations: int, converged: bool) -> FitReport:
        return FitReport(evaluations, float(self.log_evidence()), converged)


def _nearly(count: int) -> int:
    """At most a ninth less, so that what depends on it rarely changes: its leading four bits."""
    shift = max(0, count.bit_length() - 4)
    return count >> shift << shift
