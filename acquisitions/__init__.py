"""Acquisition functions and builders for streaming surrogates."""

from typing import TYPE_CHECKING, Any

from acquisitions.build import NAMES, build
from acquisitions.learning import (
    BALD,
    MaxVariance,
    Random,
    response_nipv,
    select_from_pool,
)
from acquisitions.local_search import LocalSearch
from acquisitions.maximised import Maximised
from acquisitions.optimize import optimize_acqf
from acquisitions.rule import Proposal, Rule, View, register
from acquisitions.thompson import ThompsonSampling
from acquisitions.trust_region import TrustRegionSearch

if TYPE_CHECKING:
    from acquisitions.input_constructors import NIPV

__all__ = [
    "BALD",
    "NAMES",
    "NIPV",
    "LocalSearch",
    "MaxVariance",
    "Maximised",
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

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name != "NIPV":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from acquisitions import input_constructors  # on first use: slow to import

        return input_constructors.NIPV
