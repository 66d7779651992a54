"""Cholesky factors: as they are, with as little jitter as it takes, or refused."""

import pytest
import torch

from bo_stream.mathematics.linalg import bordered, chol_psd, with_jitter


def ones(n=3, scale=2.0):
    """A covariance of rank one."""
    return torch.full((n, n), scale, dtype=torch.float64)


def test_a_regular_covariance_is_factored_as_it_is():
    C = ones() + torch.eye(3).double()
    L = chol_psd(C)
    assert torch.equal(L, torch.linalg.cholesky(C))


def test_a_singular_one_gets_the_least_share_of_its_diagonal_that_it_takes():
    for scale in (1e-6, 2.0, 1e6):
        C = ones(scale=scale) - 1e-12 * scale * torch.eye(3).double()
        added = (chol_psd(C).square().sum(-1) - C.diagonal()) / scale
        assert (added > 1e-12).all() and (added < 4.1e-12).all()
        L = chol_psd(C, least=1e-10)
        assert torch.allclose(L @ L.mT, with_jitter(C, 1e-10), rtol=1e-14, atol=0.0)


def test_one_of_a_batch():
    """The others stay as they are."""
    C = torch.stack([ones() + torch.eye(3).double(), ones()])
    L = chol_psd(C)
    assert torch.allclose(L @ L.mT, C, atol=1e-14)
    assert torch.equal(L[0], torch.linalg.cholesky(C[0]))


def test_what_is_no_covariance_is_refused():
    C = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))
    with pytest.raises(torch.linalg.LinAlgError):
        chol_psd(C)
    with pytest.raises(torch.linalg.LinAlgError):
        chol_psd(ones() - 1e-12 * torch.eye(3).double(), repair=0.0)


def test_a_factor_with_more_rows_is_that_of_the_whole():
    draws = torch.randn(2, 9, 9, generator=torch.Generator().manual_seed(0)).double()
    C = draws @ draws.mT + torch.eye(9).double()
    L = bordered(torch.linalg.cholesky(C[:, :6, :6]), C[:, :6, 6:], C[:, 6:, 6:])
    assert torch.allclose(L, torch.linalg.cholesky(C), rtol=1e-12)
