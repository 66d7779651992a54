"""Streaming Gaussian-process surrogates for BoTorch."""

from bo_stream.exact import ExactGP
from bo_stream.fitting import FitReport
from bo_stream.surrogate import surrogate
from bo_stream.wiski import WISKI

__all__ = ["WISKI", "ExactGP", "FitReport", "surrogate"]
