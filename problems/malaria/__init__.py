"""Malaria rasters as regression problems: real ones read in place, or a synthetic stand-in."""

from problems.malaria.dataset import Malaria
from problems.malaria.loader import load_malaria

__all__ = ["Malaria", "load_malaria"]
