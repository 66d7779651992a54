"""The streaming contract on the trust-region surrogate: before its first batch, and in batches."""

from dataclasses import replace

import pytest

from bo_stream import TrustRegionGP
from bo_stream.testing import StreamingContract


class TestOneBatch(StreamingContract):
    """Within a batch it is the exact GP on all observations, in any order."""

    family = TrustRegionGP
    options = {"batch_size": 1200}
    promises = replace(TrustRegionGP.promises, order_invariant=True)
    warm_evaluations = 20  # fifteen iterations, from scratch each time


@pytest.mark.slow
class TestSmallBatches(StreamingContract):
    """Regions that move: what came in which batch matters."""

    family = TrustRegionGP
    options = {"batch_size": 3}
    warm_evaluations = 20


@pytest.mark.slow
class TestExactEvaluations(TestSmallBatches):
    options = {"batch_size": 3, "noise": "none"}


@pytest.mark.slow
class TestKnownNoise(TestOneBatch):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestOneBatch):
    noise = "scaled"


@pytest.mark.slow
class TestThreeDimensions(TestSmallBatches):
    dim = 3
