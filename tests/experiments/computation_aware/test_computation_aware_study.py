"""The study of budgets of actions: distances of subspaces, and a climb by one loss alone."""

import math

import pytest
import torch

from bo_stream import CaGP
from bo_stream.actions import BlockSparse
from experiments.common.baselines.modules import modules
from experiments.common.data import waves
from experiments.computation_aware.study import climb, grassmann


def test_distance_is_that_of_principal_angles() -> None:
    e = torch.eye(5, dtype=torch.float64)
    turned = torch.stack([e[0], math.cos(0.3) * e[1] + math.sin(0.3) * e[2]], -1)
    assert grassmann(e[:, :2], e[:, :2] @ torch.randn(2, 2, dtype=torch.float64)) < 1e-7
    assert grassmann(e[:, :2], turned) == pytest.approx(0.3)
    assert grassmann(e[:, :2], e[:, 2:4]) == pytest.approx(math.sqrt(2.0) * math.pi / 2.0)


@pytest.mark.parametrize("objective", ["log_evidence", "projected_log_likelihood"])
def test_a_climb_raises_its_objective_and_keeps_the_actions(objective: str) -> None:
    X, Y = waves(40, 2)
    model = CaGP(X, Y, actions=BlockSparse(8), **modules(2))
    before, S = getattr(model, objective)().item(), model.S.dense()
    climb(model, objective, 10)
    assert getattr(model, objective)().item() > before + 1.0
    torch.testing.assert_close(model.S.dense(), S)
