"""WISKI under the streaming contract: one configuration in every run, the others slow."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Size, Tensor

from bo_stream import WISKI
from bo_stream.mathematics.grid import evidence as grid_evidence
from bo_stream.mathematics.grid import large as grid_large
from bo_stream.mathematics.grid import state as grid_state
from bo_stream.testing import StreamingContract

SIZES = {1: [14], 2: [10, 9], 3: [7, 6, 7]}


class TestWISKI(StreamingContract):
    most_updates: int | None = 2_000

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        return WISKI(train_X, train_Y, train_Yvar, grid_size=SIZES[self.dim], **kw)


@pytest.mark.slow
class TestKnownNoise(TestWISKI):
    noise = "known"
    most_updates = None


@pytest.mark.slow
class TestScaledNoise(TestWISKI):
    noise = "scaled"


@pytest.mark.slow
class TestOneDimension(TestWISKI):
    dim = 1


@pytest.mark.slow
class TestThreeDimensions(TestWISKI):
    dim = 3


@pytest.mark.slow
class TestMatern(TestWISKI):
    """No product of one-dimensional kernels: a dense root."""

    def kernel(self, outputs: int = 1) -> Kernel:
        batch = Size([outputs] if outputs > 1 else [])
        matern = MaternKernel(nu=2.5, ard_num_dims=self.dim, batch_shape=batch)
        return ScaleKernel(matern, batch_shape=batch)


@pytest.mark.slow
class TestUnscaled(TestWISKI):
    """No ScaleKernel; and one kernel for all outputs."""

    noise = "scaled"

    def kernel(self, outputs: int = 1) -> Kernel:
        return MaternKernel(nu=1.5)


@pytest.mark.slow
class TestAuto(TestWISKI):
    """A grid that follows the lengthscales."""

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        return WISKI(train_X, train_Y, train_Yvar, grid_size="auto", opening=64, **kw)


@pytest.mark.slow
class TestFromSums(TestWISKI):
    """What a grid does once it has seen many points, from the start."""

    @pytest.fixture(autouse=True)
    def from_sums(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(grid_evidence, "FEW", 0.0)


@pytest.mark.slow
class TestFewHeld(TestWISKI):
    """Fewer points held than the tests show it."""

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        return WISKI(train_X, train_Y, train_Yvar, grid_size=SIZES[self.dim], opening=7, **kw)


@pytest.mark.slow
class TestReduced(TestWISKI):
    """A matrix of sums, used in an eigenbasis: what grids of some hundred nodes do."""

    @pytest.fixture(autouse=True)
    def reduced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(grid_evidence, "REDUCED_FROM", 1)
        monkeypatch.setattr(grid_evidence, "FEW", 0.0)


class TestLarge(TestWISKI):
    """What a large grid does, on a small one: sums by pairs of nodes, and an eigenbasis."""

    most_updates = 500

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(grid_state, "DENSE_NODES", 0)
        monkeypatch.setattr(grid_large, "FEW_ROWS", 0)
        monkeypatch.setattr(grid_large, "CROSSOVER", 0.0)


@pytest.mark.slow
class TestLargeInThreeDimensions(TestLarge):
    most_updates = 2_000
    dim = 3
    noise = "scaled"


@pytest.mark.slow
class TestLargeFromRows(TestLarge):
    """A large grid that has seen few points."""

    most_updates = 20

    @pytest.fixture(autouse=True)
    def from_rows(self, large: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(grid_large, "FEW_ROWS", 10**9)


@pytest.mark.slow
class TestUserGrid(TestWISKI):
    """A grid wider than the bounds, given node by node."""

    test_normalized_is_rescaled = None  # the grid of a normalized model is another one

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> WISKI:
        if kw.get("input_transform", "left out") is not None or isinstance(kw["bounds"], str):
            return super().make(train_X, train_Y, train_Yvar, **kw)
        bounds = kw.pop("bounds")
        ends = zip(bounds[0], bounds[1], strict=True)
        nodes = [torch.linspace(float(a) - 0.7, float(b) + 0.9, 11) for a, b in ends]
        return WISKI(train_X, train_Y, train_Yvar, grid=nodes, **kw)
