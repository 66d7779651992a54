"""The streaming contract: what every surrogate of this package, and yours, is tested for.

A family passes it by subclassing and naming the family, in a file that pytest collects:

    from bo_stream.testing import StreamingContract

    class TestWISKI(StreamingContract):
        family = WISKI
        options = {"grid_size": 12}

What a family promises (`bo_stream.base.streaming_gp.Promises`, declared on the class) decides which
tests apply; `Contract` in `bo_stream.testing.base` says what else a subclass may set. A likelihood
of outcomes passes `LikelihoodContract`, a rule that chooses trials `RuleContract`, a store of
campaigns `StoreContract`. Needs the extra ``test`` (pytest, hypothesis).
"""

import pkgutil

import pytest

# Before the modules are imported: a failed assertion in any of them then shows its values.
pytest.register_assert_rewrite(
    *(module.name for module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."))
)

from bo_stream.testing.contract import StreamingContract  # noqa: E402
from bo_stream.testing.likelihoods import LikelihoodContract  # noqa: E402
from bo_stream.testing.rules import RuleContract  # noqa: E402
from bo_stream.testing.stores import StoreContract  # noqa: E402

__all__ = ["LikelihoodContract", "RuleContract", "StoreContract", "StreamingContract"]
