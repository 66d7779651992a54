"""The whole streaming contract."""

from __future__ import annotations

from bo_stream.testing.conditioning import ConditioningContract
from bo_stream.testing.pathwise import PathwiseContract

__all__ = ["StreamingContract"]


class StreamingContract(ConditioningContract, PathwiseContract):
    """Every promise of a streaming surrogate, as pytest methods; see `Contract` for what to set."""
