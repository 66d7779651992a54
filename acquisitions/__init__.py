"""Acquisition functions and builders for streaming surrogates."""

from acquisitions.build import build
from acquisitions.choice import PoolPolicy
from acquisitions.classes import BALD, PredictiveEntropy
from acquisitions.nipv import NIPV
from acquisitions.policies import MaxVariance, Random, near_most_uncertain
from acquisitions.pool import select_from_pool
from acquisitions.trust_region import TrustRegionSampling, TrustRegionSearch

__all__ = [
    "BALD",
    "NIPV",
    "MaxVariance",
    "PoolPolicy",
    "PredictiveEntropy",
    "Random",
    "TrustRegionSampling",
    "TrustRegionSearch",
    "build",
    "near_most_uncertain",
    "select_from_pool",
]
