"""Optuna's own cases for samplers; skipped without Optuna."""

from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna >= 5 is not installed")

from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from bo_stream.integrations.optuna import StreamingSampler
from tests.integration.small_surrogates import QUICK

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_optuna")]


class TestStreamingSampler(
    BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], StreamingSampler]:
        return partial(StreamingSampler, **{**QUICK, "seed": 0, "initial": 3})
