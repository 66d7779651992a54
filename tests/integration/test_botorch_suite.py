"""What BoTorch's suites and tutorials try on a model, on every family."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    GenericMCObjective,
    LinearMCObjective,
    PosteriorMean,
    ScalarizedPosteriorTransform,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.acquisition.logei import qLogProbabilityOfFeasibility
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.surrogates.registry import FAMILIES, surrogate

pytestmark = pytest.mark.slow

BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]]).double()
DATA = BOUNDS[0] + 2.0 * torch.rand(24, 2, generator=torch.Generator().manual_seed(0)).double()


def outcome(X: Tensor) -> Tensor:
    return (2.0 * X[..., :1]).sin() * X[..., 1:].cos()


def model(family: str, n: int = 20) -> Any:
    return surrogate(family, DATA[:n], outcome(DATA[:n]), bounds=BOUNDS)


def both(family: str) -> ModelListGP:
    """Two outcomes, of which one is constrained."""
    return ModelListGP(model(family), model(family, 16))


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(Size([8]), seed=0)


def first(Y: Tensor, X: Tensor | None = None) -> Tensor:
    return Y[..., 0]


def second(Y: Tensor) -> Tensor:
    return Y[..., 1] - 0.2


CASES: dict[str, Callable[[str], Any]] = {
    "pending points": lambda f: qLogExpectedImprovement(
        model(f), best_f=0.3, sampler=sampler(), X_pending=DATA[20:22]
    ),
    "an objective": lambda f: qUpperConfidenceBound(
        model(f), 2.0, sampler=sampler(), objective=GenericMCObjective(lambda Y, X=None: -Y[..., 0])
    ),
    "constraints": lambda f: qLogNoisyExpectedImprovement(
        both(f), DATA, objective=GenericMCObjective(first), constraints=[second]
    ),
    "pending points and constraints": lambda f: qLogNoisyExpectedImprovement(
        both(f),
        DATA,
        objective=GenericMCObjective(first),
        constraints=[second],
        X_pending=DATA[20:22],
    ),
    "feasibility": lambda f: qLogProbabilityOfFeasibility(both(f), [second], sampler=sampler()),
    "a linear objective": lambda f: qLogNoisyExpectedImprovement(
        both(f), DATA, objective=LinearMCObjective(torch.tensor([0.3, 0.7]).double())
    ),
    "a posterior transform": lambda f: PosteriorMean(
        model(f), posterior_transform=ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    ),
    "fantasies": lambda f: qKnowledgeGradient(model(f), num_fantasies=2),
    "a fantasised model": lambda f: qLogExpectedImprovement(
        model(f).fantasize(DATA[20:22], sampler()), best_f=0.3, sampler=sampler()
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_maximised_within_the_bounds(family: str, case: str) -> None:
    torch.manual_seed(0)
    acqf, q = CASES[case](family), 1 if case == "a posterior transform" else 2
    if case == "a fantasised model":  # a batch of models: one value for each
        values = acqf(DATA[:3].unsqueeze(-2).unsqueeze(-2))
        assert values.shape == (3, 8) and values.isfinite().all()
        return
    X, value = optimize_acqf(
        acqf, BOUNDS, q=q, num_restarts=2, raw_samples=8, options={"maxiter": 3}
    )
    assert value.isfinite().all()
    assert ((BOUNDS[0] <= X) & (BOUNDS[1] >= X)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_closed_loop_of_new_models(family: str) -> None:
    """Each is built on all data and starts from the last one's hyperparameters."""
    torch.manual_seed(0)
    X, state = DATA[:10], None
    for _ in range(3):
        now = surrogate(family, X, outcome(X), bounds=BOUNDS)
        if state is not None:
            now.load_state_dict(state)
        now.fit(10)
        assert now.num_observed == len(X)
        acqf = qLogExpectedImprovement(now, outcome(X).max(), sampler=sampler())
        x, _ = optimize_acqf(
            acqf, BOUNDS, q=2, num_restarts=2, raw_samples=8, options={"maxiter": 3}
        )
        X, state = torch.cat([X, x]), now.state_dict()
