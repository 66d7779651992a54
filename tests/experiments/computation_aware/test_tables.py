"""Distances of subspaces."""

import math

import pytest
import torch

from experiments.computation_aware.tables import grassmann


def test_grassmann_distance_is_that_of_known_angles() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    for angles in ([0.3, 1.1], [0.0, math.pi / 2], [1e-9, 0.2]):
        turned = [
            math.cos(a) * eye[:, k] + math.sin(a) * eye[:, k + 2] for k, a in enumerate(angles)
        ]
        mixed = torch.stack(turned, -1) @ torch.tensor([[2.0, 1.0], [0.5, -1.0]]).double()
        want = math.hypot(*angles) / (math.sqrt(2) * math.pi / 2)
        assert grassmann(eye[:, :2], mixed) == pytest.approx(want, abs=1e-12)
    assert grassmann(eye[:, :2], eye[:, 2:4]) == pytest.approx(1.0)
