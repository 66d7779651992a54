"""Acquisition functions and builders for streaming surrogates."""

from acquisitions.build import NAMES, build
from acquisitions.classes import BALD, PredictiveEntropy
from acquisitions.local_search import LatentLogExpectedImprovement, LocalSearch
from acquisitions.maximised import Maximised
from acquisitions.rule import Proposal, Rule, View, register
from acquisitions.thompson import ThompsonSampling
from acquisitions.trust_region import TrustRegionSampling, TrustRegionSearch
from acquisitions.variance import (
    NIPV,
    MaxVariance,
    Random,
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
    "Maximised",
    "PredictiveEntropy",
    "Proposal",
    "Random",
    "Rule",
    "ThompsonSampling",
    "TrustRegionSampling",
    "TrustRegionSearch",
    "View",
    "build",
    "register",
    "response_nipv",
    "select_from_pool",
]
