"""Expectation-propagation sites: outcomes that are not Gaussian, in a Gaussian stream (MATHS 11).

An outcome y of density ``p(y | g)``, with ``g = f + e`` and an independent nugget
``e ~ N(0, tau2)``, enters a surrogate as a target of known noise. This *site* has natural
parameters ``l1`` and ``l2``, target ``t = l1 / l2`` and noise ``D = 1 / l2 + tau2``.
"""
