"""While observations are held and few, a WISKI factorises their covariance."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from bo_stream import WISKI
from bo_stream.errors import InputError
from bo_stream.testing.base import close
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    return (
        X,
        torch.sin(4.0 * X).sum(-1, keepdim=True),
        0.01 + torch.rand(n, 1, generator=g).double(),
    )


def build(n: int, *, product: bool, seed: int = 0, known: bool = False, **kw: Any) -> WISKI:
    X, Y, Yvar = data(n, seed)
    kernel = None if product else ScaleKernel(MaternKernel(nu=0.5, ard_num_dims=2))
    kw = {"bounds": BOUNDS, "covar_module": kernel, "grid_size": 10, **RAW, **kw}
    return WISKI(X, Y, Yvar if known else None, **kw)


@pytest.mark.parametrize("product", [True, False])
def test_nothing_jumps_where_the_route_changes(product: bool) -> None:
    """From few points to more than nodes, and to more than are held: as if none were held."""
    model, bare = (build(60, product=product, opening=w) for w in (150, 0))
    size, (X, Y, _) = model.state_bytes, data(120, 2)
    for x, y in zip(X.split(30), Y.split(30), strict=True):
        for own in (model, bare):
            own.observe(x, y)
        close(model.log_evidence(), bare.log_evidence(), 1e-6)
        close(model.posterior(X[:9]).mean, bare.posterior(X[:9]).mean, 1e-6)
        close(model.posterior(X[:9]).variance, bare.posterior(X[:9]).variance, 1e-6)
    assert model.state_bytes == size and model.num_observed == 180
    assert size - bare.state_bytes == 150 * (2 + 1 + 1) * 8


def test_merge_keeps_the_points() -> None:
    """They can be put on another grid, which takes all of them."""
    both = build(20, product=False, known=True).merge(build(15, product=False, known=True, seed=3))
    one = build(20, product=False, known=True).observe(*data(15, 3))
    close(both.log_evidence(), one.log_evidence(), 1e-12)
    close(both.refine(12).log_evidence(), one.refine(12).log_evidence(), 1e-12)


def test_bad_openings() -> None:
    for opening in (-1, 2.5, True):
        with pytest.raises(InputError, match="opening"):
            build(5, product=True, opening=opening)
