"""Data in their own units, with bounds and nothing else, are learned from like scaled ones."""

import pytest
import torch

from bo_stream.surrogates.registry import FAMILIES, surrogate

BOUNDS = torch.tensor([[20.0, 1e-4], [900.0, 0.1]], dtype=torch.double)


def data(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth function of two inputs of very different scales, with values in the hundreds."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.double)
    Y = 1000.0 * (5.0 * U[:, :1]).sin() + 500.0 * (7.0 * U[:, 1:]).cos()
    return BOUNDS[0] + U * (BOUNDS[1] - BOUNDS[0]), Y


@pytest.mark.parametrize(
    "name", [pytest.param(f, marks=[pytest.mark.slow] * ("projected" in f)) for f in FAMILIES]
)
def test_bounds_suffice(name: str) -> None:
    model = surrogate(name, *data(60, 0), bounds=BOUNDS)
    model.fit(40)
    X, Y = data(500, 1)
    with torch.no_grad():
        errors = model.posterior(X).mean - Y
    assert float(1.0 - errors.square().mean() / Y.var()) > 0.99
