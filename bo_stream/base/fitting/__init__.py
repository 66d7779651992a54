"""Fitting hyperparameters on a stream: coordinates, ascent, fit, schedule."""

from bo_stream.base.fitting.bfgs import AscentObjective, Evaluated
from bo_stream.base.fitting.coordinates import (
    ClosedForm,
    Coordinates,
    LogNormals,
    log_prior,
    profiled_mean,
)
from bo_stream.base.fitting.fit import FitReport, Fittable, StreamMLL, fit_model
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
    "profiled_mean",
]
