"""The whole streaming contract."""

from __future__ import annotations

from bo_stream.testing.acquisition import AcquisitionContract
from bo_stream.testing.conditioning import ConditioningContract
from bo_stream.testing.gradients import GradientContract
from bo_stream.testing.pathwise import PathwiseContract

__all__ = ["StreamingContract"]


class StreamingContract(
    ConditioningContract,
    GradientContract,
    PathwiseContract,
    AcquisitionContract,
):
    """Every promise of a streaming surrogate, as pytest methods; see `Contract` for what to set."""
