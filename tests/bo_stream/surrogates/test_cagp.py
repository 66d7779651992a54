"""CaGP on a stream against dense Gaussian-process identities."""

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_stream import ExactGP
from bo_stream.actions import BlockSparse, ConjugateGradient, Identity, TopEigenvectors
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.computation_aware import kernel_values
from bo_stream.surrogates.cagp import CaGP
from tests.calls import calls_of
from tests.raw import RAW

D = 2
POLICIES = {
    "block": BlockSparse(6),
    "cg": ConjugateGradient(6),
    "eigen": TopEigenvectors(6),
    "identity": Identity(),
}


def data(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, D, generator=generator, dtype=torch.float64)
    Y = torch.sin(5 * X.sum(-1, keepdim=True))
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    Yvar = 0.01 + 0.05 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return X, Y, Yvar


def kernel(kind=MaternKernel):
    k = ScaleKernel(kind(ard_num_dims=D)).double()
    k.base_kernel.lengthscale = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
    k.outputscale = 1.3
    return k


def model(n, policy, seed=0, noise="learned", kind=MaternKernel, **options):
    X, Y, Yvar = data(n, seed)
    if noise == "learned":
        made = CaGP(X, Y, actions=policy, covar_module=kernel(kind), **{**RAW, **options})
        made.likelihood.noise = 0.02
        return made
    likelihood = GaussianLikelihood().double() if noise == "scaled" else None
    return CaGP(
        X,
        Y,
        Yvar,
        likelihood=likelihood,
        actions=policy,
        covar_module=kernel(kind),
        **{**RAW, **options},
    )


def dense_posterior(m, Xs, S=None):
    """mean and covariance from inverses."""
    K = kernel_values(m.covar_module, m.state.rows.X, m.state.rows.X).detach()
    k = kernel_values(m.covar_module, m.state.rows.X, Xs).detach()
    S = m.S.dense() if S is None else S
    D = torch.diag((m._noise_scale() * m.state.rows.r).detach())
    C = S @ torch.linalg.inv(S.T @ (K + D) @ S) @ S.T
    c = m._prior_mean().detach()
    mean = c + k.T @ C @ (m.state.rows.y - c)
    return mean, kernel_values(m.covar_module, Xs, Xs).detach() - k.T @ C @ k


def check_posterior(m, atol=1e-9):
    Xs = data(11, seed=9)[0]
    posterior = m.posterior(Xs)
    mean, cov = dense_posterior(m, Xs)
    assert torch.allclose(posterior.mean[:, 0], mean, atol=atol)
    assert torch.allclose(posterior.distribution.covariance_matrix, cov, atol=atol)


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize("name", POLICIES)
def test_posterior_is_the_dense_formula_through_a_stream(name, noise):
    m = model(20, POLICIES[name], noise=noise)
    check_posterior(m)
    for seed, q in enumerate((1, 3, 5), start=1):
        X, Y, Yvar = data(q, seed)
        m.observe(X, Y, None if noise == "learned" else Yvar)
        check_posterior(m)
    m.covar_module.outputscale = 0.7
    check_posterior(m)


@pytest.mark.parametrize("noise", ["learned", "known"])
def test_identity_is_the_exact_gp(noise):
    X, Y, Yvar = data(15)
    yvar = None if noise == "learned" else Yvar
    ours = CaGP(X, Y, yvar, actions=BlockSparse(50), covar_module=kernel(), **RAW)
    exact = ExactGP(X, Y, yvar, covar_module=kernel(), **RAW)
    for m in (ours, exact):
        m.observe(X[:4] / 2, Y[:4] / 2, None if yvar is None else yvar[:4])
    Xs = data(7, seed=9)[0]
    a, b = ours.posterior(Xs), exact.posterior(Xs)
    assert torch.allclose(a.mean, b.mean, atol=1e-9)
    assert torch.allclose(a.variance, b.variance, atol=1e-9)
    assert torch.allclose(ours.log_evidence(), exact.log_evidence(), atol=1e-8)
    assert torch.allclose(ours.projected_log_likelihood(), exact.log_evidence(), atol=1e-8)
    gradients = [
        torch.autograd.grad(m.log_evidence(), list(m.covar_module.parameters()))
        for m in (ours, exact)
    ]
    for g, h in zip(*gradients, strict=True):
        assert torch.allclose(g, h, atol=1e-7)


STEPS = st.lists(
    st.tuples(st.sampled_from(["observe", "refit"]), st.integers(1, 5)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=8, deadline=None)
@given(
    steps=STEPS,
    name=st.sampled_from(["block", "cg"]),
    append=st.sampled_from(["identity", "block"]),
    seed=st.integers(0, 50),
)
def test_never_below_the_exact_posterior(steps, name, append, seed):
    m = model(12, POLICIES[name], seed=seed, append=append)
    Xs = data(8, seed=99)[0]
    for k, (step, size) in enumerate(steps):
        X, Y, _ = data(size, seed=seed + k + 1)
        if step == "observe":
            m.observe(X, Y)
        else:
            m.fit(max_evals=2)
        budget = m.actions.budget()
        assert step == "fit" or m.num_actions <= budget + budget // 4
        cov = m.posterior(Xs).distribution.covariance_matrix
        exact = dense_posterior(m, Xs, S=torch.eye(m.num_observed, dtype=torch.float64))[1]
        assert torch.linalg.eigvalsh(cov - exact)[0].item() > -1e-7
        check_posterior(m, atol=1e-6)
        evidence = ExactGP(
            m.state.rows.X,
            m.state.rows.y[:, None],
            covar_module=m.covar_module,
            likelihood=m.likelihood,
            **RAW,
        )
        evidence.mean_module = m.mean_module
        assert m.log_evidence().item() <= evidence.log_evidence().item() + 1e-6


@pytest.mark.parametrize("policy", [BlockSparse(8), ConjugateGradient(8), TopEigenvectors(8)])
def test_restandardised_is_rebuilt(policy):
    X, Y, _ = data(40)
    stream = CaGP(X, Y, actions=policy, outcome_transform=Standardize(1))
    stream.restandardise(2.0 * Y - 40.0)
    rebuilt = CaGP(X, Y, actions=policy, outcome_transform=stream.outcome_transform)
    assert torch.allclose(stream.posterior(X).mean, rebuilt.posterior(X).mean, atol=1e-9)
    assert torch.allclose(stream.log_evidence(), rebuilt.log_evidence())


def test_a_state_with_actions_of_another_number_is_refused():
    saved = model(20, ConjugateGradient(5)).state_dict()
    short = {**saved, "stream.state_S_values": saved["stream.state_S_values"][:, :-1]}
    empty = model(0, ConjugateGradient(5))
    with pytest.raises(StateError, match="4"):
        empty.load_state_dict(short)
    assert empty.num_observed == 0


def test_a_kernel_built_in_inference_mode_is_fitted_outside_of_it():
    X, Y, _ = data(12)
    with torch.inference_mode():
        m = CaGP(X, Y, covar_module=MaternKernel(2.5).double(), **RAW)
    before = m.covar_module.lengthscale.item()
    m.fit(5)
    assert m.covar_module.lengthscale.item() != before


def test_append_is_bordered_and_nothing_is_rebuilt():
    m = model(30, BlockSparse(6))
    m.fit(1)
    X, Y, _ = data(1, seed=4)
    with calls_of(CaGP._projected) as built:
        m.observe(X, Y)
        m.posterior(X)
    assert m.num_actions == 7 and not built


def test_compression_at_the_limit():
    m = model(30, BlockSparse(8))
    for seed in range(6):
        X, Y, _ = data(1, seed=seed + 1)
        m.observe(X, Y)
        assert m.num_actions <= 10
    assert m.num_actions == 8
    assert m.num_observed == 36
    assert m.S.block.numel() == 36  # no point dropped
    check_posterior(m)


def test_large_batches_are_cut_into_blocks():
    m = model(10, BlockSparse(8))
    X, Y, _ = data(40, seed=3)
    m.observe(X, Y)
    assert m.num_actions <= 10
    assert m.num_observed == 50
    check_posterior(m)


def test_refusals():
    X, Y, _ = data(10)
    with pytest.raises(UnsupportedError, match="ModelListGP"):
        CaGP(X, Y.expand(-1, 2), **RAW)
    with pytest.raises(InputError, match="append"):
        CaGP(X, Y, append="all", **RAW)  # type: ignore[arg-type]
    for policy in (BlockSparse, 5):
        with pytest.raises(InputError, match="bo_stream.actions"):
            CaGP(X, Y, actions=policy, **RAW)  # type: ignore[arg-type]
