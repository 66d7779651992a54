"""WISKI under the streaming contract: two kinds of kernels in every run, the others slow."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Size, Tensor

from bo_stream import WISKI
from bo_stream.testing import StreamingContract


class TestWISKI(StreamingContract):
    most_updates: int | None = 200
    family = WISKI
    options = {"grid_size": [10, 9]}


@pytest.mark.slow
class TestKnownNoise(TestWISKI):
    noise = "known"
    most_updates = None


@pytest.mark.slow
class TestScaledNoise(TestWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestWISKI):
    dim = 1
    options = {"grid_size": [14]}


@pytest.mark.slow
class TestThreeDimensions(TestWISKI):
    dim = 3
    options = {"grid_size": [7, 6, 7]}


class TestMatern(TestWISKI):
    """No product of one-dimensional kernels: the posterior of the values at the nodes."""

    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        matern = MaternKernel(nu=2.5, ard_num_dims=self.dim, batch_shape=batch)
        return ScaleKernel(matern, batch_shape=batch)


@pytest.mark.slow
class TestUnscaled(TestWISKI):
    """No ScaleKernel; and one kernel for all outputs."""

    noise = "scaled"
    test_several_outputs = None  # their lengthscale is one, which is not best for each

    def kernel(self, outputs: int = 1) -> Kernel:
        return MaternKernel(nu=1.5)


@pytest.mark.slow
class TestAuto(TestWISKI):
    """A grid that follows the lengthscales."""

    options = {"grid_size": "auto", "opening": 64}


@pytest.mark.slow
class TestFromStatistics(TestWISKI):
    """No points are held: evidence and posterior come from the statistics alone."""

    options = {"grid_size": [10, 9], "opening": 0}


@pytest.mark.slow
class TestFewHeld(TestFromStatistics):
    """Fewer points held than the tests show it."""

    options = {"grid_size": [10, 9], "opening": 7}


@pytest.mark.slow
class TestMaternFromStatistics(TestFromStatistics, TestMatern):
    """A factorisation of all nodes."""


@pytest.mark.slow
class TestLarge(TestWISKI):
    """Statistics by pairs of nodes."""

    most_updates = 20
    test_hyperparameters_that_change_their_meaning = None  # with a kernel for all nodes densely
    options = {"grid_size": [66, 65]}


@pytest.mark.slow
class TestLargeInThreeDimensions(TestLarge):
    dim = 3
    noise = "scaled"
    options = {"grid_size": [17, 16, 16]}


@pytest.mark.slow
class TestLargeFromStatistics(TestLarge):
    """A large grid that holds no points: an eigenbasis."""

    most_updates = 500
    options = {"grid_size": [66, 65], "opening": 0}


@pytest.mark.slow
class TestUserGrid(TestWISKI):
    """A grid wider than the bounds, given node by node."""

    test_normalized_is_rescaled = None  # the grid of a normalized model is another one

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        if kw.get("input_transform", "left out") is not None or isinstance(kw["bounds"], str):
            return super().make(train_X, train_Y, train_Yvar, **kw)
        bounds = kw.pop("bounds")
        ends = zip(bounds[0], bounds[1], strict=True)
        nodes = [torch.linspace(float(a) - 0.7, float(b) + 0.9, 11) for a, b in ends]
        return WISKI(train_X, train_Y, train_Yvar, grid=nodes, **kw)
