"""Problems to optimise or to learn: synthetic functions, malaria rasters, tables read in place."""

from problems.malaria import Malaria, load_malaria
from problems.synthetic import SyntheticProblem, synthetic

__all__ = ["Malaria", "SyntheticProblem", "load_malaria", "synthetic"]
