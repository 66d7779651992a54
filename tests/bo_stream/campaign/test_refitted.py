"""Any model of BoTorch is a surrogate of a campaign, refitted on its schedule."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel

from acquisitions import build
from bo_stream import Campaign, ExactGP, Pool
from bo_stream.campaign.effort import FitPolicy
from bo_stream.campaign.refitted import Refitted
from bo_stream.errors import InputError
from tests.bo_stream.campaign.runs import CHEAP

BOX: dict[str, Any] = {"x": (0.0, 4.0), "z": (10.0, 30.0)}
SETTINGS: dict[str, Any] = {
    "seed": 0,
    "initial": 6,
    "optimiser": CHEAP,
    "fit": FitPolicy(max_evals=20),
}


class Rough(SingleTaskGP):
    """A user's subclass, which has no parameter for known noise."""

    def __init__(self, train_X: Any, train_Y: Any) -> None:
        super().__init__(train_X, train_Y, covar_module=ScaleKernel(MaternKernel(nu=1.5)))


def told(run: Campaign, rounds: int) -> Campaign:
    for _ in range(rounds):
        batch = run.ask(2)
        run.tell(batch.assign(y=(batch["x"] - 3.0) ** 2 + (batch["z"] - 20.0) ** 2 / 25.0))
    return run


@pytest.mark.parametrize("family", [SingleTaskGP, Rough, lambda X, Y, Yvar, **_: Rough(X, Y)])
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_botorch_serves(family: Any) -> None:
    run = told(Campaign(BOX, family, goal="minimise", **SETTINGS), 9)
    assert isinstance(run.model, Refitted) and run.model.num_observed == 18
    advised = run.recommend(2)
    assert len(advised) == 2 and abs(advised["x"][0] - 3.0) < 0.6
    outcomes = run.trials()["y"]
    assert 0.0 <= advised["gain"][0] <= outcomes.max() - outcomes.min()
    found = run.predict(pd.DataFrame({"x": [3.0], "z": [20.0]}), noise=True)
    assert abs(found["mean"][0]) < 1.0 and found["lower"][0] < found["upper"][0]
    run.withdraw([0], "broken")
    assert len(run.ask()) == 1 and run.model.num_observed == 17


def test_integrated_variance_is_botorchs_over_some_of_the_points() -> None:
    """Of points in any order, here sorted: with a posterior of all, a search needs 20 GB."""
    axis = torch.linspace(0.0, 1.0, 18).double()
    X, points = torch.rand(6, 2).double(), torch.cartesian_prod(axis, axis)
    model = SingleTaskGP(X, X.sum(-1, keepdim=True))
    surrogate = Refitted(lambda *_: model, X, X.sum(-1, keepdim=True), None, None)
    places, pending = torch.rand(40, 2, 2).double(), torch.rand(2, 2).double()
    found = build("nipv", surrogate, mc_points=points, X_pending=pending)
    some = found.mc_points.flatten(0, -2)
    assert len(some.unique(dim=0)) == 128 and bool(
        (some.unsqueeze(1) == points).all(-1).any(1).all()
    )
    with torch.no_grad():
        every = qNegIntegratedPosteriorVariance(model, points, X_pending=pending)(places)
        both = torch.stack([found(places), every])
    torch.testing.assert_close(*both, rtol=0.2, atol=0.0)
    assert float(torch.corrcoef(both)[0, 1]) > 0.9


def test_a_fit_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    told(Campaign(BOX, SingleTaskGP, "random", goal="minimise", **SETTINGS), 4)
    assert not [w for w in recwarn if "scalar" in str(w.message)]


@pytest.mark.parametrize("acquisition", ["qlogei", "qlognei", "ei", "thompson"])
def test_it_is_decided_by_named_functions(acquisition: str) -> None:
    run = told(Campaign(BOX, SingleTaskGP, acquisition, goal="minimise", **SETTINGS), 5)
    assert run.decision.acquisition in (acquisition, "qlogei")
    line = torch.linspace(0.0, 1.0, 30).double()
    places = pd.DataFrame({"x": 4.0 * line, "z": 10.0 + 20.0 * line})
    pool = told(Campaign(Pool(places), SingleTaskGP, acquisition, goal="minimise", **SETTINGS), 5)
    assert pool.trials()["place"].nunique() == 10


def test_new_data_keep_hyperparameters_and_equal_a_model_of_all() -> None:
    torch.manual_seed(0)
    X = torch.rand(12, 2, dtype=torch.double)
    Y, bounds = X.sum(-1, keepdim=True).sin(), torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    model = Refitted(lambda X, Y, Yvar: SingleTaskGP(X, Y), X[:8], Y[:8], None, bounds)
    report = model.fit(30)
    before = {name: p.clone() for name, p in model.model.named_parameters()}
    assert report.converged and model.observe(X[8:], Y[8:]) is model
    whole = SingleTaskGP(X, Y)
    for name, p in whole.named_parameters():
        p.data.copy_(before[name])
    new = torch.rand(5, 2, dtype=torch.double)
    ours, theirs = (m.posterior(new) for m in (model, whole))
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.variance, theirs.variance)
    exact = ExactGP(X[:8], Y[:8], bounds=bounds)
    score = model.renewed(X[:8], Y[:8], None).predictive_score(X[8:], Y[8:])
    density = whole.__class__(X[:8], Y[:8])
    for name, p in density.named_parameters():
        p.data.copy_(before[name])
    expected = density.posterior(X[8:], observation_noise=True).distribution.log_prob(Y[8:, 0])
    torch.testing.assert_close(score.log_density, expected.detach(), rtol=1e-6, atol=1e-6)
    assert type(exact.predictive_score(X[8:], Y[8:])) is type(score)


def test_a_store_keeps_the_trials_and_the_hyperparameters(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/oven.db"
    run = told(Campaign(BOX, SingleTaskGP, store=url, **SETTINGS), 4)
    again = Campaign.resume(url, surrogate=SingleTaskGP)
    assert len(again.trials()) == 8
    pd.testing.assert_frame_equal(again.recommend(), run.recommend(), rtol=0.0, atol=0.0)
    assert len(again.ask(1)) == 1
    with pytest.raises(InputError, match="from the callable"):
        told(Campaign(BOX, lambda X, Y, Yvar, **_: torch.nn.Identity(), **SETTINGS), 4)


@pytest.mark.parametrize("goal", [{"y": "maximise", "w": "minimise"}, "learn", "maximise"])
def test_several_outcomes_and_learning(goal: Any) -> None:
    several = goal != "learn"
    limits = ["w <= 2"] if goal == "maximise" else []
    run = Campaign(BOX, SingleTaskGP, goal=goal, constraints=limits, **SETTINGS)
    for _ in range(4):
        batch = run.ask(2)
        told = batch.assign(y=-((batch["x"] - 3.0) ** 2), w=batch["x"])
        run.tell(told if several else told.drop(columns="w"))
    assert run.decision.acquisition in ("qlognehvi", "qlognei", "nipv")
    assert run.predict(pd.DataFrame({"x": [1.0], "z": [20.0]})).notna().all(axis=None)
