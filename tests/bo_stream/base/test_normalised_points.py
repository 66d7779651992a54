"""Points go through a plain `Normalize` as through BoTorch's class, bit for bit."""

import pytest
import torch
from botorch.models.transforms.input import Normalize

from bo_stream.base.units import transformed_inputs

BOUNDS = torch.tensor([[-1.0, 2.0, 0.1], [1.0, 3.0, 0.7]], dtype=torch.float64)
X = torch.rand(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"indices": [0, 2]},
        {"reverse": True},
        {"transform_on_eval": False},
        {"center": 0.3},
    ],
)
def test_as_botorchs(options: dict) -> None:
    options = {"bounds": BOUNDS} | options
    transform = Normalize(3, **options).eval()
    for points in (X, X.float(), X[0]):
        got = transformed_inputs(transform, points)
        assert got.dtype == torch.float64
        assert torch.equal(got, transform(points.double()))


def test_an_untrained_one_still_learns() -> None:
    transform = Normalize(3)
    got = transformed_inputs(transform, X[0])
    assert bool((got.amin(0) == 0.0).all()) and bool((got.amax(0) == 1.0).all())
