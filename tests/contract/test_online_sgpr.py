"""The streaming contract on online SGPR, with every growth policy."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.base.fitting import log_prior
from bo_stream.base.options import noise_model
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.growth import (
    OIPS,
    VIPS,
    ConditionalVariance,
    FixedGrid,
    FixedSize,
    Prescribed,
    Pruned,
    Selection,
)
from bo_stream.testing import StreamingContract


class EveryPoint:
    """A user's policy: all points are inducing points."""

    def select(self, state: Any, batch: Any, kernel: Any) -> Selection:
        return Selection(torch.arange(state.size), torch.arange(batch.size))


def grid(contract: StreamingContract, side: int = 4) -> Tensor:
    """A regular grid over the bounds of the contract, which uses no input transform."""
    low, high = contract.bounds.double()
    axes = [torch.linspace(float(a), float(b), side) for a, b in zip(low, high, strict=True)]
    return torch.cartesian_prod(*axes).double().reshape(-1, contract.dim)


class TestVIPS(StreamingContract):
    family = OnlineSGPR

    @pytest.mark.slow
    def test_no_drift(self) -> None:
        super().test_no_drift()


@pytest.mark.slow
class TestKnownNoise(TestVIPS):
    noise = "known"


@pytest.mark.slow
class TestScaledNoise(TestVIPS):
    noise = "scaled"


@pytest.mark.slow
class TestCollapsed(TestVIPS):
    options = {"growth": VIPS(0.2, "collapsed")}


@pytest.mark.slow
class TestOIPS(TestVIPS):
    options = {"growth": OIPS(0.9)}


@pytest.mark.slow
class TestConditionalVariance(TestVIPS):
    options = {"growth": ConditionalVariance(1e-3)}


@pytest.mark.slow
class TestFixedSize(TestVIPS):
    options = {"growth": FixedSize(8)}
    warm_evaluations = 8  # a point dropped changes what the batches before it said
    warm_residual = 0.7  # eight points do not resolve the short lengthscale of ten others


@pytest.mark.slow
class TestGradient(TestVIPS):
    options = {"growth": FixedSize(6, "gradient", steps=3)}
    warm_evaluations = 8
    test_normalized_is_rescaled = None  # three steps of a climb depend on the units


@pytest.mark.slow
class TestPruned(TestVIPS):
    options = {"growth": Pruned(VIPS(), max_points=10)}


@pytest.mark.slow
class TestFixedGrid(TestVIPS):
    options = {"growth": FixedGrid(grid(StreamingContract()))}
    promises = Promises(
        order_invariant=False,
        bytes_constant=True,
        updates_without_drift=10_000,
        multi_output=False,
    )
    warm_evaluations = 8  # points that do not follow the data: the bound moves more
    warm_residual = 1.0  # few of them are among transformed inputs
    test_normalized_is_rescaled = None  # the grid is in transformed space


@pytest.mark.slow
class TestPrescribed(TestVIPS):
    options = {"growth": Prescribed([grid(StreamingContract())] * 20_000)}
    warm_evaluations, warm_residual = 8, 1.0  # as for the fixed grid
    test_normalized_is_rescaled = None


@pytest.mark.slow
class TestEveryPoint(TestVIPS):
    """All points in Z: exact, hence invariant to order; what is left is jitter over noise."""

    options = {"growth": EveryPoint()}
    promises = Promises(
        order_invariant=True,
        bytes_constant=False,
        updates_without_drift=300,
        multi_output=False,
    )
    test_bytes = None  # M = n: the state is O(n^2)
    learns = True
    warm_evaluations = 8  # each fit is to one row more, with points in other places

    def over(self, *data: Any, **kw: Any) -> Any:
        model = super().over(*data, **kw)
        return model if self.learns else model.requires_grad_(False)

    @pytest.mark.slow
    def test_no_drift(self) -> None:
        """Under hyperparameters that small batches do not change either."""
        self.learns = False
        super().test_no_drift()

    def make(self, train_X: Tensor, train_Y: Tensor, *Yvar: Tensor, **kw: Any) -> StreamingGP:
        """With the contract's noise from the start: what a batch said under other noise stays."""
        if not Yvar or Yvar[0] is None:
            with torch.inference_mode(False):
                _, likelihood = noise_model(None, None, torch.Size())
                likelihood.noise = 0.05
            kw.setdefault("likelihood", likelihood)
        return super().make(train_X, train_Y, *Yvar, jitter=1e-11, **kw)

    def objective_of_all(self, model: OnlineSGPR) -> Tensor:
        """The bounds of all batches; `make_mll` has the last one's."""
        return model.bound_sum + log_prior(model)
