"""WarpedGP under the streaming contract, before its first fit without a warp; others are slow."""

from typing import Any

import pytest

from bo_stream import WarpedGP
from bo_stream.testing import StreamingContract


class TestWarpedGP(StreamingContract):
    family = WarpedGP
    test_restandardised_is_rebuilt = None  # a warp is kept until the next fit
    warm_evaluations = 60  # several starts, whose evaluations are cheap


@pytest.mark.slow
class TestKnownNoise(TestWarpedGP):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestWarpedGP):
    noise = "scaled"


@pytest.mark.slow
class TestExactEvaluations(TestWarpedGP):
    options: Any = {"noise": "none", "warp": "none"}
    dim = 3
