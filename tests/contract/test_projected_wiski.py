"""ProjectedWISKI under the streaming contract."""

import pytest

from bo_stream import ProjectedWISKI
from bo_stream.testing import StreamingContract


@pytest.mark.slow  # a variant of WISKI, whose own contract always runs
class TestProjectedWISKI(StreamingContract):
    """Two functions of two inputs: the tests' kernels are of as many inputs as the data."""

    family = ProjectedWISKI
    options = {"grid_size": (9, 8), "opening": 64}
    test_normalized_is_rescaled = None  # the kernel is of the projection, in the unit cube
    test_several_outputs = None  # these share a projection


@pytest.mark.slow
class TestKnownNoise(TestProjectedWISKI):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestProjectedWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestFewHeld(TestProjectedWISKI):
    """Fewer points held than long streams have: there, each `observe` moves the projection."""

    options = {"grid_size": (9, 8), "opening": 20}
