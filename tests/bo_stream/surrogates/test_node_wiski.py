"""NodeWISKI against dense algebra: exact up to the cap, frozen rows written out beyond it."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream import ExactGP, NodeWISKI
from bo_stream.errors import InputError, StateError
from bo_stream.testing.base import assert_same_posterior, close, snapshot
from bo_stream.testing.oracles import DenseGP
from tests.raw import RAW


def data(n: int, d: int = 3, outputs: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    Y = 1.0 + (5.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin() + 0.3 * noise
    return X, Y, 0.05 + 0.1 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def modules(noise: str, d: int = 3, outputs: int = 1) -> dict[str, Any]:
    batch = Size([outputs] if outputs > 1 else [])
    kernel = ScaleKernel(RBFKernel(ard_num_dims=d, batch_shape=batch), batch_shape=batch).double()
    kernel.base_kernel.lengthscale = torch.linspace(0.5, 0.9, d).expand(*batch, 1, d)
    if noise == "known":
        return {"covar_module": kernel, **RAW}
    likelihood = GaussianLikelihood(batch_shape=batch).double()
    likelihood.noise = 0.1 if noise == "learned" else 1.3
    return {"covar_module": kernel, "likelihood": likelihood, **RAW}


def known(noise: str, Yvar: Tensor) -> Tensor | None:
    return None if noise == "learned" else Yvar


def disturbed(model: Any, by: float = 0.2) -> Any:
    """Other hyperparameters, for what was frozen under the old ones."""
    for p in model.parameters():
        p.data.add_(by * torch.linspace(-1.0, 1.0, p.numel(), dtype=p.dtype).reshape(p.shape))
    return model


# -- up to the cap -------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
def test_is_the_exact_gp_up_to_the_cap(noise: str, outputs: int) -> None:
    X, Y, Yvar = data(120, outputs=outputs)
    D = known(noise, Yvar)
    exact: Any = ExactGP(X, Y, D, **modules(noise, outputs=outputs))
    first = None if D is None else D[:50]
    nodes: Any = NodeWISKI(
        X[:50], Y[:50], first, cap=120, tolerance=0.0, **modules(noise, outputs=outputs)
    )
    nodes.observe(X[50:], Y[50:], None if D is None else D[50:])
    Z = data(30, seed=1)[0]
    for _ in range(2):
        assert abs((nodes.log_evidence() - exact.log_evidence()).item()) < 1e-6
        assert_same_posterior(nodes, exact, Z, 1e-8)
        grads = [
            torch.autograd.grad(m.log_evidence(), [p for p in m.parameters() if p.requires_grad])
            for m in (nodes, exact)
        ]
        for mine, theirs in zip(*grads, strict=True):
            close(mine, theirs, 1e-7)
        nodes, exact = disturbed(nodes), disturbed(exact)
    assert nodes.nodes.shape == (120, 3)


def test_copies_of_a_node_are_more_of_its_data() -> None:
    """With the default tolerance they are no nodes, and nothing is lost."""
    X, Y, _ = data(20)
    twice = torch.cat([X, X]), torch.cat([Y, Y + 0.1])
    nodes: Any = NodeWISKI(*twice, **modules("learned"))
    exact: Any = ExactGP(*twice, **modules("learned"))
    assert nodes.nodes.shape == (20, 3)
    for model in (nodes, exact):
        disturbed(model)
    close(nodes.log_evidence(), exact.log_evidence())
    assert_same_posterior(nodes, exact, data(9, seed=1)[0])


def test_a_batch_enters_by_its_conditional_variance() -> None:
    """The next one is the point that those before it tell least of: a pivoted factorisation."""
    X, Y, _ = data(40)
    model: Any = NodeWISKI(X[:0], Y[:0], cap=41, **modules("learned")).observe(X, Y)
    K = model.covar_module(X).to_dense().detach()
    chosen = [int((z == X).all(-1).nonzero()) for z in model.nodes[:12]]
    for count in range(1, 12):
        before = chosen[:count]
        rows = torch.linalg.solve(K[before][:, before], K[before])
        variances = K.diagonal() - (rows * K[before]).sum(0)
        assert chosen[count] == int(variances.argmax())


# -- beyond it -----------------------------------------------------------------------------------


class Frozen:
    """The model written out, point by point: every row of W and every noise variance."""

    def __init__(self, model: Any, cap: int) -> None:
        self.model, self.cap = model, cap
        self.Z, self.W = torch.zeros(0, 3).double(), torch.zeros(0, 0).double()
        self.r, self.y = torch.zeros(0).double(), torch.zeros(0).double()

    def k(self, A: Tensor, B: Tensor) -> Tensor:
        return self.model.covar_module(A, B).to_dense().detach()

    def dist(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior of values at X: their prior covariance with the data goes through the nodes."""
        s2, c = self.model._noise_scale().detach(), self.model._prior_mean().detach()
        C = self.W @ self.k(self.Z, self.Z) @ self.W.T + torch.diag(s2 * self.r)
        G = self.k(X, self.Z) @ self.W.T
        gain = torch.linalg.solve(C, G.T).T
        return c + gain @ (self.y - c), self.k(X, X) - gain @ G.T

    def evidence(self) -> Tensor:
        s2, c = self.model._noise_scale().detach(), self.model._prior_mean().detach()
        C = self.W @ self.k(self.Z, self.Z) @ self.W.T + torch.diag(s2 * self.r)
        dist = torch.distributions.MultivariateNormal(c.expand(len(C)), C)
        return dist.log_prob(self.y)

    def add(self, x: Tensor, y: Tensor, r: Tensor) -> None:
        x, s2 = x.unsqueeze(0), self.model._noise_scale().detach()
        row = torch.linalg.solve(self.k(self.Z, self.Z), self.k(self.Z, x)).squeeze(-1)
        rho = self.k(x, x)[0, 0] - row @ self.k(self.Z, x)[:, 0]
        enters = len(self.Z) < self.cap
        if not enters:
            inverse = torch.linalg.inv(self.k(self.Z, self.Z))
            score = 1.0 / inverse.diag()
            j = int(score.argmin())
            if score[j] < rho:
                t = -inverse[:, j] / inverse[j, j]
                keep = torch.arange(len(self.Z)) != j
                self.W = (self.W + self.W[:, [j]] * t)[:, keep]
                self.Z, enters = self.Z[keep], True
        if enters:
            self.Z = torch.cat([self.Z, x])
            self.W = torch.nn.functional.pad(self.W, (0, 1))
            row = torch.nn.functional.one_hot(torch.tensor(len(self.Z) - 1)).double()
        else:
            r = r + rho / s2
        self.W = torch.cat([self.W, row.unsqueeze(0)])
        self.r, self.y = torch.cat([self.r, r]), torch.cat([self.y, y])


def streamed(noise: str, n: int, cap: int) -> tuple[Any, Frozen]:
    """Point by point, hyperparameters changing on the way; and the same written out."""
    X, Y, Yvar = data(n)
    D = known(noise, Yvar)
    empty = None if D is None else D[:0]
    model: Any = NodeWISKI(X[:0], Y[:0], empty, cap=cap, **modules(noise))
    model.mean_module.constant = 0.8
    frozen = Frozen(model, cap)
    for i in range(n):
        if i == n // 2:
            disturbed(model)
        batch = (X[i : i + 1], Y[i : i + 1])
        model.observe(*batch, *(() if D is None else (D[i : i + 1],)))
        frozen.add(X[i], Y[i], torch.ones(1).double() if D is None else D[i])
    return model, frozen


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
def test_is_a_gaussian_model_of_frozen_rows_beyond_the_cap(noise: str) -> None:
    model, frozen = streamed(noise, 60, 10)
    unit = ((frozen.W == 1.0).sum(-1) == 1) & ((frozen.W != 0.0).sum(-1) == 1)
    assert 4 < int(unit.sum()) < 60  # some points are nodes, some were, some never
    mine, theirs = (Z[Z[:, 0].argsort()] for Z in (model.nodes, frozen.Z))
    assert torch.equal(mine, theirs)
    X = data(20, seed=1)[0]
    for _ in range(2):
        close(model.log_evidence(), frozen.evidence())
        mean, cov = frozen.dist(X)
        close(model.posterior(X).mean[:, 0], mean)
        close(model.posterior(X).distribution.covariance_matrix, cov)
        disturbed(model)


def drift(n: int) -> None:
    model, frozen = streamed("known", n, 12)
    order = [int((z == frozen.Z).all(-1).nonzero()) for z in model.nodes]
    W, weighted = frozen.W[:, order], frozen.W[:, order] / frozen.r.unsqueeze(-1)
    state = model.state
    close(state.A[0], weighted.T @ W, 1e-6)
    close(state.b[0], weighted.T @ frozen.y, 1e-6)
    close(state.w1[0], weighted.sum(0), 1e-6)
    close(state.one[0], (1.0 / frozen.r).sum(), 1e-10)


@pytest.mark.slow
def test_ten_thousand_updates_do_not_drift() -> None:
    drift(10_000)


def test_batches_beyond_the_cap_keep_the_sums_of_their_rows() -> None:
    """However many places change hands in a batch, every point leaves one row."""
    X, Y, _ = data(300)
    model: Any = NodeWISKI(X[:40], Y[:40], cap=25, **modules("learned"))
    before = model.nodes
    model.observe(X[40:], Y[40:])
    state = model.state
    assert model.nodes.shape == (25, 3) and len(torch.cat([before, model.nodes]).unique(dim=0)) > 25
    assert all((z == X).all(-1).any() for z in model.nodes)
    assert 25.0 < float(state.one) < 300.0  # projections have noise of their own
    dense = DenseGP(
        lambda a, b: model.covar_module(a, b).to_dense(),
        X,
        Y[:, 0],
        torch.tensor(0.1),
        torch.zeros(()),
    )
    Z = data(200, seed=1)[0]
    error = model.posterior(Z).mean.detach()[:, 0] - dense.posterior(Z)[0].detach()
    assert float(error.square().mean().sqrt()) < 0.3 * float(Y.std())


def test_the_best_mean_in_closed_form() -> None:
    X, Y, Yvar = data(60)
    model: Any = NodeWISKI(X, Y, Yvar, cap=15, **modules("known"))
    value, best = model._objective(profile_mean=True)
    model.mean_module.constant = best
    close(model.log_evidence(), value)
    (slope,) = torch.autograd.grad(model.log_evidence(), model.mean_module.raw_constant)
    assert abs(float(slope)) < 1e-8


def test_outcomes_far_from_zero() -> None:
    """Sums count from where the outcomes are; rows do not sum to one, and need not."""
    X, Y, _ = data(80)
    models: list[Any] = []
    for far in (0.0, 1e7):
        model: Any = NodeWISKI(X[:0], Y[:0], cap=15, **modules("learned"))
        model.mean_module.constant = torch.tensor(far + 0.5, dtype=torch.float64)
        models.append(model.observe(X[:40], Y[:40] + far).observe(X[40:], Y[40:] + far))
    Z = data(20, seed=1)[0]
    close(models[1].posterior(Z).mean - 1e7, models[0].posterior(Z).mean, 1e-6)
    close(models[1].log_evidence(), models[0].log_evidence(), 1e-6)


def test_hyperparameters_are_learned_again_from_all_data() -> None:
    """Absorbed under a noise ten times too large, of which the last point alone could not tell."""
    X, Y, _ = data(400)
    model: Any = NodeWISKI(X[:60], Y[:60], cap=60, **modules("learned"))
    model.likelihood.noise = 1.0
    for rows in torch.arange(60, 400).split(20):
        model.observe(X[rows], Y[rows])
    model.observe(X[:1], Y[:1])
    before = model.log_evidence().item()
    model.fit()
    assert model.log_evidence().item() > before + 20.0
    assert 0.07 < model.likelihood.noise.item() < 0.15  # 0.09, and what projections miss


@pytest.mark.parametrize(
    "options", [{"cap": 1}, {"cap": 2.5}, {"tolerance": -0.1}, {"tolerance": 1.0}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    X, Y, _ = data(5)
    with pytest.raises(InputError):
        NodeWISKI(X, Y, **RAW, **options)


def test_the_state_of_another_cap_is_refused() -> None:
    X, Y, _ = data(20)
    saved = snapshot(NodeWISKI(X, Y, cap=10, **RAW))
    with pytest.raises(StateError, match="cap"):
        NodeWISKI(X[:0], Y[:0], cap=12, **RAW).load_state_dict(saved)
