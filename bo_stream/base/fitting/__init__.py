"""Fitting hyperparameters on a stream: objective, coordinates, optimiser, report, schedule."""

from bo_stream.base.fitting.ascent_objective import AscentObjective, Evaluated
from bo_stream.base.fitting.closed_form import ClosedForm, LogNormals, places_of
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.objective import Fittable, StreamMLL, log_prior, profiled_mean
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.fitting.schedule import RefitSchedule

__all__ = [
    "AscentObjective",
    "ClosedForm",
    "Fittable",
    "Coordinates",
    "Evaluated",
    "FitReport",
    "LogNormals",
    "RefitSchedule",
    "StreamMLL",
    "fit_model",
    "log_prior",
    "places_of",
    "profiled_mean",
]
