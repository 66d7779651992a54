"""Streaming Gaussian-process surrogates for BoTorch.

The names below are imported when they are first used: torch takes seconds, and neither the help of
the command line nor the check of a configuration needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_stream.cagp import CaGP
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.space import Box, Pool
    from bo_stream.core.checkpoint import load
    from bo_stream.dirichlet import DirichletClassifier
    from bo_stream.exact import ExactGP
    from bo_stream.families import surrogate
    from bo_stream.fitting.report import FitReport
    from bo_stream.hsgp import HSGP
    from bo_stream.node_wiski import NodeWISKI
    from bo_stream.online_sgpr import OnlineSGPR
    from bo_stream.online_svgp import OnlineSVGP
    from bo_stream.projected_wiski import ProjectedWISKI
    from bo_stream.svdgp import SVDGP
    from bo_stream.wiski import WISKI

__all__ = [
    "HSGP",
    "SVDGP",
    "WISKI",
    "Box",
    "CaGP",
    "Campaign",
    "DirichletClassifier",
    "ExactGP",
    "FitReport",
    "NodeWISKI",
    "OnlineSGPR",
    "OnlineSVGP",
    "Pool",
    "ProjectedWISKI",
    "load",
    "surrogate",
]

_HOMES = {
    "NodeWISKI": "node_wiski",
    "HSGP": "hsgp",
    "SVDGP": "svdgp",
    "WISKI": "wiski",
    "Box": "campaign.space",
    "CaGP": "cagp",
    "Campaign": "campaign.campaign",
    "DirichletClassifier": "dirichlet",
    "ExactGP": "exact",
    "FitReport": "fitting.report",
    "OnlineSGPR": "online_sgpr",
    "OnlineSVGP": "online_svgp",
    "Pool": "campaign.space",
    "ProjectedWISKI": "projected_wiski",
    "load": "core.checkpoint",
    "surrogate": "families",
}
"""The module that each name comes from."""

_ROOMS = ("actions", "campaign", "errors", "growth")
"""Packages with public names of their own."""

if not TYPE_CHECKING:  # a checker of types would take it to mean that any name exists

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "load":  # it finds what has been imported: families, and what is made of them
            import_module(f"{__name__}.dirichlet")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
