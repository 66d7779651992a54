"""The streaming contract on the trust-region surrogate: before its first batch, and in batches."""

import pytest
from gpytorch.kernels import Kernel, MaternKernel

from bo_stream import TrustRegionGP
from bo_stream.base.streaming_gp import Promises
from bo_stream.testing import StreamingContract


class TestOneBatch(StreamingContract):
    """Within a batch it is the exact GP on all observations, in any order."""

    family = TrustRegionGP
    options = {"batch_size": 400}
    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=False
    )
    warm_evaluations = 20  # fifteen iterations, from scratch each time


@pytest.mark.slow
class TestSmallBatches(StreamingContract):
    """Regions that move: what came in which batch matters."""

    family = TrustRegionGP
    options = {"batch_size": 3}
    warm_evaluations = 20


@pytest.mark.slow
class TestExactEvaluations(TestSmallBatches):
    options = {"batch_size": 3, "noise": "none"}


@pytest.mark.slow
class TestKnownNoise(TestOneBatch):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestOneBatch):
    noise = "scaled"


@pytest.mark.slow
class TestThreeDimensionsMatern(TestSmallBatches):
    dim = 3

    def kernel(self, outputs: int = 1) -> Kernel:
        return MaternKernel(nu=2.5, ard_num_dims=self.dim)
