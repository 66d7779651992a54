"""An engine that follows trials kept elsewhere, without any framework."""

from typing import Any

import numpy as np
import pytest

from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.errors import InputError
from bo_stream.integrations.following import FinishedTrial, FollowsTrials, Parameter

ROWS = np.random.default_rng(0).random((8, 2)) * [4.0, 0.9] + [0.0, 1e-3]
FINISHED = {i: FinishedTrial((x, r), (x - 3.0) ** 2 + r) for i, (x, r) in enumerate(ROWS.tolist())}


class Follower(FollowsTrials):
    """Of two parameters."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(
            surrogate="exact",
            seed=seed,
            fit=FitPolicy(then_every=5, max_evals=10),
            optimiser=Optimiser(2, 32, {"maxiter": 3}),
        )
        parameters = {"x": Parameter((0.0, 4.0)), "r": Parameter((1e-4, 1.0), log=True)}
        self._follow(parameters, "minimise")

    def next(self, *trials: Any) -> tuple[float, ...]:
        return self._next(*trials)


def test_a_proposal_depends_on_seed_and_number() -> None:
    point = Follower().next(8, FINISHED, [])
    assert Follower().next(8, FINISHED, []) == point
    assert Follower().next(9, FINISHED, []) != point
    assert Follower(seed=1).next(8, FINISHED, []) != point


@pytest.mark.parametrize("kind", ["pending", "failed"])
def test_pending_and_failed_points_are_avoided(kind: str) -> None:
    ours = Follower()
    point = ours.next(8, FINISHED, [])
    pending = [point] if kind == "pending" else []
    failed = {} if kind == "pending" else {8: FinishedTrial(point)}
    other = ours.next(8, {**FINISHED, **failed}, pending)
    gaps = np.abs(np.subtract(other, point)) / [4.0, 1.0]
    assert gaps.max() > 1e-3


def test_known_outcomes_are_not_observed_again() -> None:
    ours = Follower()
    ours.next(8, FINISHED, [])
    model = ours.model
    assert model is not None and model.num_observed == 8
    new = {**FINISHED, 8: FinishedTrial((1.0, 0.1), 4.1)}
    ours.next(9, new, []), ours.next(9, new, [])
    assert ours.model is model and model.num_observed == 9


def test_bounds_and_scales_are_checked() -> None:
    with pytest.raises(InputError, match="positive values"):
        Follower()._follow({"x": Parameter((0.0, 1.0), log=True)}, "minimise")
