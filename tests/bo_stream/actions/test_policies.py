"""Action policies: what they span, and that they refuse what they cannot use."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bo_stream.actions import BlockSparse, ConjugateGradient, Identity, TopEigenvectors
from bo_stream.errors import InputError, ShapeError
from bo_stream.mathematics.computation_aware import kernel_values, locality_blocks, split_blocks

N = 40
POLICIES = [BlockSparse, ConjugateGradient, TopEigenvectors, lambda i: Identity()]


def problem(n=N):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    e = torch.randn(n, generator=generator, dtype=torch.float64)
    noise = 0.1 + 0.1 * torch.rand(n, generator=generator, dtype=torch.float64)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.3, 0.5]], dtype=torch.float64)
    return X, e, noise, kernel


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n", [0, 1, 3, N])
def test_columns_are_orthonormal(policy, n):
    X, e, noise, kernel = problem(n)
    S = policy(7).build(X, e, noise, kernel).dense()
    assert S.shape[0] == n
    assert torch.allclose(S.T @ S, torch.eye(S.shape[1], dtype=S.dtype), atol=1e-10)


def cg_iterate(A, b, steps):
    """Textbook conjugate gradients."""
    x, r = torch.zeros_like(b), b.clone()
    d = r.clone()
    for _ in range(steps):
        a = (r @ r) / (d @ A @ d)
        x, r_new = x + a * d, r - a * A @ d
        d, r = r_new + (r_new @ r_new) / (r @ r) * d, r_new
    return x


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_cg_mean_is_the_cg_iterate(steps):
    X, e, noise, kernel = problem()
    A = kernel_values(kernel, X, X) + torch.diag(noise)
    S = ConjugateGradient(steps).build(X, e, noise, kernel).dense()
    v = S @ torch.linalg.solve(S.T @ A @ S, S.T @ e)
    assert torch.allclose(v, cg_iterate(A, e, steps), atol=1e-9)


def test_cg_stops_where_it_has_converged():
    X, e, noise, kernel = problem()
    S = ConjugateGradient(10).build(X[:1].expand(5, 2), e[:5], torch.ones(5).double(), kernel)
    assert S.num_actions == 2  # K is rank one: two Krylov directions solve the system
    S = ConjugateGradient(4).build(X, torch.zeros_like(e), noise, kernel)
    assert 1 <= S.num_actions <= 4


def test_top_eigenvectors_span_the_top_eigenspace():
    X, e, noise, kernel = problem()
    S = TopEigenvectors(5).build(X, e, noise, kernel).dense()
    K = kernel_values(kernel, X, X)
    values = torch.linalg.eigvalsh(K).flip(0)[:5]
    assert torch.allclose((S.T @ K @ S).diagonal(), values, rtol=1e-10)


@pytest.mark.parametrize("n, i", [(10, 3), (9, 3), (2, 5), (0, 4), (7, 7)])
def test_block_sizes_are_those_of_array_split(n, i):
    np = pytest.importorskip("numpy")
    want = [len(part) for part in np.array_split(np.arange(n), min(i, n))] if n else []
    X = torch.rand(n, 3, dtype=torch.float64)
    for block in (split_blocks(n, i, X.device), locality_blocks(X, i)):
        assert torch.bincount(block).tolist() == want


def test_locality_does_not_depend_on_the_row_order_and_keeps_neighbours_together():
    X, e, noise, kernel = problem(64)
    shuffle = torch.randperm(64, generator=torch.Generator().manual_seed(4))

    def groups(X, block):
        return {frozenset(map(tuple, X[block == b].tolist())) for b in block.unique()}

    assert groups(X, locality_blocks(X, 8)) == groups(X[shuffle], locality_blocks(X[shuffle], 8))
    spread = [X[locality_blocks(X, 8) == b].var(0).sum() for b in range(8)]
    given = [X[split_blocks(64, 8, X.device) == b].var(0).sum() for b in range(8)]
    assert sum(spread) < 0.4 * sum(given)


def test_given_values_imply_the_given_order():
    X, e, noise, kernel = problem(10)
    values = torch.arange(1.0, 11.0)
    policy = BlockSparse(3, values=values)
    assert policy.order == "given"
    S = policy.build(X, e, noise, kernel)
    assert S.block.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    first = values[:4].double() / values[:4].norm()
    assert torch.allclose(S.values[:4], first)


def test_policies_are_equal_by_their_options():
    assert ConjugateGradient(5) == ConjugateGradient(5) != ConjugateGradient(6)
    assert BlockSparse(5) != BlockSparse(6)


def test_start_is_seeded():
    X, e, noise, kernel = problem()
    a, b = (BlockSparse(5).build(X, e, noise, kernel).values for _ in range(2))
    assert torch.equal(a, b)


def test_refusals():
    X, e, noise, kernel = problem()
    with pytest.raises(InputError, match="num_actions"):
        BlockSparse(0)
    with pytest.raises(InputError, match="order"):
        BlockSparse(3, order="hilbert")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="flat vector"):
        BlockSparse(3, values=torch.ones(N - 1)).build(X, e, noise, kernel)
    with pytest.raises(InputError, match="zero"):
        BlockSparse(3, values=torch.zeros(N)).build(X, e, noise, kernel)


def test_a_cut_through_a_column_of_few_values_scatters_no_neighbours():
    """Rows that tie in the widest column are told apart by the next: one value, one side."""
    n = 96
    generator = torch.Generator().manual_seed(0)
    kind = (torch.arange(n) < 30).double()  # a cut in halves falls among the 66 others
    place = torch.linspace(0.0, 1.0, n, dtype=torch.float64)[torch.randperm(n, generator=generator)]
    X = torch.stack([5.0 * kind, place], -1)
    block = locality_blocks(X, 12)
    widths = [float(X[block == b, 1].max() - X[block == b, 1].min()) for b in range(12)]
    kinds = [len(X[block == b, 0].unique()) for b in range(12)]
    assert sorted(kinds)[-2:] == [1, 2]  # at most the one block across the step is mixed
    assert sum(widths) < 3.0  # 2.1; halves of a random order would need more than 3.5


def test_rows_equal_in_all_columns_keep_their_order():
    assert locality_blocks(torch.zeros(7, 2).double(), 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
