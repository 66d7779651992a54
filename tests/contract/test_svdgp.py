"""The streaming contract on SVDGP: folding early, on fixed inducing points, and with all data."""

import pytest
import torch

from bo_stream import SVDGP
from bo_stream.base.streaming_gp import Promises
from bo_stream.growth import VIPS, FixedGrid
from bo_stream.testing import StreamingContract

LOW, HIGH = StreamingContract().bounds
NODES = torch.cartesian_prod(
    *(torch.linspace(a, b, 4) for a, b in zip(LOW.tolist(), HIGH.tolist(), strict=True))
).double()


class TestSVDGP(StreamingContract):
    """A small window, so that rows are folded in most tests."""

    family = SVDGP
    options = {"window": 10, "covar_basis": 12, "slack": 2}

    @pytest.mark.slow
    def test_no_drift(self) -> None:
        super().test_no_drift()


@pytest.mark.slow
class TestKnownNoise(TestSVDGP):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestSVDGP):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestSVDGP):
    dim = 1


@pytest.mark.slow
class TestVIPS(TestSVDGP):
    options = {"window": 30, "slack": 5, "growth": VIPS(0.1, max_points=20)}


@pytest.mark.slow
class TestAllInTheWindow(TestSVDGP):
    """Fixed inducing points and nothing folded: what came first does not matter."""

    promises = Promises(
        order_invariant=True, bytes_constant=False, updates_without_drift=300, multi_output=False
    )
    test_normalized_is_rescaled = None  # the grid is in transformed space
    test_fantasy_is_a_real_update = None  # the mean is exact, the covariance that of few points
    test_bytes = None  # a window that takes all is O(n^2)
    options = {"growth": FixedGrid(NODES)}
