"""CaGP under the streaming contract: exact up to its budget, beyond it, and with other actions."""

import pytest
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel

from bo_stream import CaGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.base.streaming_gp import Promises
from bo_stream.testing import StreamingContract


class Unknown(RBFKernel):
    """Any kernel but those with a closed form."""


class TestCaGP(StreamingContract):
    """Within the budget: every point an action."""

    family = CaGP
    options = {"actions": BlockSparse(300)}


@pytest.mark.slow
class TestFewActions(StreamingContract):
    """Beyond the budget: blocks, then compression; what came first decides what is kept."""

    promises = Promises(
        order_invariant=False, bytes_constant=False, updates_without_drift=300, multi_output=False
    )

    family = CaGP
    options = {"actions": BlockSparse(5)}


@pytest.mark.slow
class TestKnownNoise(TestCaGP):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestCaGP):
    noise = "scaled"


@pytest.mark.slow
class TestThreeDimensionsMatern(TestCaGP):
    dim = 3

    def kernel(self, outputs: int = 1) -> Kernel:
        return MaternKernel(nu=2.5, ard_num_dims=self.dim)


@pytest.mark.slow
class TestKernelWithoutClosedForm(TestFewActions):
    def kernel(self, outputs: int = 1) -> Kernel:
        return ScaleKernel(Unknown(ard_num_dims=self.dim))


@pytest.mark.slow
class TestFewActionsKnownNoise(TestFewActions):
    noise = "known"


@pytest.mark.slow
class TestBlocksAppended(TestFewActions):
    options = {"actions": BlockSparse(5), "append": "block"}


@pytest.mark.slow
class TestConjugateGradient(TestFewActions):
    noise = "known"

    options = {"actions": ConjugateGradient(5)}

    def test_objective_gradients(self) -> None:
        """S is a function of the hyperparameters and a constant of the gradient (MATHS 5.3)."""

    def test_second_derivatives_of_the_objective(self) -> None:
        """Likewise: the gradient's differences include those of S."""
