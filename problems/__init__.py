"""Problems to optimise or to learn: synthetic functions, malaria rasters, tables read in place."""

from problems.malaria import Malaria, load_malaria
from problems.synthetic import SyntheticProblem, synthetic
from problems.tables import Table, load_table

__all__ = ["Malaria", "SyntheticProblem", "Table", "load_malaria", "load_table", "synthetic"]
