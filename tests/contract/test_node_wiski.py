"""NodeWISKI under the streaming contract: below its cap, where it is exact, and beyond it."""

from typing import Any

import pytest
from gpytorch.kernels import Kernel, MaternKernel
from torch import Size

from bo_stream import NodeWISKI
from bo_stream.base.streaming_gp import Promises
from bo_stream.testing import StreamingContract


class TestNodeWISKI(StreamingContract):
    """Every point a node, as long as there are no more than the cap."""

    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=True
    )

    family = NodeWISKI
    options = {"cap": 300, "tolerance": 0.0}

    test_bytes = None  # O(n^2) up to the cap

    @pytest.mark.slow
    def test_no_drift(self) -> None:
        super().test_no_drift()

    @pytest.mark.slow
    def test_many_points(self, *args: Any) -> None:
        super().test_many_points(*args)


@pytest.mark.slow
class TestKnownNoise(TestNodeWISKI):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestNodeWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestNodeWISKI):
    dim = 1


@pytest.mark.slow
class TestThreeDimensionsMatern(TestNodeWISKI):
    dim = 3

    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        return MaternKernel(nu=2.5, ard_num_dims=self.dim, batch_shape=batch)


@pytest.mark.slow
class TestBeyondTheCap(StreamingContract):
    """Eight nodes: places change hands, and what came first has its say."""

    family = NodeWISKI
    options = {"cap": 8}
    warm_evaluations = 8  # a node replaced changes what the points before it said
    # outputs decide together which points are nodes
    test_several_outputs_are_independent = None
    test_several_outputs = None


@pytest.mark.slow
class TestBeyondTheCapKnownNoise(TestBeyondTheCap):
    noise = "known"
