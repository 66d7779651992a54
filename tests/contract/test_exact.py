"""The exact baseline under the streaming contract."""

from typing import Any

from torch import Tensor

from bo_stream import ExactGP
from bo_stream.testing import StreamingContract


class TestExactGP(StreamingContract):
    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> ExactGP:
        return ExactGP(train_X, train_Y, train_Yvar, **kw)
