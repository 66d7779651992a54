"""Proposing trials from a `WarpedGP`: candidates near and far, then one search (MATHS 13.2).

With a small budget, steps towards the optimum shrink over orders of magnitude. A search that starts
from points spread over the box misses the improvement next to the best point.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from acquisitions.ascent import maximise_in_turn, repeats_tell
from acquisitions.climb import climb
from acquisitions.domain import Domain
from acquisitions.moments import LogImprovement
from acquisitions.rule import Proposal, Rule, View
from acquisitions.search import Search, Target, shifted
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import LatentProcess
from bo_stream.surrogates.warped import WarpedGP

__all__ = ["LatentLogExpectedImprovement", "LocalSearch"]

GLOBAL, LOCAL = 512, 256
"""Candidates over the box, and about the best points."""
STARTS, EVALUATIONS = 10, 25
"""Points that the search starts from, and evaluations of all of them."""
TOLERANCE = 1e-5
"""Promised gain below which a climb ends."""
CENTRES, TO_INCUMBENT = 4, 0.6
"""Number of good points that local candidates surround, and the share about the best one."""
RADII = (-3.0, -0.3)
"""Decimal logarithms of the smallest and largest local steps, in lengthscales."""
SAME = 1e-8
"""Scaled distance below which a point repeats an observed one."""


class LatentLogExpectedImprovement(AnalyticAcquisitionFunction):
    """Log expected improvement of the latent function over its best value.

    Args:
        model: A `WarpedGP`.
        best_f_latent: Best latent value so far; by default the best observed one without noise, and
            the highest posterior mean at the observed points with noise.
        X_pending: ``n' x d`` raw points under evaluation; posterior means stand for their outcomes.

    Raises:
        UnsupportedError: for other models.
    """

    def __init__(
        self, model: Model, best_f_latent: float | None = None, X_pending: Tensor | None = None
    ) -> None:
        if not isinstance(model, WarpedGP):
            raise UnsupportedError(
                "a WarpedGP", type(model).__name__, "Use botorch's LogExpectedImprovement."
            )
        super().__init__(model=model)
        self.best_f_latent = best_f_latent
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Condition on the posterior means at points under evaluation."""
        self.X_pending: Any = X_pending
        model = cast(WarpedGP, self.model)
        self.process = model.latent()
        if X_pending is not None:
            points = model.transformed(X_pending.detach())
            self.process = self.process.believing(points.numpy(force=True))

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at raw points ``batch_shape x 1 x d``."""
        Z = cast(WarpedGP, self.model).transformed(X).squeeze(-2)
        flat = Z.detach().reshape(-1, Z.shape[-1]).numpy(force=True)
        values, slopes = improvement(self.process, self.best_f_latent).of_one(flat)
        value = torch.from_numpy(values).reshape(*Z.shape[:-1], 1).to(Z)
        slope = torch.from_numpy(slopes).reshape(Z.shape).to(Z)
        return attach(value, [Z], [slope]).squeeze(-1).to(X)


def improvement(process: LatentProcess, best: float | None = None) -> Search:
    """The log expected improvement of single points.

    Args:
        process: The latent process.
        best: The value to improve on; by default the highest of the process.
    """
    best = float(process.values.max()) if best is None else best
    of, none = LogImprovement(np.empty((0, 1)), best), process.X[:0]
    return Search(process.process, Target(of, none, none), none, 1)


class LocalSearch(Rule):
    """Maximises `LatentLogExpectedImprovement` of a `WarpedGP`, with data, over a box.

    The points of a batch are chosen one after another. Chosen points and running trials are taken
    to have their posterior means as outcomes. Points that repeat an observed, running or failed one
    are refused. Randomness comes from torch's global generator. O(n^2) per candidate and
    evaluation; a few milliseconds at n = 60.
    """

    family = "warped"

    def propose(self, view: View, q: int) -> Proposal:
        """The next trials.

        Raises:
            UnsupportedError: for another model.
        """
        acquisition = LatentLogExpectedImprovement(cast(Model, view.model))
        ours = cast(WarpedGP, view.model)
        if not view.domain.is_box:
            running = torch.cat([view.pending, view.failed])
            return Proposal(_feasible(acquisition, ours, view.domain, q, running))
        avoided = [ours.transformed(t).numpy(force=True) for t in (view.pending, view.failed)]
        bounds = view.domain.bounds
        box = ours.transformed(bounds).sort(0).values.numpy(force=True)
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        process = acquisition.process.believing(np.concatenate(avoided))
        chosen: list[Array] = []
        for _ in range(q):
            x = _next(process, box, rng)
            chosen.append(x)
            process = process.believing(x[None])
        Z = torch.from_numpy(np.stack(chosen))
        return Proposal(ours._raw_inputs(Z).clamp(*bounds).to(ours.dtype))


def _feasible(
    acquisition: LatentLogExpectedImprovement,
    model: WarpedGP,
    domain: Domain,
    q: int,
    running: Tensor,
) -> Tensor:
    """Maximisers inside the feasible set, ``q x d``, one after another."""
    process, observed = acquisition.process, model._raw_inputs(model.state.X).to(domain.bounds)
    observed = domain.snapped(domain.clipped(observed))  # what rounding has moved
    inside = domain.holds(observed)
    near = observed[inside]
    values = torch.from_numpy(process.values)[: len(observed)][inside]
    if not bool(inside.all()) and len(near):
        acquisition.best_f_latent = float(values.max())
    good = near[values.argsort(descending=True)[:CENTRES]]
    shares = round(CENTRES * TO_INCUMBENT / (1.0 - TO_INCUMBENT))
    near = torch.cat([good, good[:1].expand(min(shares, len(good) * shares), -1)])
    ends = model.transformed(domain.bounds)
    scales = torch.from_numpy(process.process.unit)
    unit = (scales / (ends[1] - ends[0]).abs()).clamp_max(1.0)
    running = running.to(domain.bounds)
    acquisition.set_X_pending(running)
    seen = running if repeats_tell(model, domain) else torch.cat([observed, running])
    return maximise_in_turn(acquisition, domain, q, near, seen, unit=unit).to(model.dtype)


def _next(process: LatentProcess, box: Array, rng: np.random.Generator) -> Array:
    """The maximiser of the log expected improvement."""
    (low, high), lengths = box, process.process.unit
    scales = np.minimum(lengths, high - low)
    candidates = np.concatenate(
        [
            shifted(box, GLOBAL, rng.random(len(low))),
            _about_the_best(process, low, high, scales, rng),
        ]
    )
    search = improvement(process)
    starts = candidates[_roulette(search.scored(candidates)[0], rng)]
    X, reached = climb(search.of_one, starts, box, scales, EVALUATIONS, TOLERANCE)
    gaps = (X[:, None] - process.X) / lengths
    reached[(gaps * gaps).sum(-1).min(-1) <= SAME**2] = -np.inf
    best = X[reached.argmax()] if reached.max() > -np.inf else candidates[rng.integers(GLOBAL)]
    return np.asarray(best)


def _about_the_best(
    process: LatentProcess, low: Array, high: Array, scales: Array, rng: np.random.Generator
) -> Array:
    """Steps from the incumbent and from the points of the highest means, in some coordinates."""
    d, good = len(low), process.values.argsort()[-CENTRES:]
    centres = rng.choice(good, LOCAL)
    centres[rng.random(LOCAL) < TO_INCUMBENT] = process.values.argmax()
    steps = rng.standard_normal((LOCAL, d)) * 10.0 ** rng.uniform(*RADII, (LOCAL, 1))
    moved = rng.random((LOCAL, d)) < max(0.4, 2.0 / d)
    moved[np.arange(LOCAL), rng.integers(d, size=LOCAL)] |= ~moved.any(1)
    return np.clip(process.X[centres] + steps * scales * moved, low, high)


def _roulette(values: Array, rng: np.random.Generator) -> Array:
    """Rows to start from: the best of either kind, and others in proportion to improvement."""
    best = [int(values[:GLOBAL].argmax()), GLOBAL + int(values[GLOBAL:].argmax())]
    weights = np.exp(np.maximum(values - values.max(), -30.0))
    weights[best] = 0.0
    others = rng.choice(len(values), STARTS - len(best), replace=False, p=weights / weights.sum())
    return np.concatenate([best, others])
