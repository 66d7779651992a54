"""Policies are described in checkpoints and rebuilt; those of one's own are refused."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import (
    Kernel,
)

from bo_stream.actions import BlockSparse, ConjugateGradient, Identity, TopEigenvectors, UnitBlocks
from bo_stream.base.fitting.schedule import RefitSchedule
from bo_stream.base.serialization import Reader, Writer, same
from bo_stream.errors import UnsupportedError
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

POLICIES = [
    VIPS(0.05, upper="collapsed", max_points=9),
    OIPS(0.9),
    ConditionalVariance(0.1),
    FixedSize(7, method="gradient", steps=3),
    FixedGrid(torch.rand(4, 2)),
    Prescribed([torch.rand(4, 2), torch.rand(5, 2)]),
    Pruned(VIPS(0.1), tolerance=0.2),
    BlockSparse(5, seed=2),
    BlockSparse(3, values=torch.arange(1.0, 7.0)),
    ConjugateGradient(4),
    Identity(),
    UnitBlocks(3),
    TopEigenvectors(2),
    RefitSchedule(growth=2.0),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_policies(policy: Any) -> None:
    described = Writer().describe(policy)
    again = Reader().rebuild(described)
    assert type(again) is type(policy)
    assert same(Writer().describe(again), described)


class EveryPoint:
    def select(self, state: Any, batch: Any, kernel: Kernel) -> Selection:
        raise NotImplementedError


class OwnVIPS(VIPS):
    pass


class Namesake(VIPS):
    pass


Namesake.__name__, Namesake.__module__ = "VIPS", "bo_stream.growth.own"


@pytest.mark.parametrize("policy", [EveryPoint(), OwnVIPS(), Pruned(OwnVIPS()), Namesake()])
def test_policies_of_ones_own_are_refused(policy: Any) -> None:
    with pytest.raises(UnsupportedError, match="EveryPoint|OwnVIPS|Namesake"):
        Writer().describe(policy)
