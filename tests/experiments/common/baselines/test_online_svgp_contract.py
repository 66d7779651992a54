"""The streaming contract on online SVGP."""

from collections.abc import Mapping
from typing import Any

import pytest

from bo_stream.testing import StreamingContract
from experiments.common.baselines.online_svgp import OnlineSVGP


@pytest.mark.slow  # a baseline of the studies
class TestOnlineSVGP(StreamingContract):
    """Small: a few inducing points, and steps enough to have learned something."""

    family = OnlineSVGP
    options: Mapping[str, Any] = {"num_inducing": 12, "steps": 2, "initial_steps": 15}
    most_updates: int | None = 60

    def test_noise_matters_point_by_point(self) -> None:
        """Fitting a point to its noise takes its steps."""
        self.options = {**self.options, "initial_steps": 300}
        super().test_noise_matters_point_by_point()

    def test_warm_fits_take_few_evaluations(self) -> None:
        """A fit is warm once the network has settled."""
        self.options = {**self.options, "initial_steps": 40}
        super().test_warm_fits_take_few_evaluations()


@pytest.mark.slow
class TestKnownNoise(TestOnlineSVGP):
    most_updates = None
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestOnlineSVGP):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestOnlineSVGP):
    dim = 1
    # more inducing points are nearly dependent, and quotients of differences mere noise
    options = {"num_inducing": 6, "steps": 2, "initial_steps": 15}
