"""AdditiveWISKI under the streaming contract."""

from typing import Any

import pytest
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ScaleKernel
from torch import Size, Tensor

from bo_stream import AdditiveWISKI
from bo_stream.testing import StreamingContract


@pytest.mark.slow  # a variant of WISKI, whose own contract always runs
class TestAdditiveWISKI(StreamingContract):
    most_updates: int | None = 2_000

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> AdditiveWISKI:
        return AdditiveWISKI(train_X, train_Y, train_Yvar, grid_size=12, **kw)


@pytest.mark.slow
class TestGroups(TestAdditiveWISKI):
    """A pair of inputs and one of these again."""

    dim = 3

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> AdditiveWISKI:
        groups = [[2, 0], [1], [0]] if "covar_module" not in kw else None
        return AdditiveWISKI(train_X, train_Y, train_Yvar, groups=groups, grid_size=7, **kw)


@pytest.mark.slow
class TestKnownNoise(TestAdditiveWISKI):
    noise = "known"
    most_updates = None


@pytest.mark.slow
class TestScaledNoise(TestAdditiveWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestAdditiveWISKI):
    dim = 1


@pytest.mark.slow
class TestMatern(TestAdditiveWISKI):
    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        parts = [
            ScaleKernel(MaternKernel(nu=2.5, active_dims=[k], batch_shape=batch), batch_shape=batch)
            for k in range(self.dim)
        ]
        return AdditiveKernel(*parts)
