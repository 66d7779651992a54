"""Sums over observations: `bo_stream.mathematics.sums`."""

from bo_stream.mathematics.sums import GeneralStatistics, far

__all__ = ["GeneralStatistics", "far"]
