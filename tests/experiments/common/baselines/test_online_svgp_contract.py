"""The streaming contract on online SVGP."""

from typing import Any

import pytest
from torch import Tensor

from bo_stream.testing import StreamingContract
from experiments.common.baselines.online_svgp import OnlineSVGP


@pytest.mark.slow  # a baseline of the studies
class TestOnlineSVGP(StreamingContract):
    most_updates: int | None = 60
    initial_steps = 15
    num_inducing = 12

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> OnlineSVGP:
        """Small: a few inducing points, and steps enough to have learned something."""
        options = {
            "num_inducing": self.num_inducing,
            "steps": 2,
            "initial_steps": self.initial_steps,
        }
        return OnlineSVGP(train_X, train_Y, train_Yvar, **(options | kw))

    def test_noise_matters_point_by_point(self) -> None:
        """Fitting a point to its noise takes its steps."""
        self.initial_steps = 300
        super().test_noise_matters_point_by_point()

    def test_warm_fits_take_few_evaluations(self) -> None:
        """A fit is warm once the network has settled."""
        self.initial_steps = 40
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
    num_inducing = 6  # more of them are nearly dependent, and quotients of differences mere noise
