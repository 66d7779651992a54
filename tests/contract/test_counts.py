"""The latent surrogate of counts under the streaming contract: targets of known noise.

Counts decide about transforms, mean and noise: tests with others of these build the family itself,
and the parts of the contract about a constructor's options do not apply.
"""

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from bo_stream import HSGP, WISKI, CountGP, ExactGP, NodeWISKI
from bo_stream.surrogates.counts import TAKEN
from bo_stream.testing.acquisition import AcquisitionContract
from bo_stream.testing.fantasies import FantasyContract
from bo_stream.testing.fitting import FittingContract
from bo_stream.testing.gradients import GradientContract
from bo_stream.testing.pathwise import PathwiseContract
from bo_stream.testing.persistence import PersistenceContract
from bo_stream.testing.processes import ProcessContract
from bo_stream.testing.state import StateContract
from bo_stream.testing.wholeness import WholenessContract


class TestLatentSurrogate(
    StateContract,
    PersistenceContract,
    FittingContract,
    ProcessContract,
    FantasyContract,
    GradientContract,
    PathwiseContract,
    WholenessContract,
):
    """`CountGP.model`, whose kernel is that of counts and whose lock is shared with the counts."""

    family: Any = WISKI
    noise = "known"
    options: Any = {"grid_size": [8, 8]}
    most_updates: int | None = 200
    promises = replace(WISKI.promises, multi_output=False)

    def make(self, train_X: Tensor, train_Y: Tensor, train_Yvar: Any = None, **kw: Any) -> Any:
        given = {key for key, value in kw.items() if value is not None}
        if (
            given & ({*TAKEN, "likelihood"} - {"loads_data"})
            or train_Yvar is None
            or train_Y.shape[-1] > 1
        ):
            return super().make(train_X, train_Y, train_Yvar, **kw)
        own = {key: value for key, value in kw.items() if key not in TAKEN}
        counts = CountGP(train_X[:0], [], surrogate=self.family, **{**self.options, **own})
        counts.model._loads_data = kw.get("loads_data")
        return counts.model.observe(train_X, train_Y, train_Yvar)


@pytest.mark.slow
class TestAcquisition(TestLatentSurrogate, AcquisitionContract):
    most_updates = None


@pytest.mark.slow
class TestExact(TestLatentSurrogate):
    family, options = ExactGP, {}
    promises = replace(ExactGP.promises, multi_output=False)


@pytest.mark.slow
class TestHSGP(TestLatentSurrogate):
    family, options = HSGP, {"num_features": 24}
    promises = replace(HSGP.promises, multi_output=False)


@pytest.mark.slow
class TestNodeWISKI(TestLatentSurrogate):
    family, options = NodeWISKI, {"cap": 8}
    promises = replace(NodeWISKI.promises, multi_output=False)
