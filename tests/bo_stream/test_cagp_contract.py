"""The streaming contract for CaGP: exact up to its budget, compressed, CG; every noise mode."""

from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.cagp import CaGP
from bo_stream.streaming import Promises
from bo_stream.testing import StreamingContract


class TestCaGP(StreamingContract):
    def make(self, train_X, train_Y, train_Yvar=None, *, bounds, **kw):
        return CaGP(train_X, train_Y, train_Yvar, bounds=bounds, **kw)


class TestCaGPKnownNoise(TestCaGP):
    noise = "known"


class TestCaGPScaledNoise(TestCaGP):
    noise = "scaled"


class TestCaGPFewActions(StreamingContract):
    """A budget below the number of data: blocks depend on what came first."""

    promises = Promises(
        order_invariant=False, bytes_constant=False, updates_without_drift=300, multi_output=False
    )

    def make(self, train_X, train_Y, train_Yvar=None, *, bounds, **kw):
        return CaGP(train_X, train_Y, train_Yvar, bounds=bounds, actions=BlockSparse(5), **kw)


class TestCaGPConjugateGradient(TestCaGPFewActions):
    noise = "known"

    def make(self, train_X, train_Y, train_Yvar=None, *, bounds, **kw):
        actions = ConjugateGradient(5)
        return CaGP(train_X, train_Y, train_Yvar, bounds=bounds, actions=actions, **kw)
