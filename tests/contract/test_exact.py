"""The exact baseline under the streaming contract: it keeps its data and says so."""

import pytest
from gpytorch.kernels import Kernel, MaternKernel
from torch import Size

from bo_stream import ExactGP
from bo_stream.testing import StreamingContract


class TestExactGP(StreamingContract):
    family = ExactGP


@pytest.mark.slow
class TestKnownNoise(TestExactGP):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestExactGP):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestExactGP):
    dim = 1


@pytest.mark.slow
class TestThreeDimensionsMatern(TestExactGP):
    dim = 3

    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        return MaternKernel(nu=2.5, ard_num_dims=self.dim, batch_shape=batch)
