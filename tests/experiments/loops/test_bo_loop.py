import copy
import json
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
import torch
from botorch.acquisition.analytic import PosteriorMean, UpperConfidenceBound
from torch import Tensor

from bo_stream import WISKI, surrogate
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, StateError
from experiments.common.loops.bo_loop import BOLoop, FitPolicy, LoopConfig
from tests.experiments.loops.small_runs import Bowl, ucb

PARTS = ["fit_seconds", "acquisition_seconds", "evaluation_seconds", "update_seconds"]


SMALL = LoopConfig(
    steps=4,
    q=1,
    num_initial=5,
    num_restarts=2,
    raw_samples=16,
    acqf_options={"maxiter": 20},
    recommend_every=2,
    fit=FitPolicy(max_evals=5, first_max_evals=20),
)
wiski = partial(surrogate, "wiski", grid_size=20)


def changed(**kw: object) -> LoopConfig:
    return LoopConfig(**{**vars(SMALL), **kw})  # type: ignore[arg-type]


Undisturbed = tuple[Bowl, BOLoop, pd.DataFrame]


@pytest.fixture(scope="module")
def undisturbed() -> Undisturbed:
    """A small run that has ended: its problem, itself and its table."""
    problem = Bowl()
    loop = BOLoop(problem, wiski, ucb, SMALL)
    return problem, loop, loop.run()


@pytest.mark.parametrize(
    ("family", "options"), [("wiski", {"grid_size": 20}), ("exact", {})], ids=["wiski", "exact"]
)
def test_it_records_every_step_and_finds_the_maximum(family: str, options: dict) -> None:
    problem, seen = Bowl(), []
    settings = changed(steps=6, recommend_every=6)
    loop = BOLoop(problem, partial(surrogate, family, **options), ucb, settings, seen.append)
    table = loop.run()
    assert seen == loop.rows
    assert table["step"].tolist() == list(range(7))
    assert table["n"].tolist() == list(range(5, 12))
    assert loop.model is not None and loop.model.num_observed == 11
    assert float(table["inference_regret"].iloc[-1]) < 0.05
    assert bool((table["simple_regret"] >= 0).all())
    assert table["inference_regret"].isna().tolist() == [False] + [True] * 5 + [False]
    assert table["log_predictive"].isna().tolist() == [True] + [False] * 6
    constant = table["bytes"].nunique() == 1
    assert constant == (family == "wiski")


def test_regrets_are_noiseless_values_of_what_is_recommended() -> None:
    problem = Bowl(noise_std=1.0)
    table = BOLoop(problem, wiski, ucb, SMALL).run()
    X, Y = torch.cat(problem.asked), torch.cat(problem.returned)
    for step, n in enumerate(range(5, 10)):
        best = int(Y[:n, 0].argmax())
        row = table.iloc[step]
        assert row["incumbent"] == float(Y[best])
        assert row["simple_regret"] == pytest.approx(2.0 - float(problem.evaluate_true(X[best])))


def test_inference_regret_is_that_of_the_posterior_means_maximum() -> None:
    problem = Bowl(noise_std=0.5)
    loop = BOLoop(problem, wiski, ucb, SMALL)
    table = loop.run()
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64).reshape(-1, 1, 1)
    with torch.no_grad():
        best = grid[PosteriorMean(loop.model)(grid).argmax()]  # type: ignore[arg-type]
    expected = 2.0 - float(problem.evaluate_true(best))
    assert float(table["inference_regret"].iloc[-1]) == pytest.approx(expected, abs=1e-3)


def test_the_score_is_given_before_the_batch_is_seen() -> None:
    problem = Bowl()
    loop = BOLoop(problem, wiski, ucb, changed(fit=FitPolicy(then_every=0)))
    loop.start()
    for _ in range(3):
        before = copy.deepcopy(loop.model)
        row = loop.step()
        expected = before.log_predictive(problem.asked[-1], problem.returned[-1])
        assert row["log_predictive"] == pytest.approx(float(expected), rel=1e-9)


def test_seconds_add_up_and_measuring_is_not_part_of_the_step(undisturbed: Undisturbed) -> None:
    _, _, table = undisturbed
    assert bool((table[PARTS] >= 0).all(axis=None))
    pd.testing.assert_series_equal(table[PARTS].sum(axis=1), table["step_seconds"], **_NAMELESS)
    running = table["step_seconds"].cumsum()
    pd.testing.assert_series_equal(running, table["wallclock_seconds"], **_NAMELESS)
    assert (table["recommend_seconds"] > 0).tolist() == [True, False, True, False, True]
    assert bool((table["acquisition_seconds"][1:] > 0).all())


_NAMELESS = {"check_names": False, "check_dtype": False}
TIMES = [
    *PARTS,
    *(f"{name}_seconds" for name in ("step", "wallclock", "cpu", "score", "recommend")),
]


def test_a_seed_repeats_the_run_and_leaves_the_global_generator_alone() -> None:
    runs = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        runs.append(BOLoop(Bowl(), wiski, ucb, changed(seed=7, steps=1)).run().drop(columns=TIMES))
        assert torch.equal(torch.get_rng_state(), before)
    pd.testing.assert_frame_equal(*runs)
    other = BOLoop(Bowl(), wiski, ucb, changed(seed=8, steps=0)).run()
    assert float(other["incumbent"].iloc[0]) != float(runs[0]["incumbent"].iloc[0])


def test_noise_does_not_depend_on_the_surrogate() -> None:
    noises = []
    for family in (wiski, partial(surrogate, "exact")):
        problem = Bowl()
        BOLoop(problem, family, ucb, changed(steps=1, recommend_every=0)).run()
        X, Y = torch.cat(problem.asked), torch.cat(problem.returned)
        noises.append(Y - problem.evaluate_true(X))
    torch.testing.assert_close(*noises)


def test_a_run_may_be_taken_step_by_step(undisturbed: Undisturbed) -> None:
    _, _, whole = undisturbed
    loop = BOLoop(Bowl(), wiski, ucb, SMALL)
    loop.start()
    loop.step()
    parts = loop.run()
    pd.testing.assert_frame_equal(whole.drop(columns=TIMES), parts.drop(columns=TIMES))


def test_fits_follow_the_policy_and_are_capped() -> None:
    policy = FitPolicy(every_step_until=2, then_every=2, max_evals=1, first_max_evals=3)
    table = BOLoop(Bowl(), wiski, ucb, changed(steps=5, fit=policy, recommend_every=0)).run()
    fitted = table["fit_evaluations"] > 0
    assert fitted.tolist() == [True, True, True, False, True, False]
    assert table["fit_objective"].notna().tolist() == fitted.tolist()
    assert int(table["fit_evaluations"].iloc[0]) <= 3
    assert int(table["fit_evaluations"].iloc[1:].max()) == 1
    never = FitPolicy(then_every=0)
    assert [never.due(step) for step in range(4)] == [True, False, False, False]


def test_fits_on_request_come_when_the_surrogate_asks() -> None:
    policy = FitPolicy(then_every=0, on_request=True)
    cagp = partial(surrogate, "cagp")
    for family, fitted in ((cagp, [5, 8]), (wiski, [5])):
        table = BOLoop(Bowl(), family, ucb, changed(steps=4, fit=policy, recommend_every=0)).run()
        assert table["n"][table["fit_evaluations"] > 0].tolist() == fitted


def test_outcomes_are_standardised_by_the_initial_design(undisturbed: Undisturbed) -> None:
    problem, loop, _ = undisturbed
    transform = loop.model.outcome_transform
    torch.testing.assert_close(transform.means.squeeze(), problem.returned[0].mean())
    torch.testing.assert_close(transform.stdvs.squeeze(), problem.returned[0].std())


def test_the_builder_is_given_a_bounded_baseline_and_the_best_mean() -> None:
    given: list[tuple[Tensor, float, float]] = []

    def build(model: StreamingGP, *, X_baseline: Tensor, best_f: float) -> UpperConfidenceBound:
        best = float(model.posterior(X_baseline).mean.max())
        given.append((X_baseline, best_f, best))
        return ucb(model)

    problem = Bowl()
    loop = BOLoop(problem, wiski, build, changed(baseline_size=3, recommend_every=0))
    loop.start()
    loop.preload(torch.ones(50, 1).double(), torch.full((50, 1), -2.9).double())
    assert loop.model is not None and loop.model.num_observed == 55
    loop.run()
    observed = torch.cat(problem.asked)
    for X_baseline, best_f, best in given:
        assert len(X_baseline) <= 3
        assert best_f == pytest.approx(best, rel=1e-12)
        assert bool((X_baseline == observed.T).any(1).all())  # and none of the poor preloaded ones


def test_float32() -> None:
    problem = Bowl()
    problem.bounds = Bowl.bounds.float()
    loop = BOLoop(problem, wiski, ucb, changed(dtype="float32", steps=2))
    assert float(loop.run()["inference_regret"].iloc[-1]) < 0.5
    assert {X.dtype for X in problem.asked} == {torch.float32}


def test_a_saved_run_says_how_it_came_about(tmp_path: Path) -> None:
    loop = BOLoop(Bowl(), wiski, ucb, changed(seed=3, steps=2))
    table = loop.run()
    loop.save(tmp_path / "new" / "run.csv", problem="bowl", surrogate="wiski")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new" / "run.csv"), table)
    about = json.loads((tmp_path / "new" / "run.json").read_text())
    assert about["problem"] == "bowl" and about["surrogate"] == "wiski"
    assert about["config"]["seed"] == 3 and about["config"]["dtype"] == "float64"
    assert about["config"]["fit"]["then_every"] == 1
    environment = about["environment"]
    assert environment["versions"]["torch"] == version("torch")
    assert {"bo_stream", "botorch", "gpytorch"} <= set(environment["versions"])
    assert environment["torch_threads"] == torch.get_num_threads() and environment["cpu"]


@pytest.mark.parametrize(
    "wrong", [{"q": 0}, {"steps": -1}, {"num_initial": 1}, {"dtype": "float16"}]
)
def test_a_run_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        changed(**wrong)


def test_a_step_before_the_start_is_refused() -> None:
    with pytest.raises(StateError, match="start"):
        BOLoop(Bowl(), wiski, ucb, SMALL).step()


def test_a_given_design_is_taken_as_it_is() -> None:
    problem = Bowl()
    loop = BOLoop(problem, wiski, ucb, SMALL)
    X = torch.linspace(0.0, 1.0, 7, dtype=torch.float64).unsqueeze(-1)
    loop.start(X, problem.evaluate_true(X))
    assert problem.asked == []
    assert isinstance(loop.model, WISKI) and loop.model.num_observed == 7
