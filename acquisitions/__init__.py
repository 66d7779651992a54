"""Acquisition functions and builders for streaming surrogates."""

from acquisitions.build import NAMES, PoolPolicy, build, register
from acquisitions.classes import BALD, PredictiveEntropy
from acquisitions.local_search import LatentLogExpectedImprovement, LocalSearch
from acquisitions.nipv import NIPV, response_nipv
from acquisitions.pool import MaxVariance, Random, near_most_uncertain, select_from_pool
from acquisitions.thompson import ThompsonSampling
from acquisitions.trust_region import TrustRegionSampling, TrustRegionSearch

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
