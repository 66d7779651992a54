"""HSGP under the streaming contract: one configuration in every run, the others slow."""

from typing import Any

import pytest
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Size, Tensor

from bo_stream import HSGP
from bo_stream.mathematics.sines import MainEffects
from bo_stream.testing import StreamingContract


class TestHSGP(StreamingContract):
    most_updates: int | None = 200
    test_normalized_is_rescaled = None  # all inputs share the lengthscale of main effects

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> HSGP:
        return HSGP(train_X, train_Y, train_Yvar, num_features=40, opening=64, **kw)


@pytest.mark.slow
class TestKnownNoise(TestHSGP):
    noise = "known"
    most_updates = None


@pytest.mark.slow
class TestScaledNoise(TestHSGP):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestHSGP):
    dim = 1
    test_normalized_is_rescaled = StreamingContract.test_normalized_is_rescaled


@pytest.mark.slow
class TestThreeDimensions(TestHSGP):
    dim = 3
    test_fit_climbs_near_an_optimum = None  # L-BFGS-B goes below lengthscales that are resolved
    test_several_outputs = None  # outputs share their features

    def kernel(self, outputs: int = 1) -> Kernel:
        """With main effects; long, as the bounds are several units wide."""
        batch = Size([outputs] if outputs > 1 else [])
        matern = MaternKernel(nu=2.5, ard_num_dims=3, batch_shape=batch)
        joint = ScaleKernel(matern, batch_shape=batch)
        return joint + ScaleKernel(MainEffects(batch_shape=batch), batch_shape=batch)

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> HSGP:
        return HSGP(train_X, train_Y, train_Yvar, num_features=150, **kw)


@pytest.mark.slow
class TestManyInputs(TestHSGP):
    """Features whose first points are held."""

    dim = 4
    test_fit_climbs_near_an_optimum = None  # distant starts for each choice of features: 109
    test_several_outputs = None  # outputs share their features
    test_normalized_is_rescaled = StreamingContract.test_normalized_is_rescaled


@pytest.mark.slow
class TestMatern(TestHSGP):
    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        matern = MaternKernel(nu=2.5, ard_num_dims=self.dim, batch_shape=batch)
        return ScaleKernel(matern, batch_shape=batch)


@pytest.mark.slow
class TestFixedFeatures(TestHSGP):
    """Features chosen once and for all, no points held."""

    dim = 4

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> HSGP:
        scales = [0.4] * self.dim
        return HSGP(train_X, train_Y, train_Yvar, num_features=40, lengthscales=scales, **kw)
