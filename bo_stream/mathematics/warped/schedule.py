"""Which ascents of the evidence a fit makes, one fit after another (MATHS 13.1)."""

from __future__ import annotations

import math

import numpy as np

from bo_stream.errors import StateError
from bo_stream.mathematics.warped.evidence import Fitted, SmallEvidence, unit
from bo_stream.mathematics.warped.latent import Array

__all__ = ["fitted_by_schedule"]

AFRESH = 2
"""Every so many fits one ascent starts from the centre of the priors."""
NOISES = 5
"""Every so many fits, where noise is learned, two start from high and from low noise."""
COMPARED = 5
"""Every so many fits the evidences with and without the warp are compared."""
QUIET = 1e-3
"""Largest relative noise variance under which outcomes are warped: the warp magnifies noise near
the best outcomes, and cost a third of the regret at the noise of published studies."""
HIGH, LOW = math.log(0.3), math.log(1e-6)


def fitted_by_schedule(
    X: Array,
    y: Array,
    memory: Array,
    *,
    learned: bool,
    warp: bool,
    most: int | None,
    cat_dims: tuple[int, ...] = (),
) -> tuple[Fitted, int, Array]:
    """The hyperparameters of the highest evidence, warm.

    Args:
        X: ``n x d``, n >= 2.
        y: ``n``, to be maximised.
        memory: What the last fit returned; empty before the first.
        learned: Whether the noise is learned.
        warp: Whether outcomes may be warped.
        most: Largest number of evaluations; None for no limit.
        cat_dims: Indices of categories.

    Returns:
        The fit, the number of evaluations, and the memory of the next fit: the number of fits,
        whether the warp was chosen, and the parameters with and without warp. Equal outcomes
        determine nothing: the parameters are those of the centre of the priors.

    Raises:
        StateError, torch.linalg.LinAlgError: if the evidence is not finite.
    """
    if not unit(y):
        evidence = SmallEvidence(X, y, learned=learned, warp=False, cat_dims=cat_dims)
        centre = evidence.start()
        return evidence.fitted(centre, evidence(centre)[0]), 1, np.empty(0)
    kinds = [True, False] if warp else [False]
    sizes = [X.shape[1] + learned + kind for kind in kinds]
    whole = len(memory) == 2 + sum(sizes)
    fits = int(memory[0]) if whole else 0
    active = kinds.index(bool(memory[1])) if whole else 0
    last = np.split(memory[2:], np.cumsum(sizes)[:-1]) if whole else None
    evidences = [
        SmallEvidence(X, y, learned=learned, warp=kind, cat_dims=cat_dims) for kind in kinds
    ]
    thetas = [e.start() for e in evidences] if last is None else [np.asarray(t) for t in last]
    starts = [thetas[active]]
    if whole and fits % AFRESH == 0:
        starts.append(evidences[active].start())
    if learned and fits % NOISES == 0:
        starts += [evidences[active].start(HIGH), evidences[active].start(LOW)]
    found = evidences[active].minimised(starts, most)
    evaluations, chosen = evidences[active].evaluations, active
    thetas[active] = found.theta
    if warp and fits % COMPARED == 0 and (most is None or evaluations < most):
        other = 1 - active
        shared = np.concatenate([found.theta[: sizes[1]], thetas[other][sizes[1] :]])
        starts = [shared, thetas[other]] if whole else [shared]
        rival = evidences[other].minimised(starts, None if most is None else most - evaluations)
        evaluations += evidences[other].evaluations
        thetas[other] = rival.theta
        warping, plain = (found, rival) if kinds[active] else (rival, found)
        quiet = warping.noise < QUIET
        if (quiet and warping.value > plain.value) != kinds[active]:
            found, chosen = rival, other
    if not math.isfinite(found.value):
        raise StateError(
            "outcomes whose evidence is finite",
            f"outcomes from {y.min():.2g} to {y.max():.2g} in the units of the model",
            "Standardize the outcomes, or drop those that stand for failures.",
        )
    return found, evaluations, np.concatenate([[fits + 1.0, float(kinds[chosen])], *thetas])
