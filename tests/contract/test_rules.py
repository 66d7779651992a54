"""Every rule of this package passes the contract of rules."""

from functools import partial

from acquisitions import LocalSearch, Maximised, TrustRegionSearch, build
from acquisitions.maximised import InParts
from bo_stream.testing import RuleContract


def improvement() -> InParts:
    sampled = Maximised(partial(build, "thompson"))
    return InParts(Maximised(partial(build, "qlogei")), sampled)


class TestImprovement(RuleContract):
    make = improvement


class TestSamples(RuleContract):
    make = partial(Maximised, partial(build, "thompson"))


class TestLocalSearch(RuleContract):
    make, surrogate, pools = LocalSearch, "warped", False


class TestTrustRegion(RuleContract):
    make, surrogate, pools, constraints = TrustRegionSearch, "trust_region", False, False
