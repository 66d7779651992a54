"""Counts as a stream: EP sites over a surrogate of known noise (MATHS 11).

An outcome y of density ``p(y | g)``, with ``g = f + e`` and an independent nugget
``e ~ N(0, tau2)``, enters a surrogate as a target of known noise. This *site* has natural
parameters ``l1`` and ``l2``, target ``t = l1 / l2`` and noise ``D = 1 / l2 + tau2``.

[Minka] Minka 2001, Expectation Propagation for Approximate Bayesian Inference; sites in a stream,
their refreshing and the nugget are ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import scipy  # which imports its parts when they are first used
import torch
from botorch.sampling.base import MCSampler
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Size, Tensor

from bo_stream.base.checkpoint import entries
from bo_stream.base.fitting import FitReport, check_evaluations
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.options import default_kernel, own_options
from bo_stream.base.stream import StateLock, Stream, StreamBuffers, all_or_nothing
from bo_stream.base.streaming_gp import CompositeModel, PredictiveScore, StreamingGP
from bo_stream.base.units import columns_of
from bo_stream.errors import InputError, StateError, UnsupportedError, whole_number
from bo_stream.likelihoods import Binomial, Likelihood, Moments, Sites, cavities
from bo_stream.mathematics.outcomes import (
    OutcomeDistribution,
    bisected,
    checked_levels,
    expected,
    fine_nodes,
)
from bo_stream.mathematics.shapes import Rows, loaded, nested, shaped
from bo_stream.mathematics.sums import FeatureStatistics
from bo_stream.surrogates.registry import FAMILIES, family_named, for_targets

__all__ = ["CountGP", "CountState", "OutcomePrediction"]

TAKEN = ("train_Yvar", "mean_module", "outcome_transform", "loads_data")
"""Options of a family that the counts determine."""
ROUGH = (FAMILIES["wiski"], FAMILIES["exact"], FAMILIES["node_wiski"])
"""Families that represent a rough kernel well."""
BLOCK = 64
"""Points whose sites are found together."""
SPARE = 64
"""Outcomes that may be held beyond the first ones, so that they are let go many at a time."""
SWEEPS = 2
ROUNDS, CLOSE, STEADY = 8, 0.01, 0.02
"""Most rounds of a fit; it ends once the evidence gains less than this many
nats and the nugget moves by less than this share."""
SLACK = 1.2
"""A prior on features may have a variance larger than the kernel's by this factor."""
CHUNK = 4096
"""Points whose marginals are computed at a time."""
LEAST_VARIANCE = 1e-14
DRAWS = 64
"""Draws of counts for the expectation of a score."""


@dataclass(frozen=True)
class CountState:
    """What is kept beside the surrogate.

    Attributes:
        held: Outcomes whose sites can be computed again.
        kept: The surrogate's stream with the targets of all other outcomes, where they are sums;
            else without any.
        nugget: The variance of the nugget.
        totals: Sums of outcomes and of sizes.
        late: What outcomes that are not held add to the evidence.
    """

    held: Outcomes = nested()
    kept: Stream = nested()
    nugget: Tensor = shaped("", "not negative")
    totals: Tensor = shaped("2")
    late: Tensor = shaped("")


class CountGP(CompositeModel):
    """A Gaussian process on the logit of a prevalence or the logarithm of a rate, from counts.

    Each outcome enters a streaming surrogate as a target of known noise, chosen by expectation
    propagation. `observe` chooses targets under the posterior of the moment, in blocks of 64.
    The first ``opening`` outcomes are held (random ones of a large batch that is sorted), and
    `refresh` and `fit` choose their targets again. Posterior and evidence then equal those of
    expectation propagation on all data at once, in any order. Later outcomes keep the targets of
    their arrival. Before the first of these is let go, `observe` fits the hyperparameters, and a
    nugget that is to be learned, to the held ones: a large table may come at once or in parts.

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

    Attributes:
        model: The surrogate of the latent value f, of known noise.
        likelihood: The likelihood of the outcomes.

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
        kind = likelihood or Binomial()
        if not isinstance(kind, Likelihood):
            raise InputError("a likelihood, such as Binomial()", repr(kind), "Build one.")
        dim = columns_of("X", X)
        family, learned = family_named(surrogate, dim), kind.nugget == "learn"
        if "opening" in own_options(cast(type, family)):
            options["opening"] = opening
        if covar_module is None and learned and kind.whole and family in ROUGH:
            covar_module = latent_kernel(dim)
        super().__init__()
        self.likelihood, self._lock = kind, StateLock()
        self.opening = whole_number("opening", opening, 0)
        options |= {"bounds": bounds, "covar_module": covar_module}
        self.model = for_targets(family, X, TAKEN, input_transform, options)
        self._share_lock()
        promises = self.model.promises
        least = max(1, self.opening) if promises.additive or promises.rebuilds else 0
        self._most_held = 2**62 if promises.keeps_data else least
        zero = self.model._like.new_zeros(())
        state = CountState(
            held=Outcomes(zero.new_zeros(0, dim), *[zero.new_zeros(0)] * 5),
            kept=self.model.stream.contents,
            nugget=zero + (kind.first_nugget(zero) if learned else float(kind.nugget)),
            totals=zero.new_zeros(2),
            late=zero,
        )
        self.counts = StreamBuffers(state)
        self.observe(X, k, trials)
        self.eval()

    # -- state -----------------------------------------------------------------------------------

    def _put(self, state: CountState) -> None:
        """Replace the state beside the surrogate; if the present change fails, it is restored."""
        self._set("counts", StreamBuffers(state))

    @property
    def nugget(self) -> float:
        """The variance of the nugget, on the latent scale."""
        return float(self.counts.contents.nugget)

    @property
    def informative(self) -> bool:
        """Whether the outcomes determine hyperparameters: neither all zero nor all positive."""
        return self.likelihood.informative(*self.counts.contents.totals.tolist())

    @property
    def _holds_all(self) -> bool:
        """Whether the sites of all outcomes can be computed again."""
        return self._most_held > 0 and len(self.counts.contents.held) == self.num_observed

    @property
    def refreshable(self) -> bool:
        """Whether targets can be chosen again."""
        return self.model.promises.additive or self._holds_all

    # -- data ------------------------------------------------------------------------------------

    @all_or_nothing
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
        kind, model, held = self.likelihood, self.model, self.counts.contents.held
        most, before = self._most_held, model.num_observed
        points = model.transformed(X).detach()
        y, size = kind.read(k, trials, X)
        rows = order_of_arrival(y / size, most + SPARE - len(held) if most else 0)
        points, y, size = points[rows], y[rows], size[rows]
        unset = self._start(y, size, before)
        for block in torch.arange(len(y)).split(BLOCK) if len(y) else ():
            x, k, n = points[block], y[block], size[block]
            state, (mean, S) = self.counts.contents, model._moments(x)
            density_size, extra = kind.sized(n, state.nugget)
            prior = mean[0], S[0] + extra * torch.eye(len(n)).to(S)
            l1, l2 = kind.batch_sites(*prior, k, density_size)
            new = Outcomes(x, k, n, l1, l2, 1.0 / l2 + extra)
            held, totals = state.held + new, state.totals + torch.stack([k.sum(), n.sum()])
            self._put(replace(state, held=held, totals=totals))
            model._absorb_rows(new.regression)
            if len(held) > most + SPARE:
                self._let_go()
        doubled = (before + len(y)).bit_length() > before.bit_length() > 0
        if unset and doubled and self._holds_all:  # under the mean and the nugget of all
            self._swept(1, learns=False)
        return self

    def _start(self, y: Tensor, size: Tensor, count: int) -> bool:
        """Start prior mean and nugget from (nearly) all outcomes, ``count`` old ones and new ones.

        Returns:
            Whether the mean has followed them: it was not set or fitted before.
        """
        old, new = _nearly(count), _nearly(count + len(y))
        if old == new or (count and not self._holds_all):
            return False
        model, kind, held = self.model, self.likelihood, self.counts.contents.held
        before, seen = held.y[:old], torch.cat([held.y, y])[:new]
        mean = model._prior_mean().detach().to(model.dtype)
        unset = not count or bool(mean == kind.pooled(before, held.size[:old]).to(model.dtype))
        if unset:
            seen_size = torch.cat([held.size, size])[:new]
            model._set_prior_mean(kind.pooled(seen, seen_size).reshape(1))
        if kind.nugget == "learn" and (not count or self.nugget == kind.first_nugget(before)):
            nugget = model._like.new_tensor(kind.first_nugget(seen))
            self._put(replace(self.counts.contents, nugget=nugget))
        return unset

    def _let_go(self) -> None:
        """Cease to hold outcomes beyond the first ones.

        Before the first ones go, a nugget that is to be learned is fitted, because their targets
        keep the nugget of their arrival.
        """
        if self._holds_all and self.likelihood.nugget == "learn" and self.informative:
            self._lock.restores(self.model.parameters())
            try:
                self.fit()
            except (StateError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                text = f"Later outcomes get targets of a nugget that could not be fitted: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=4)
        state, most = self.counts.contents, self._most_held
        held, kept, late = state.held, state.kept, state.late + self._corrections(state.held[most:])
        if self.model.promises.additive:
            kept, rows = self._kept(), held[most:].regression
            sums = cast(FeatureStatistics, kept.state).absorb_at(rows, int(kept.count))
            count, noise_sum = kept.count + len(rows), kept.noise_sum + rows.R.sum(-1)
            kept = replace(kept, state=sums, count=count, noise_sum=noise_sum)
        self._put(replace(state, held=held[:most], kept=kept, late=late))

    def _kept(self) -> Stream:
        """The stream of targets that are not held, over the surrogate's features; an empty one
        where the family's state is no sum.
        """
        model, kept = self.model, self.counts.contents.kept
        if not model.promises.additive:
            return kept
        return replace(kept, state=kept.sums.along(model.stream.contents.sums, int(kept.count)))

    @all_or_nothing
    def forget(self, factor: float) -> Self:
        """Down-weight all outcomes so far by ``factor``; see `StreamingGP.forget`.

        Their targets stay as they are; later outcomes are held and refreshed.

        Raises:
            InputError: for a factor that is not above 0 and at most 1.
            UnsupportedError: if the family cannot forget.
        """
        state = self.counts.contents
        late = state.late + self._corrections(state.held)
        self.model.forget(factor)
        if factor != 1.0:
            kept = self.model.stream.contents
            self._put(replace(state, held=state.held[:0], kept=kept, late=factor * late))
        return self

    @all_or_nothing
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
            raise StateError(
                f"a CountGP of {self.likelihood}",
                f"{getattr(other, 'likelihood', type(other).__name__)}",
                "Build both alike.",
            )
        mine, theirs = self.counts.contents, other.counts.contents
        if not self.num_observed:
            self.model._set_prior_mean(other.model._prior_mean().detach())
            if self.likelihood.nugget == "learn":
                mine = replace(mine, nugget=theirs.nugget.clone())
        self.model.merge(other.model)
        held, kept = mine.held + theirs.held, self._kept().merged(theirs.kept)
        late, totals = mine.late + theirs.late, mine.totals + theirs.totals
        self._put(replace(mine, held=held, kept=kept, totals=totals, late=late))
        if len(held) > self._most_held + SPARE:
            self._let_go()
        return self

    # -- sites and hyperparameters ---------------------------------------------------------------

    def refresh(self, sweeps: int = SWEEPS) -> float:
        """Choose the targets of the held outcomes again, under the posterior of all others.

        Args:
            sweeps: Number of sweeps; with a learned nugget each also moves the nugget.

        Returns:
            The largest move of a posterior mean by the last sweep, in standard deviations.

        Raises:
            UnsupportedError: if the surrogate's state depends on order, or not all is held.
        """
        whole_number("sweeps", sweeps, 1)
        if not self.refreshable:
            raise UnsupportedError(
                "a surrogate whose targets can be chosen again: wiski, hsgp, exact, or node_wiski "
                "with all outcomes held",
                f"{type(self.model).__name__} after {self.num_observed} outcomes",
                "It takes one pass; use one of those, or a larger `opening`.",
            )
        return self._swept(sweeps, self.likelihood.nugget == "learn" and self.informative)

    @all_or_nothing
    def _swept(self, sweeps: int, learns: bool) -> float:
        """Renew the held targets and, with ``learns``, the nugget; the last sweep's largest move of
        a mean in standard deviations.
        """
        moved, model, kind = 0.0, self.model, self.likelihood
        for _ in range(sweeps if len(self.counts.contents.held) else 0):
            state = self.counts.contents
            held, nugget = state.held, state.nugget
            m, v = self._marginals(held.X)
            if learns:
                nugget = kind.next_nugget(nugget, m, v, held.target, held.D, held.y, held.size)
            l1, l2 = kind.sites(*self._moments(held, m, v, nugget))
            moved = float(((l1 - held.l1 - (l2 - held.l2) * m).abs() * v.sqrt()).max())
            held = replace(held, l1=l1, l2=l2, D=1.0 / l2 + kind.sized(held.size, nugget)[1])
            self._put(replace(state, held=held, nugget=nugget))
            kept = self._kept()
            model._replace(state=kept.state, count=kept.count, noise_sum=kept.noise_sum)
            model._absorb_rows(held.regression, same_features=model.promises.additive)
        return moved

    @torch.no_grad()
    def log_evidence(self) -> Tensor:
        """EP's log evidence of all outcomes, 0-dim; that of later ones is as of their arrival."""
        state = self.counts.contents
        return self.model.log_evidence() + state.late + self._corrections(state.held)

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
        evaluations, value, converged = 0, -torch.inf, not self.informative
        if not self.informative:
            warnings.warn(
                "Hyperparameters and nugget keep their values: all outcomes are zero, or all full.",
                stacklevel=2,
            )
        elif not self.refreshable:
            return self.model.fit(max_evals)
        for _ in range(ROUNDS):
            if converged:
                break
            before, nugget = value, self.nugget
            self.refresh()
            evaluations += self.model.fit(max_evals).evaluations
            value = float(self.log_evidence())
            steady = abs(self.nugget - nugget) <= STEADY * self.nugget
            converged = steady and value - before < CLOSE
        if self.refreshable:
            self.refresh()
        return FitReport(evaluations, float(self.log_evidence()), converged)

    # -- latent values ---------------------------------------------------------------------------

    def _marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of f at transformed points, each ``n``."""
        parts = [self.model.process().at(part) for part in X.split(CHUNK)]
        v = torch.cat([part.variance()[0] for part in parts]).clamp_min(LEAST_VARIANCE)
        return torch.cat([part.mean[0] for part in parts]), v

    def _moments(
        self, held: Outcomes, m: Tensor, v: Tensor, nugget: Tensor
    ) -> tuple[Moments, Moments, Tensor, Tensor]:
        """Moments of g with and without its site (MATHS 11.1), outcomes and their sizes.

        Args:
            held: The outcomes.
            m: Posterior means of f at their points.
            v: Posterior variances.
            nugget: The variance of the nugget, 0-dim.
        """
        prior = cast(Tensor, self.model.covar_module(held.X, diag=True)).detach().double()
        widest, (size, extra) = SLACK * prior.reshape(-1), self.likelihood.sized(held.size, nugget)
        mean, variance = cavities(m, v, held.target / held.D, 1.0 / held.D, widest)
        return (m, v), (mean, variance + extra), held.y, size

    def _corrections(self, held: Outcomes) -> Tensor:
        """What held outcomes add to the evidence of their targets, 0-dim."""
        moments = self._moments(held, *self._marginals(held.X), self.counts.contents.nugget)
        return self.likelihood.corrections(*moments, Sites(held.l1, held.l2)).sum()

    # -- predictions of outcomes -----------------------------------------------------------------

    def response(self, X: Tensor, *, nugget: bool = True) -> OutcomeDistribution:
        """The prevalence, or the rate of one unit of exposure, at ``n x d`` raw points.

        Args:
            X: The points.
            nugget: True: the response *here*, at a site that may be surveyed, which has a nugget of
                its own. False: that of the *smooth surface*.
        """
        with torch.no_grad():
            m, v = self._marginals(self.model.transformed(X))
        _, extra = self.likelihood.sized(v, self.counts.contents.nugget)
        latent = m.unsqueeze(0), (v + extra if nugget else v).unsqueeze(0)
        return OutcomeDistribution(m.new_ones(1), *latent, self.likelihood.response)

    def predict_counts(self, X: Tensor, trials: Any = None) -> OutcomePrediction:
        """The distribution of a future outcome at each of ``n x d`` raw points.

        Args:
            X: The points.
            trials: ``n`` trials or exposures, or one number; None for ones.
        """
        here, kind = self.response(X), self.likelihood
        size, _ = kind.sized(kind.read_size(trials, X), self.counts.contents.nugget)
        return OutcomePrediction(kind, here.means[0], here.variances[0], size)

    def log_predictive(self, X: Tensor, k: Any, trials: Any = None) -> Tensor:
        """Joint log probability of new outcomes before they are absorbed, 0-dim, by EP: O(n^3)."""
        points, kind = self.model.transformed(X), self.likelihood
        y, size = kind.read(k, trials, X)
        size, extra = kind.sized(size, self.counts.contents.nugget)
        with torch.no_grad():
            mean, S = self.model._moments(points)
            prior = mean[0], S[0] + extra * torch.eye(len(y)).to(S)
            return kind.batch_evidence(*prior, y, size, kind.batch_sites(*prior, y, size))

    def predictive_score(self, X: Tensor, k: Any, trials: Any = None) -> PredictiveScore:
        """`log_predictive` of the counts.

        The shortfall is summed over the counts one at a time, with their correlations left out;
        expectations are averages over draws.
        """
        density = self.log_predictive(X, k, trials)
        future = self.predict_counts(X, trials)
        alone = torch.stack([future.log_prob(row) for row in future.sample(DRAWS)])
        mean = alone.mean(0)
        variance = (alone - mean).square().sum() / (DRAWS - 1)
        return PredictiveScore(density, (mean - future.log_prob(k)).sum(), variance)

    def future_noise(self, X: Tensor, trials: Any = None) -> Tensor:
        """The noise with which a future outcome observes f, nugget included (MATHS 11.6).

        It is differentiable in the points.

        Args:
            X: ``batch_shape x q x d`` raw points.
            trials: ``q`` trials or exposures, or one number; by default the mean of those seen.

        Returns:
            ``batch_shape x q x 1``.
        """
        kind, state = self.likelihood, self.counts.contents
        if trials is not None:
            size = kind.read_size(trials, X.new_zeros(X.shape[-2], 1))
        else:
            n = self.num_observed
            size = state.totals[1] / n if n else torch.ones_like(state.nugget)
        size, extra = kind.sized(size, state.nugget)
        point = self.model.process().at(self.model.transformed(X))
        mean, variance = point.mean[..., 0, :], point.variance()[..., 0, :] + extra
        information = expected(lambda g: kind.information(g, size), mean, variance)
        return (1.0 / information + extra).unsqueeze(-1)

    _noise_at = future_noise

    def response_weights(self, X: Tensor) -> Tensor:
        """Squared mean slopes of the response in f at ``n x d`` raw points, ``n`` (MATHS 11.6).

        As weights of `acquisitions.NIPV` on `model`, they make it the integrated variance of the
        response instead of that of the latent value.
        """
        here = self.response(X)
        return expected(self.likelihood.response_slope, here.means[0], here.variances[0]).square()

    def believing(self, X: Tensor, trials: Any = None) -> GaussianModel:
        """The latent surface given outcomes with unchanged means at ``q x d`` pending raw points.

        Args:
            X: The points.
            trials: As for `future_noise`.
        """
        with torch.no_grad():
            mean = self.model.posterior(X).mean
            return self.model.condition_on_observations(X, mean, self.future_noise(X, trials))

    def fantasize(self, X: Tensor, sampler: MCSampler, trials: Any = None) -> GaussianModel:
        """Sample future outcomes' targets and condition on them, with exact gradients to X.

        Args:
            X: ``batch_shape x q x d`` raw points.
            sampler: Draws the fantasies.
            trials: As for `future_noise`.
        """
        return self.model.fantasize(X, sampler, self.future_noise(X, trials))

    # -- saving ----------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        own = {"k": [], "likelihood": self.likelihood, "opening": self.opening}
        return {**self._shared_arguments("X"), **own}

    def _header(self) -> dict[str, Any]:
        return {"class": type(self).__name__, "likelihood": repr(self.likelihood)}

    def _load(
        self, state: Mapping[str, Any], data: Mapping[str, Any] | None, changed: bool
    ) -> None:
        """Load counts, or the nugget; under other values held targets are chosen again."""
        mine = self.counts.contents
        counts, kept = entries(state, "counts."), self._kept()
        if data is None:
            learned = ("nugget",) if self.likelihood.nugget == "learn" else ()
            counts = {name: counts[name] for name in learned if name in counts}
        sizes = {**self.model._sizes(), "n": int(counts.get("kept_count", kept.count))}
        self._put(loaded(replace(mine, kept=kept), counts, sizes))
        changed = changed or not torch.equal(mine.nugget, self.counts.contents.nugget)
        if data is None and changed and self.refreshable:
            self._swept(SWEEPS, learns=False)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes whose sites can be computed again, as they were absorbed (MATHS 11.3, 11.4).

    Attributes:
        X: Points, transformed.
        y: Outcomes.
        size: Trials, exposures, or ones.
        l1, l2: Natural parameters of the sites of g.
        D: Noise variances of the targets that were absorbed.
    """

    X: Tensor = shaped("h d")
    y: Tensor = shaped("h")
    size: Tensor = shaped("h", "positive")
    l1: Tensor = shaped("h")
    l2: Tensor = shaped("h", "positive")
    D: Tensor = shaped("h", "positive")

    def __len__(self) -> int:
        return len(self.X)

    @property
    def target(self) -> Tensor:
        """The targets, ``h``."""
        return self.l1 / self.l2

    @property
    def regression(self) -> Rows:
        """The data of one output that the outcomes are replaced by."""
        return Rows(self.X, self.target.unsqueeze(0), self.D.unsqueeze(0))

    def __getitem__(self, rows: slice) -> Self:
        return replace(self, **{name: value[rows] for name, value in vars(self).items()})

    def __add__(self, other: Outcomes) -> Self:
        theirs = vars(other)
        return replace(self, **{k: torch.cat([v, theirs[k]]) for k, v in vars(self).items()})


@dataclass(frozen=True)
class OutcomePrediction:
    """The distribution of a future outcome at each of ``n`` points (MATHS 11.6).

    Attributes:
        likelihood: The likelihood of the outcomes.
        latent_mean: Means of the latent values g, ``n``.
        latent_variance: Their variances, ``n``.
        size: Trials, exposures, or ones, ``n``.
    """

    likelihood: Likelihood
    latent_mean: Tensor
    latent_variance: Tensor
    size: Tensor

    @property
    def mean(self) -> Tensor:
        """Expected outcomes, ``n``."""
        response = expected(self.likelihood.response, self.latent_mean, self.latent_variance)
        return self.size * response if self.likelihood.whole else response

    def log_prob(self, k: Any) -> Tensor:
        """Log probability of outcomes, ``n``; of measurements the log density.

        Args:
            k: ``n`` outcomes.

        Raises:
            ShapeError, InputError: for outcomes that cannot occur.
        """
        y, _ = self.likelihood.read(k, self.size, self.latent_mean.unsqueeze(-1))
        return self.likelihood.log_marginal(self.latent_mean, self.latent_variance, y, self.size)

    def cdf(self, k: Tensor) -> Tensor:
        """Probability of at most ``k``, which broadcasts with ``n``."""
        g, log_weights = fine_nodes(self.latent_mean, self.latent_variance)
        below = self.likelihood.cdf(g, k.unsqueeze(-2), self.size)
        return (below * log_weights.exp()).sum(-2)

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """The smallest outcomes whose probability of not being exceeded is at least each level,
        ``len(levels) x n``.

        Raises:
            InputError: for levels outside (0, 1).
        """
        level, kind = checked_levels(levels, self.size), self.likelihood
        ends = fine_nodes(self.latent_mean, self.latent_variance)[0][[0, -1]].unsqueeze(1)
        reached = kind.distribution(ends, self.size).ppf(level.numpy(force=True))
        low, high = torch.as_tensor(reached).to(ends)  # at the least and the largest latent value
        high = high.where(~high.isnan(), 2.0 * self.size * kind.response(ends[1]) + 1.0)
        low = low.nan_to_num(0.0) - 1.0  # scipy finds no quantiles of the largest rates
        found = bisected(lambda k: self.cdf(k) < level, low, high, 0.5 if kind.whole else 0.0)
        return found.round().abs() if kind.whole else found

    def sample(self, draws: int, seed: int = 0) -> Tensor:
        """Independent draws of the outcomes, ``draws x n``."""
        rng = np.random.default_rng(seed)
        z = torch.from_numpy(rng.standard_normal((draws, len(self.size)))).to(self.size)
        g = self.latent_mean + self.latent_variance.sqrt() * z
        return self.likelihood.sample(g, self.size, rng)


def latent_kernel(dim: int) -> ScaleKernel:
    """A scaled Matern-3/2 kernel of ``dim`` inputs, with BoTorch's prior of lengthscales.

    The prior of its variance keeps fits to few counts from a flat surface, whose intervals are too
    narrow, with all variation in the nugget (MATHS 11.5).
    """
    prior = default_kernel(dim, Size()).base_kernel.lengthscale_prior
    base = MaternKernel(1.5, ard_num_dims=dim, lengthscale_prior=prior)
    base.lengthscale = prior.mode
    return ScaleKernel(base, outputscale_prior=LogNormalPrior(0.0, 1.0))


def order_of_arrival(rate: Tensor, room: int) -> Tensor:
    """The order in which to absorb a batch of which only the first ``room`` outcomes can be held.

    It is that of the rows, unless the mean rank of the outcomes per size (``n``) among the first
    ones is further than 5 standard deviations from the others', as in a sorted table. Then it is a
    random one.
    """
    n, values = len(rate), rate.numpy(force=True)
    if 0 < room < n and abs(scipy.stats.ranksums(values[:room], values[room:]).statistic) > 5.0:
        return torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return torch.arange(n)


def _nearly(count: int) -> int:
    """At most a ninth less, so that what depends on it rarely changes: its leading four bits."""
    shift = max(0, count.bit_length() - 4)
    return count >> shift << shift
