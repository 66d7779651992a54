"""A grid factorises through the rows of its points while they are few: the same, cheaper."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream import WISKI
from bo_stream.errors import InputError
from bo_stream.mathematics.grid import evidence
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    Y = torch.stack([torch.sin(4.0 * X).sum(-1), X[:, 0]], -1)
    return X, Y, 0.01 + torch.rand(n, 2, generator=g, dtype=torch.float64)


def build(n: int, mode: str, product: bool, seed: int = 0, opening: int = 4096) -> WISKI:
    X, Y, Yvar = data(n, seed)
    kernel = None
    if not product:
        matern = MaternKernel(nu=0.5, ard_num_dims=2, batch_shape=Size([2]))
        kernel = ScaleKernel(matern, batch_shape=Size([2]))
    return WISKI(
        X,
        Y,
        None if mode == "learned" else Yvar,
        bounds=BOUNDS,
        covar_module=kernel,
        grid_size=10,
        opening=opening,
        likelihood=GaussianLikelihood(batch_shape=Size([2])) if mode == "scaled" else None,
        **RAW,
    )


def through(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(evidence, "FEW", {"rows": 100.0, "sums": 0.0}[form])


@pytest.mark.parametrize("mode", ["learned", "known", "scaled"])
@pytest.mark.parametrize("product", [True, False])
def test_both_forms_agree(monkeypatch: pytest.MonkeyPatch, mode: str, product: bool) -> None:
    """Evidence, gradients, mean and covariance; the root's jitter of 1e-9 is in the rows' too."""
    results = []
    for form in ("rows", "sums"):
        through(monkeypatch, form)
        model = build(30, mode, product)
        value = model.log_evidence()
        value.backward()
        law = model.posterior(data(6, 1)[0]).distribution
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append((value.detach(), *gradients, law.mean, law.covariance_matrix))
    for rows, root in zip(*results, strict=True):
        torch.testing.assert_close(rows, root.detach(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("product", [True, False])
def test_rows_need_no_factor_of_the_nodes(monkeypatch: pytest.MonkeyPatch, product: bool) -> None:
    """Up to four fifths as many points as nodes, and as many as are held."""
    monkeypatch.setattr(evidence, "factorise", None)
    model = build(80, "learned", product)
    model.log_evidence().backward()
    model.posterior(data(6, 1)[0])
    model.observe(*data(1, 3)[:2])
    with pytest.raises(TypeError):
        model.log_evidence()
    short = build(21, "learned", product, opening=20)
    with pytest.raises(TypeError):
        short.log_evidence()


def test_rows_stop_at_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """State stays bounded, and nothing jumps where the form changes."""
    model = build(45, "learned", product=False, opening=48)
    size = model.state_bytes
    X, Y, _ = data(10, 2)
    for x, y in zip(X.split(1), Y.split(1), strict=True):
        model.observe(x, y)
    assert model.state_bytes == size
    assert model.num_observed == 55
    fresh = build(45, "learned", product=False, opening=0).observe(X, Y)
    assert size - fresh.state_bytes == 48 * (2 + 2 + 1) * 8
    torch.testing.assert_close(model.log_evidence(), fresh.log_evidence(), rtol=1e-12, atol=0.0)
    through(monkeypatch, "rows")
    whole = build(45, "learned", product=False).observe(X, Y)
    torch.testing.assert_close(model.log_evidence(), whole.log_evidence(), rtol=1e-6, atol=0.0)


def test_merge_keeps_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    through(monkeypatch, "rows")
    monkeypatch.setattr(evidence, "factorise", None)
    both = build(20, "known", product=False).merge(build(15, "known", product=False, seed=3))
    X, Y, Yvar = data(15, 3)
    one = build(20, "known", product=False).observe(X, Y, Yvar)
    torch.testing.assert_close(both.log_evidence(), one.log_evidence(), rtol=1e-12, atol=0.0)


def test_bad_openings() -> None:
    for opening in (-1, 2.5, True):
        with pytest.raises(InputError, match="opening"):
            build(5, "learned", True, opening=opening)  # type: ignore[arg-type]
