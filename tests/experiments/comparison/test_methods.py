"""Every method spends its budget in the box, and recommends."""

import numpy as np
import pytest

from experiments.comparison.budgeted_task import BudgetedTask, Spent
from experiments.comparison.methods.registry import METHODS
from experiments.comparison.methods.turbo import NOISY, LocalGP
from experiments.comparison.study import plan
from experiments.comparison.tasks.registry import made

SINGLE = [name for name in METHODS if name != "botorch_outcomes"]


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("name", SINGLE)
def test_methods_spend_their_budget_from_the_same_design(name: str, noise: float) -> None:
    task = made("levy", 0, {"dim": 2, "noise_std": noise, "initial": 5})
    seen: list[np.ndarray] = []
    evaluate = BudgetedTask(task, 0, evaluations=8)
    design, function = evaluate.design(), task.evaluate
    object.__setattr__(task, "evaluate", lambda X, g: (seen.append(X), function(X, g))[1])
    with pytest.raises(Spent):
        METHODS[name].solve(evaluate)
    X = np.concatenate(seen)
    assert len(X) >= 8 and np.allclose(X[:5], design) and X.min() >= 0.0 and X.max() <= 1.0
    assert np.isfinite(evaluate.table()["loss"]).all()
    own = {"campaign", "cma", "botorch", "turbo"}
    assert (evaluate.recommender is not None) == (noise > 0.0 and name in own)


def test_turbo_closes_in_on_an_optimum() -> None:
    task = made("levy", 1, {"dim": 3})
    evaluate = BudgetedTask(task, 1, evaluations=90, batch=4)
    with pytest.raises(Spent):
        METHODS["turbo"].solve(evaluate)
    losses = evaluate.table()["loss"]
    assert losses.iloc[-1] < 0.02 * losses.iloc[0]


def test_the_gradient_of_turbos_evidence() -> None:
    drawn = np.random.default_rng(0)
    X = drawn.random((12, 2))
    theta = np.log([0.3, 0.6, 0.02])
    gp = LocalGP(X, np.sin(5.0 * X[:, 0]) + X[:, 1], theta, NOISY)
    steps = 1e-5 * np.eye(3)
    numeric = [(gp._loss(theta + s)[0] - gp._loss(theta - s)[0]) / 2e-5 for s in steps]
    assert gp._loss(theta)[1] == pytest.approx(numeric, rel=1e-5)


def test_plans_have_every_task_method_and_seed_by_seed() -> None:
    c = {
        "task": [{"name": ["levy", "ackley"], "dim": 2}],
        "method": [{"name": "sobol"}, {"name": "cma", "seeds": [0], "population": 20}],
        "seeds": [0, 1],
        "evaluations": 50,
    }
    runs = plan(c)
    assert [(r.task_label, r.label, r.seed) for r in runs[:4]] == [
        ("levy", "sobol", 0),
        ("levy", "cma", 0),
        ("ackley", "sobol", 0),
        ("ackley", "cma", 0),
    ]
    assert [(r.label, r.seed) for r in runs[4:]] == [("sobol", 1), ("sobol", 1)]
    assert runs[1].method == {"name": "cma", "population": 20}
    assert {r.budget["evaluations"] for r in plan(c, smoke=True)} == {12}


def test_regressed_points_are_recommended_by_a_model() -> None:
    task = made("levy", 0, {"dim": 2, "noise_std": 1.0, "initial": 5})
    evaluate = BudgetedTask(task, 0, evaluations=6)
    with pytest.raises(Spent):
        METHODS["sobol"].solve(evaluate, regressed=True)
    assert evaluate.recommender is not None and evaluate.table()["loss"].notna().all()
