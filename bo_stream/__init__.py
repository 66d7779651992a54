"""Streaming Gaussian-process surrogates for BoTorch.

The names below are imported on first use: importing torch takes seconds, and the command line's
help does not need it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_stream.base.checkpoint import load
    from bo_stream.base.fitting import FitReport
    from bo_stream.campaign.campaign import Callback, Campaign
    from bo_stream.campaign.effort import FitPolicy
    from bo_stream.campaign.space import Box, Pool
    from bo_stream.surrogates.cagp import CaGP
    from bo_stream.surrogates.classifier import DirichletClassifier
    from bo_stream.surrogates.counts import CountGP
    from bo_stream.surrogates.exact import ExactGP
    from bo_stream.surrogates.hsgp import HSGP
    from bo_stream.surrogates.online_sgpr import SVDGP, OnlineSGPR
    from bo_stream.surrogates.projected_wiski import ProjectedWISKI
    from bo_stream.surrogates.registry import register_surrogate, surrogate
    from bo_stream.surrogates.trust_region import TrustRegionGP
    from bo_stream.surrogates.warped import WarpedGP
    from bo_stream.surrogates.wiski import WISKI, NodeWISKI

__all__ = [
    "HSGP",
    "SVDGP",
    "WISKI",
    "Box",
    "CaGP",
    "Callback",
    "Campaign",
    "CountGP",
    "DirichletClassifier",
    "ExactGP",
    "FitPolicy",
    "FitReport",
    "NodeWISKI",
    "OnlineSGPR",
    "Pool",
    "ProjectedWISKI",
    "WarpedGP",
    "TrustRegionGP",
    "load",
    "register_surrogate",
    "surrogate",
]

_HOMES = {
    "HSGP": "surrogates.hsgp",
    "SVDGP": "surrogates.online_sgpr",
    "WISKI": "surrogates.wiski",
    "Box": "campaign.space",
    "CaGP": "surrogates.cagp",
    "Callback": "campaign.campaign",
    "Campaign": "campaign.campaign",
    "CountGP": "surrogates.counts",
    "DirichletClassifier": "surrogates.classifier",
    "ExactGP": "surrogates.exact",
    "FitPolicy": "campaign.effort",
    "FitReport": "base.fitting",
    "NodeWISKI": "surrogates.wiski",
    "OnlineSGPR": "surrogates.online_sgpr",
    "Pool": "campaign.space",
    "ProjectedWISKI": "surrogates.projected_wiski",
    "WarpedGP": "surrogates.warped",
    "TrustRegionGP": "surrogates.trust_region",
    "load": "base.checkpoint",
    "register_surrogate": "surrogates.registry",
    "surrogate": "surrogates.registry",
}
"""The module that each name comes from."""

_ROOMS = ("actions", "campaign", "errors", "growth", "likelihoods")
"""Subpackages with public names of their own."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return version("bo_stream")
        if name in _ROOMS:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "load":  # it needs all families and their composites to be imported
            import_module(f"{__name__}.surrogates.classifier")
            import_module(f"{__name__}.surrogates.counts")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS, "__version__"})
