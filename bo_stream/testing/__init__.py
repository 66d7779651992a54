"""The streaming contract: what every surrogate of this package, and yours, is tested for.

A family passes it by subclassing and giving a factory, in a file that pytest collects:

    from bo_stream.testing import StreamingContract

    class TestWISKI(StreamingContract):
        def make(self, train_X, train_Y, train_Yvar=None, *, bounds, **kw):
            return WISKI(train_X, train_Y, train_Yvar, bounds=bounds, grid_size=12, **kw)

What a family promises (`bo_stream.base.streaming_gp.Promises`, declared on the class) decides which
tests apply. `Contract` in `bo_stream.testing.base` says what else a subclass may set. Needs the
extra ``test`` (pytest, hypothesis).
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"bo_stream.testing.{name}"
        for name in (
            "acquisition",
            "base",
            "conditioning",
            "fantasies",
            "fitting",
            "gradients",
            "inputs",
            "interface",
            "processes",
            "noise",
            "pathwise",
            "persistence",
            "state",
            "transforms",
        )
    )
)

from bo_stream.testing.contract import StreamingContract  # noqa: E402

__all__ = ["StreamingContract"]
