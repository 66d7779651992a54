"""Likelihoods of outcomes that are not Gaussian, for `CountGP` (MATHS 11.5).

Every one has a *nugget*: independent Gaussian noise of the latent value at each observation, so
that two surveys of one place may differ by more than chance.
"""

from __future__ import annotations

from typing import Any

from bo_stream.mathematics.sites.binomial import Bernoulli, Binomial
from bo_stream.mathematics.sites.likelihood import Likelihood
from bo_stream.mathematics.sites.poisson import NegativeBinomial, Poisson

__all__ = ["Bernoulli", "Binomial", "Likelihood", "NegativeBinomial", "Poisson", "named"]


def named(settings: dict[str, Any]) -> Likelihood:
    """The likelihood of these settings: its fields, and its class's name as ``name``."""
    kinds = {kind.__name__: kind for kind in (Binomial, Bernoulli, Poisson, NegativeBinomial)}
    return kinds[settings["name"]](**{k: v for k, v in settings.items() if k != "name"})
