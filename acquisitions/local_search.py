"""Proposing trials from a `WarpedGP`: candidates near and far, then one search (MATHS 13.2).

The optimum of a small budget is approached in steps that shrink over orders of magnitude, and a
search from points spread over the box misses the improvement next to the best point.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from acquisitions.domain import Domain
from acquisitions.latent import LatentLogExpectedImprovement, log_improvement
from acquisitions.mixed import ranked_maxima, repeats_tell, unseen
from acquisitions.search import ascend
from bo_stream.errors import ShapeError
from bo_stream.mathematics.exact import Array, LatentProcess
from bo_stream.surrogates.warped import WarpedGP

__all__ = ["LocalSearch"]

GLOBAL, LOCAL = 512, 256
"""Candidates over the box, and about the best points."""
STARTS, EVALUATIONS = 10, 25
"""Points that the search starts from, and evaluations of all of them."""
SPREAD = 2048
"""Points of the Sobol sequence that global candidates are drawn from."""
CENTRES, TO_INCUMBENT = 4, 0.6
"""Number of good points that local candidates surround, and the share about the best one."""
RADII = (-3.0, -0.3)
"""Decimal logarithms of the smallest and largest local steps, in lengthscales."""
SAME = 1e-8
"""Scaled distance below which a point repeats an observed one."""


class LocalSearch:
    """Maximises `LatentLogExpectedImprovement`; a `ProposalRule` of campaigns over a box.

    A batch is chosen one point after another, each believed to have its posterior mean, as running
    trials are. Points that repeat an observed, running or failed one are refused. Randomness comes
    from torch's global generator. O(n^2) per candidate and evaluation; a few milliseconds at
    n = 60.

    Args:
        bounds: ``2 x d`` raw bounds.
        domain: The feasible set, if that is not the whole box; its points stay feasible.

    Raises:
        ShapeError: for bounds of another shape.
    """

    def __init__(self, bounds: Tensor, domain: Domain | None = None) -> None:
        if bounds.ndim != 2 or bounds.shape[0] != 2:
            raise ShapeError(
                "bounds `2 x d`", f"{tuple(bounds.shape)}", "Stack lower and upper bounds."
            )
        self.bounds = bounds.detach().double()
        self.domain = domain

    def __call__(self, model: Any, q: int, context: Any) -> Tensor:
        """The next trials.

        Args:
            model: A `WarpedGP` with at least one observation.
            q: Number of trials.
            context: The campaign's points, of which those of running and failed trials are used
                (`bo_stream.campaign.proposing.proposals.ProposalContext`).

        Returns:
            ``q x d`` raw points.

        Raises:
            UnsupportedError: for another model.
        """
        acquisition = LatentLogExpectedImprovement(model)
        ours = cast(WarpedGP, model)
        if self.domain is not None:
            running = torch.cat([context.pending, context.failed])
            return _feasible(acquisition, ours, self.domain, q, running)
        avoided = [ours.transformed(t).numpy(force=True) for t in (context.pending, context.failed)]
        box = ours.transformed(self.bounds).sort(0).values.numpy(force=True)
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        process = acquisition.process.believing(np.concatenate(avoided))
        chosen: list[Array] = []
        for _ in range(q):
            x = _next(process, box, rng)
            chosen.append(x)
            process = process.believing(x[None])
        Z = torch.from_numpy(np.stack(chosen))
        return ours._raw_inputs(Z).clamp(*self.bounds).to(ours.dtype)


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
    scales = torch.from_numpy(process.lengthscales)
    unit = (scales / (ends[1] - ends[0]).abs()).clamp_max(1.0)
    chosen = running.to(domain.bounds)
    for _ in range(q):
        acquisition.set_X_pending(chosen)

        def value(X: Tensor) -> Tensor:
            found: Tensor = acquisition(X.reshape(-1, 1, X.shape[-1]))
            return found.reshape(X.shape[:-1])

        X, _ = ranked_maxima(value, domain, near, unit)
        seen = chosen if repeats_tell(model, domain) else torch.cat([observed, chosen])
        chosen = torch.cat([chosen, unseen(X, seen, domain)[:1]])
    return chosen[len(running) :].to(model.dtype)


def _next(process: LatentProcess, box: Array, rng: np.random.Generator) -> Array:
    """The maximiser of the log expected improvement."""
    low, high = box
    scales = np.minimum(process.lengthscales, high - low)
    candidates = np.concatenate(
        [_over_the_box(low, high, rng), _about_the_best(process, low, high, scales, rng)]
    )
    values = log_improvement(process, candidates, slopes=False)
    starts = candidates[_roulette(values, rng)]
    function = partial(log_improvement, process)
    X, reached = ascend(function, starts, box, scales, EVALUATIONS)
    for x in X[np.argsort(-reached)]:
        if _distance(process, x) > SAME:
            return np.asarray(x)
    return candidates[rng.integers(GLOBAL)]


def _distance(process: LatentProcess, x: Array) -> float:
    """Scaled distance of a point ``d`` to the nearest point observed."""
    gaps = (process.X - x) / process.lengthscales
    for j in process.cat_dims:
        gaps[:, j] = (gaps[:, j] != 0.0) / process.lengthscales[j]
    return float(np.sqrt((gaps * gaps).sum(1).min()))


def _over_the_box(low: Array, high: Array, rng: np.random.Generator) -> Array:
    points = _sobol(len(low))[rng.choice(SPREAD, GLOBAL, replace=False)]
    return low + (high - low) * ((points + rng.random(len(low))) % 1.0)


@cache
def _sobol(dim: int) -> Array:
    drawn: Array = SobolEngine(dim, scramble=True, seed=0).draw(SPREAD, dtype=torch.float64).numpy()
    return drawn


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
