"""Problems to optimise or to learn: noisy synthetic functions on the unit cube."""

from problems.synthetic import SyntheticProblem, synthetic

__all__ = ["SyntheticProblem", "synthetic"]
