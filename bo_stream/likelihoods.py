"""Likelihoods of outcomes that are not Gaussian, for `CountGP` (MATHS 11.5).

Every one has a *nugget*: independent Gaussian noise of the latent value at each observation, so
that two surveys of one place may differ by more than chance.
"""

from __future__ import annotations

from bo_stream.mathematics.sites.binomial import Bernoulli, Binomial
from bo_stream.mathematics.sites.likelihood import Likelihood
from bo_stream.mathematics.sites.poisson import NegativeBinomial, Poisson
from bo_stream.mathematics.sites.student import StudentT

__all__ = ["Bernoulli", "Binomial", "Likelihood", "NegativeBinomial", "Poisson", "StudentT"]
