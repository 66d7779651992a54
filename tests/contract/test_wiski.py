"""WISKI under the streaming contract."""

from typing import Any

from torch import Tensor

from bo_stream import WISKI
from bo_stream.testing import StreamingContract


class TestWISKI(StreamingContract):
    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        return WISKI(train_X, train_Y, train_Yvar, grid_size=[10, 9], **kw)
