"""Acquisition functions and builders for streaming surrogates."""

from acquisitions.build import NAMES, build
from acquisitions.learning import (
    BALD,
    NIPV,
    MaxVariance,
    PredictiveEntropy,
    Random,
    response_nipv,
    select_from_pool,
)
from acquisitions.local_search import LatentLogExpectedImprovement, LocalSearch
from acquisitions.maximised import Maximised
from acquisitions.optimize import optimize_acqf
from acquisitions.rule import Proposal, Rule, View, register
from acquisitions.thompson import ThompsonSampling
from acquisitions.trust_region import TrustRegionSearch

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
    "TrustRegionSearch",
    "View",
    "build",
    "optimize_acqf",
    "register",
    "response_nipv",
    "select_from_pool",
]
