"""ProjectedWISKI under the streaming contract."""

from typing import Any

import pytest
from torch import Tensor

from bo_stream import ProjectedWISKI
from bo_stream.testing import StreamingContract


@pytest.mark.slow  # a variant of WISKI, whose own contract always runs
class TestProjectedWISKI(StreamingContract):
    """Two functions of two inputs: the tests' kernels are of as many inputs as the data."""

    test_normalized_is_rescaled = None  # the kernel is of the projection, in the unit cube
    test_several_outputs = None  # these share a projection
    opening = 64

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> ProjectedWISKI:
        sizes = {"grid_size": (9, 8), "opening": self.opening}
        return ProjectedWISKI(train_X, train_Y, train_Yvar, **sizes, **kw)


@pytest.mark.slow
class TestKnownNoise(TestProjectedWISKI):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestProjectedWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestFewHeld(TestProjectedWISKI):
    """Fewer points held than long streams have: there, each `observe` moves the projection."""

    opening = 20
