"""Conditioning at points whose values are known already (MATHS 1)."""

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream import ExactGP
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import NoiseError, ShapeError
from tests.raw import RAW


def data(n: int) -> tuple[Tensor, Tensor]:
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(0)).double()
    return X, (3.0 * X).sin().sum(-1, keepdim=True)


@pytest.mark.parametrize("kind", ["at once", "in parts", "a batch"])
@pytest.mark.parametrize("noise", [1e-300, 0.0])
def test_points_known_to_rounding_are_refused_clearly(noise: float, kind: str) -> None:
    """There is no right posterior in doubles: it says so, and the surrogate stays as it was."""
    X, Y = data(8)
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


def test_sample_functions_of_fantasies_of_fantasies() -> None:
    model, draws = ExactGP(*data(12)), torch.Generator().manual_seed(1)
    first = model.fantasize(
        torch.rand(3, 2, 2, generator=draws).double(), SobolQMCNormalSampler(Size([4]), seed=0)
    )
    second = first.fantasize(
        torch.rand(3, 1, 2, generator=draws).double(), SobolQMCNormalSampler(Size([5]), seed=0)
    )
    assert second.batch_shape == Size([5, 4, 3])
    path = second.process().path(Size([6]))
    assert path(torch.rand(3, 7, 2, generator=draws).double()).shape == Size([6, 5, 4, 3, 1, 7])


def test_one_output_conditioned_twice() -> None:
    X, Y = data(12)
    both = ExactGP(X, torch.cat([Y, Y.cos()], -1))
    one = both.subset_output([1])
    apart = one.condition_on_observations(X[:2], Y[:2]).condition_on_observations(X[2:3], Y[2:3])
    at_once = one.condition_on_observations(X[:3], Y[:3])
    assert torch.allclose(apart.posterior(X).mean, at_once.posterior(X).mean, atol=1e-10)


@pytest.mark.parametrize("batch", [(3,), (5, 4), (2, 2, 4)])
def test_noise_of_other_batches_is_refused(batch: tuple[int, ...]) -> None:
    model, X, Y = ExactGP(*data(12)), torch.ones(4, 2, 2).double(), torch.ones(3, 4, 2, 1).double()
    with pytest.raises(ShapeError, match="batch dimensions that fit"):
        model.condition_on_observations(X, Y, noise=0.1 * Y.new_ones(*batch, 2, 1))
    with pytest.raises(ShapeError, match="batch dimensions that fit"):
        model.posterior(X, observation_noise=0.1 * Y.new_ones(3, 2, 1))
