"""The whole streaming contract."""

from __future__ import annotations

from bo_stream.testing.conditioning import ConditioningContract

__all__ = ["StreamingContract"]


class StreamingContract(ConditioningContract):
    """Every promise of a streaming surrogate, as pytest methods; see `Contract` for what to set."""
