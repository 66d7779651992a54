"""Cholesky factors: as they are, repaired once, or refused."""

import pytest
import torch

from bo_stream.errors import StateError
from bo_stream.linalg import chol_psd, with_jitter


def ones(n=3, scale=2.0):
    """A covariance of rank one."""
    return torch.full((n, n), scale, dtype=torch.float64)


def test_a_regular_covariance_is_factored_as_it_is():
    C = ones() + torch.eye(3).double()
    L = chol_psd(C)
    assert torch.equal(L, torch.linalg.cholesky(C))


def test_a_singular_one_is_repaired_by_a_share_of_its_diagonal():
    for scale in (1e-6, 2.0, 1e6):
        C = ones(scale=scale) - 1e-12 * scale * torch.eye(3).double()
        L = chol_psd(C)
        assert torch.allclose(L @ L.mT, with_jitter(C, 1e-10), rtol=1e-14, atol=0.0)


def test_one_of_a_batch():
    C = torch.stack([ones() + torch.eye(3).double(), ones()])
    L = chol_psd(C)
    assert torch.allclose(L @ L.mT, C, atol=1e-9)


def test_what_is_no_covariance_is_refused():
    C = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))
    with pytest.raises(torch.linalg.LinAlgError):
        chol_psd(C)
    with pytest.raises(StateError, match="row 2"):
        chol_psd(C, error=lambda row: StateError("a covariance", f"row {row}", "Check it."))
    with pytest.raises(torch.linalg.LinAlgError):
        chol_psd(ones() - 1e-12 * torch.eye(3).double(), repair=0.0)
