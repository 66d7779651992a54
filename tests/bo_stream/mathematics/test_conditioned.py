"""Conditioning at points whose values are known already (MATHS 1)."""

import pytest
import torch
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import NoiseError
from tests.raw import RAW


@pytest.mark.parametrize("kind", ["at once", "in parts", "a batch"])
@pytest.mark.parametrize("noise", [1e-300, 0.0])
def test_points_known_to_rounding_are_refused_clearly(noise: float, kind: str) -> None:
    """There is no right posterior in doubles: it says so, and the surrogate stays as it was."""
    X: Tensor = torch.rand(8, 2, generator=torch.Generator().manual_seed(0)).double()
    Y = (3.0 * X).sin().sum(-1, keepdim=True)
    model = ExactGP(X, Y, torch.full_like(Y, 1e-10), **RAW)
    before = model.posterior(X).mean
    again, values = X[:4].repeat(4, 1), Y[:4].repeat(4, 1)
    given: GaussianModel = model
    if kind == "in parts":
        given = model.condition_on_observations(X[4:], Y[4:], noise=torch.full_like(Y[4:], 1e-10))
    elif kind == "a batch":
        again, values = again[None], values[None]
    variance = torch.full((16, 1), noise, dtype=torch.float64)
    with pytest.raises(NoiseError, match="leave such points out"):
        given.condition_on_observations(again, values, noise=variance).posterior(X)
    assert torch.equal(model.posterior(X).mean, before)
