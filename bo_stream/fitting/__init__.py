"""Fitting hyperparameters on a stream: objective, coordinates, climb, report, schedule."""

from bo_stream.fitting.bfgs import fit_model
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.objective import StreamMLL, log_prior, profiled_mean
from bo_stream.fitting.report import FitReport
from bo_stream.fitting.schedule import RefitSchedule

__all__ = [
    "Coordinates",
    "FitReport",
    "RefitSchedule",
    "StreamMLL",
    "fit_model",
    "log_prior",
    "profiled_mean",
]
