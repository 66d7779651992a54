"""Acquisition functions and builders for streaming surrogates."""

from acquisitions.build import NAMES, PoolPolicy, build, register
from acquisitions.classes import BALD, PredictiveEntropy
from acquisitions.local_search import LatentLogExpectedImprovement, LocalSearch
from acquisitions.thompson import ThompsonSampling
from acquisitions.trust_region import TrustRegionSampling, TrustRegionSearch
from acquisitions.variance import (
    NIPV,
    MaxVariance,
    Random,
    near_most_uncertain,
    response_nipv,
    select_from_pool,
)

__all__ = [
    "BALD",
    "NAMES",
    "NIPV",
    "LatentLogExpectedImprovement",
    "LocalSearch",
    "MaxVariance",
    "PoolPolicy",
    "PredictiveEntropy",
    "Random",
    "ThompsonSampling",
    "TrustRegionSampling",
    "TrustRegionSearch",
    "build",
    "near_most_uncertain",
    "register",
    "response_nipv",
    "select_from_pool",
]
