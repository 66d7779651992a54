"""What every method of a comparison is asked for, and what is refused."""

import time
from collections.abc import Callable
from itertools import count

import pytest
import torch
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from torch import Tensor

from acquisitions import build
from bo_stream import CaGP, ExactGP, OnlineSGPR
from bo_stream.actions import ConjugateGradient
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.growth import FixedSize
from experiments.common.baselines.baseline import Baseline, shares
from experiments.common.baselines.batch_sgpr import BatchSGPR
from experiments.common.baselines.conjugate import CGGP
from experiments.common.baselines.local import LocalGPs
from experiments.common.baselines.modules import learned, modules
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.baselines.surrogates import Surrogate, observations, twin
from experiments.common.baselines.svi import SVI

METHODS: dict[str, Callable[[], Baseline]] = {
    "svi": lambda: SVI(24, minibatch=64),
    "batch sgpr": lambda: BatchSGPR(24),
    "cggp": lambda: CGGP(20),
    "local": lambda: LocalGPs(cap=40),
    "stochastic": lambda: StochasticDecoupled(200, 24, minibatch=64),
    "incremental": lambda: Surrogate("online_sgpr", {"growth": FixedSize(24)}, 3),
}
ALONE = [name for name in METHODS if name != "incremental"]


def rows(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    f = (2.0 * X[:, :1]).sin() + 0.5 * X[:, 1:]
    return X, f + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)


def streamed(name: str, seconds: float = 0.7) -> Baseline:
    """A method after two batches, by a clock of which every look is 5 milliseconds later: as many
    steps on any machine.
    """
    method, looks = METHODS[name](), count()
    method.clock = lambda: 0.005 * next(looks)
    X, Y = rows(160)
    for part in (slice(0, 80), slice(80, 160)):
        method.observe(X[part], Y[part], budget=seconds)
    return method


@pytest.mark.slow  # `make smoke` runs every method
@pytest.mark.parametrize("name", METHODS)
def test_it_learns_from_a_stream(name: str) -> None:
    method = streamed(name)
    X, Y = rows(200, seed=1)
    mean, variance = method.predict(X)
    assert mean.shape == variance.shape == (200,)
    error, inside = mean - Y[:, 0], (variance > 0.005).double().mean()
    assert float(error.square().mean() / Y.var()) < 0.2, float(error.square().mean() / Y.var())
    assert float(inside) == 1.0  # noise, of variance 0.01, is part of it
    assert float((error.abs() <= 2.0 * variance.sqrt()).double().mean()) > 0.5


@pytest.mark.parametrize("name", ["svi", "batch sgpr", "cggp", "stochastic"])
def test_it_spends_its_budget_and_says_so(name: str) -> None:
    method = METHODS[name]()
    X, Y = rows(80)
    method.observe(X, Y)  # one step
    once, began = method.seconds, time.process_time()
    method.observe(X[:0], Y[:0], budget=0.3)  # no rows: it learns on
    assert method.seconds - once == pytest.approx(time.process_time() - began, abs=0.05)
    assert 0.3 <= method.seconds - once < 0.8


def test_the_first_share_comes_in_any_case() -> None:
    clock = time.process_time
    assert list(shares(0.0, clock)) == list(shares(-1.0, clock)) == [0.0]
    some = list(shares(0.01, clock))
    assert some[0] == 0.0 and len(some) > 2 and some[-1] < 1.0 and some == sorted(some)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_predicted_before_the_first_rows(name: str) -> None:
    with pytest.raises(StateError, match="Call observe first"):
        METHODS[name]().predict(rows(3)[0])


@pytest.mark.parametrize("name", ALONE)
def test_no_acquisition_is_built_on_what_has_no_joint_distribution(name: str) -> None:
    method = METHODS[name]()
    for make in (lambda: build("nipv", method.model()), lambda: qKnowledgeGradient(method.model())):
        with pytest.raises(
            UnsupportedError, match="joint distribution of several points.*OnlineSGPR"
        ):
            make()


def test_an_acquisition_is_built_on_a_family() -> None:
    model = streamed("incremental").model()
    assert isinstance(model, OnlineSGPR) and len(model.inducing_points) == 24
    assert isinstance(qKnowledgeGradient(model, num_fantasies=2), qKnowledgeGradient)


def test_a_twin_has_the_same_hyperparameters_and_all_rows() -> None:
    X, Y = rows(40)
    method = Surrogate("online_sgpr", {"growth": FixedSize(40)}, 0)
    method.observe(X, Y)
    model = method.model()
    exact = twin("exact", X, Y, model)
    assert isinstance(exact, ExactGP) and exact.num_observed == 40
    assert torch.equal(
        exact.covar_module.base_kernel.lengthscale, model.covar_module.base_kernel.lengthscale
    )
    assert exact.covar_module is not model.covar_module
    # with all inputs among the inducing points it is the exact GP, up to the jitter of these
    at = rows(9, seed=2)[0]
    for one, other in zip(observations(exact, at), method.predict(at), strict=True):
        assert torch.allclose(one, other, atol=1e-3)


def test_hyperparameters_are_learned_from_at_most_so_many_rows() -> None:
    X, Y = rows(60)
    start, few, all_rows = modules(2), learned(X, Y, rows=10), learned(X, Y)
    noises = [own["likelihood"].noise.item() for own in (start, few, all_rows)]
    assert 0.004 < noises[2] < 0.02 and noises[2] not in noises[:2]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_later_rows_count(name: str) -> None:
    method, (X, Y) = METHODS[name](), rows(160)
    order = X[:, 0].argsort()
    left, right = order[:110], order[110:]
    errors = []
    for part in (left, right):  # one side of the function, then the other
        method.observe(X[part], Y[part], 0.7)
        mean, variance = method.predict(X[right])
        errors.append(float((mean - Y[right, 0]).square().mean()))
    assert errors[1] < 0.5 * errors[0], errors
    assert not mean.requires_grad and not variance.requires_grad


def test_a_long_step_of_adam_stays_within_the_constraints() -> None:
    own = modules(2)
    parameters = [*own["covar_module"].parameters(), *own["likelihood"].parameters()]
    with torch.no_grad():
        for parameter in parameters:
            parameter.sub_(5.0)
    assert 1e-4 < own["likelihood"].noise.item() < 0.01
    assert bool((own["covar_module"].base_kernel.lengthscale > 0.0).all())
    names = {
        name for module in ("covar_module", "likelihood") for name, *_ in own[module].named_priors()
    }
    assert {name.rpartition(".")[2] for name in names} == {"lengthscale_prior", "noise_prior"}


# -- conjugate gradients -------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [6, 80])
def test_means_are_those_of_so_many_actions(iterations: int) -> None:
    X, Y = rows(40)
    method, at = CGGP(iterations, preconditioner=0), rows(9, seed=2)[0]
    method.observe(X, Y)  # one step, which moves hyperparameters
    learned = ("covar_module", "mean_module", "likelihood")
    own = modules(2) | {name: getattr(method._model, name) for name in learned}
    cagp = CaGP(X, Y, actions=ConjugateGradient(min(iterations, 40)), **own)
    mean, variance = method.predict(at)
    want = observations(cagp, at)
    assert torch.allclose(mean, want[0], atol=1e-5)  # residuals end at 1e-6
    if iterations > 40:  # rounding, in 40 of them
        assert torch.allclose(variance, want[1], atol=1e-5)


# -- local GPs ----------------------------------------------------------------------------------


def test_an_expert_of_all_rows_is_the_exact_gp() -> None:
    X, Y = rows(60)
    method = LocalGPs(cap=60)
    method.observe(X, Y)
    exact = ExactGP(X, Y, **learned(X, Y))
    at = rows(9, seed=2)[0]
    for one, other in zip(method.predict(at), observations(exact, at), strict=True):
        assert torch.allclose(one, other, atol=1e-10)


def test_experts_stay_below_their_cap_and_lose_no_row() -> None:
    X, Y = rows(300)
    method = LocalGPs(cap=32)
    for part in range(0, 300, 60):
        method.observe(X[part : part + 60], Y[part : part + 60])
    sizes = [len(expert.X) for expert in method.experts]
    assert max(sizes) <= 32 and sum(sizes) == 300
    seen = torch.cat([expert.X for expert in method.experts])
    assert torch.equal(seen.sort(0).values, X.sort(0).values)


def test_a_mixture_of_one_neighbour_is_the_nearest_expert() -> None:
    X, Y = rows(80)
    method = LocalGPs(cap=40, neighbours=1)
    method.observe(X, Y)
    for expert in method.experts:
        at = expert.centre.unsqueeze(0)
        assert expert.model is not None
        want = observations(expert.model, at)
        for one, other in zip(method.predict(at), want, strict=True):
            assert torch.allclose(one, other, atol=1e-10)


def test_the_variance_of_a_mixture_counts_what_divides_its_experts() -> None:
    X, Y = rows(80)
    method = LocalGPs(cap=40, neighbours=2)
    method.observe(X, Y)
    at = method.experts[0].centre.unsqueeze(0) + 0.3
    models = [expert.model for expert in method.experts if expert.model is not None]
    means, variances = (
        torch.cat(part) for part in zip(*(observations(m, at) for m in models), strict=True)
    )
    square = method._distances(at)[0].square()
    weight = torch.softmax(-0.5 * square, -1)
    mean, variance = method.predict(at)
    assert torch.allclose(mean, (weight * means).sum())
    apart = (weight * (means - mean).square()).sum()
    assert torch.allclose(variance, (weight * variances).sum() + apart)


@pytest.mark.parametrize("wrong", [{"cap": 1}, {"neighbours": 0}])
def test_sizes_of_local_gps_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="or more"):
        LocalGPs(**wrong)
