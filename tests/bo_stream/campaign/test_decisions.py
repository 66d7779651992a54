"""What a campaign decides by itself: surrogate, acquisition function, points ahead, fits."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import Tensor

from acquisitions import Proposal, Rule, View
from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.effort import FitPolicy
from bo_stream.campaign.history import TrialHistory
from bo_stream.errors import InputError

SQUARE = Box({"x": (0.0, 4.0), "y_in": (0.0, 4.0)})
CUBE = Box({f"x{i}": (0.0, 1.0) for i in range(3)})
FAST: dict[str, Any] = {"surrogate": {"name": "hsgp", "num_features": 40}, "seed": 0, "initial": 6}


def bowl(frame: pd.DataFrame) -> pd.Series:
    return -((frame.filter(like="x") - 0.4) ** 2).sum(axis=1)


def told(run: Campaign, steps: int, q: int = 1) -> Campaign:
    for _ in range(steps):
        batch = run.ask(q)
        run.tell(batch.assign(y=bowl(batch)))
    return run


def box(dim: int) -> Box:
    return Box({f"x{i}": (0.0, 1.0) for i in range(dim)})


@pytest.mark.parametrize(
    ("space", "goal", "budget", "expected"),
    [
        (box(2), "minimise", 100, ("warped", "logei")),
        (box(12), "maximise", 60, ("warped", "logei")),
        (box(3), "maximise", 3000, ("hsgp", "thompson")),
        (box(3), "maximise", None, ("warped", "logei")),
        (box(20), "minimise", 5000, ("trust_region", "trust_region")),
        (box(6), "minimise", 5000, ("node_wiski", "qlogei")),
        (box(6), "minimise", 400, ("exact", "qlogei")),
        (box(2), "learn", 100, ("exact", "nipv")),
        (box(2), "learn", None, ("wiski", "nipv")),
        (Pool(pd.DataFrame({"x": np.arange(9.0)})), "maximise", None, ("wiski", "qlogei")),
    ],
)
def test_defaults_follow_from_the_task(
    space: Any, goal: Any, budget: int | None, expected: tuple[str, str]
) -> None:
    run = Campaign(space, goal=goal, budget=budget, seed=0)
    assert run.settings.surrogate is not None
    assert (run.settings.surrogate["name"], run.decision.acquisition) == expected
    assert all(why.endswith(".") for why in run.settings.why)


@pytest.mark.parametrize(
    ("space", "options", "expected"),
    [
        (box(5), {"budget": 500}, ("trust_region", "trust_region")),
        (box(3), {"budget": 3000}, ("trust_region", "trust_region")),
        (box(5), {"budget": 500, "constraints": ["x0 + x1 <= 1"]}, ("warped", "logei")),
        (
            box(5),
            {"budget": 500, "goal": {"a": "minimise", "b": "minimise"}},
            ("warped", "qlognehvi"),
        ),
        (Pool(pd.DataFrame({"x": np.arange(9.0)})), {"budget": 500}, ("warped", "qlogei")),
        (box(2), {"goal": "learn"}, ("warped", "nipv")),
    ],
)
def test_exact_outcomes_have_a_surrogate_for_any_budget(
    space: Any, options: Any, expected: tuple[str, str]
) -> None:
    run = Campaign(space, noise="none", seed=0, **{"goal": "minimise", **options})
    assert run.settings.surrogate == {"name": expected[0], "noise": "none"}
    assert run.settings.acquisition == {"name": expected[1]}


def test_exact_outcomes_without_a_budget_end_in_a_trust_region() -> None:
    run = Campaign(box(4), goal="maximise", noise="none", seed=0)
    points = pd.DataFrame(np.random.default_rng(0).random((201, 4)), columns=list(box(4).names))
    run.tell(points.assign(y=bowl(points)))
    run = told(run, 3, 20)
    assert run.ledger.current.surrogate == {"name": "trust_region", "noise": "none"}
    assert type(run.model).__name__ == "TrustRegionGP"
    assert (run.recommend()[list(box(4).names)] - 0.4).abs().max(axis=None) < 0.05


def test_without_a_budget_it_begins_small_and_goes_on_as_a_stream(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'open.db'}"
    run = Campaign(CUBE, store=url, seed=0)
    many = pd.DataFrame(np.random.default_rng(0).uniform(size=(199, 3)), columns=["x0", "x1", "x2"])
    run.tell(many.assign(y=bowl(many)))
    batch = run.ask()
    assert (type(run.model).__name__, run.decision.acquisition) == ("WarpedGP", "logei")
    run.tell(batch.assign(y=bowl(batch)))
    run.tell(run.ask().assign(y=bowl))
    run.ask()
    assert (type(run.model).__name__, run.decision.acquisition) == ("HSGP", "thompson")
    assert run.model is not None and run.model.num_observed == 201
    resumed = Campaign.resume(url)
    assert type(resumed.model).__name__ == "HSGP" and resumed.state.engine.stage.start == 201


def test_a_campaign_that_is_only_told_recommends_by_the_surrogate_of_many_outcomes() -> None:
    run = Campaign(CUBE, seed=0)
    many = pd.DataFrame(np.random.default_rng(0).uniform(size=(300, 3)), columns=["x0", "x1", "x2"])
    run.tell(many[:20].assign(y=bowl(many[:20])))
    run.recommend()
    assert type(run.model).__name__ == "WarpedGP"
    run.tell(many[20:].assign(y=bowl(many[20:])))
    run.recommend()
    assert type(run.model).__name__ == "HSGP"


def test_points_are_chosen_ahead_and_handed_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ahead.db'}"
    run = told(Campaign(CUBE, acquisition="thompson", store=url, **FAST), 1, 60)
    first = run.ask(3)
    ahead = run.ledger.refresh().ahead
    assert len(ahead) == 9 - 3  # 15 % of 60 observations
    resumed = Campaign.resume(url)
    second = resumed.ask(3)
    assert [tuple(row) for row in second.to_numpy()] == list(ahead[:3])
    assert resumed.ledger.refresh().ahead == ahead[3:] and run.ledger.refresh().ahead == ahead[3:]
    run.enqueue(pd.DataFrame({f"x{i}": [0.5] for i in range(3)}))
    assert run.ledger.refresh().ahead == ahead[3:]
    assert len(run.ask(5)) == 5  # more than are left: chosen anew
    assert len({tuple(row) for row in pd.concat([first, second]).to_numpy()}) == 6


def test_trials_chosen_by_samples_are_the_same_for_the_same_seed() -> None:
    runs = [told(Campaign(CUBE, acquisition="thompson", **FAST), 8, 4) for _ in range(2)]
    pd.testing.assert_frame_equal(runs[0].trials(), runs[1].trials())


def test_a_choice_by_seconds_of_an_earlier_release_is_the_default(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'auto.db'}"
    settings = {**FAST, "surrogate": "exact", "fit": FitPolicy(max_evals=3)}
    run = told(Campaign(SQUARE, acquisition="auto", store=url, **settings), 8)
    assert run.decision.acquisition == "qlogei"
    plain = run.settings.to_dict() | {"acquisition": {"name": "auto"}}
    assert type(run.settings).from_dict(plain) == run.settings
    asked = {"kind": "asked", "trials": [[0, None, [0.1]]], "by": None, "at": 9.0, "seconds": 2.0}
    assert len(TrialHistory().extended([asked]).trials) == 1
    assert Campaign.resume(url).decision == run.decision


def test_fits_follow_growth() -> None:
    policy = FitPolicy(then_every=0, growth=1.5, late_growth=3.0)
    fits, fitted = [], 1
    for n in range(1, 2000):
        if policy.due(1, n=n, fitted=fitted):
            fits.append(n)
            fitted = n
    assert fits[:6] == [2, 3, 5, 8, 12, 18]
    assert all(b == 3 * a for a, b in zip(fits, fits[1:], strict=False) if a >= 300)
    surprised = FitPolicy(then_every=0, growth=1.5, late_growth=3.0, on_surprise=True)
    assert surprised.due(1, n=120, fitted=100, behind=True)
    assert not surprised.due(1, n=105, fitted=100, behind=True)
    with pytest.raises(InputError, match="above 1"):
        FitPolicy(growth=0.5)


def test_a_resumed_campaign_fits_when_it_would_have(tmp_path: Path) -> None:
    def run_of(name: str) -> Campaign:
        url = f"sqlite:///{tmp_path / name}"
        return Campaign(CUBE, acquisition="thompson", store=url, name="a", **FAST)

    whole = told(run_of("whole.db"), 14, 3)
    told(run_of("parts.db"), 6, 3)
    parts = told(Campaign.resume(f"sqlite:///{tmp_path / 'parts.db'}", "a"), 8, 3)
    pd.testing.assert_frame_equal(whole.trials(), parts.trials())


def test_a_run_ends_after_its_seconds() -> None:
    run = Campaign(CUBE, acquisition="thompson", **FAST)
    begin = time.monotonic()
    run.run(lambda trial: float(trial["x0"]), seconds=0.4)
    assert time.monotonic() - begin < 5.0  # the last decision is waited for
    assert len(run.trials()) > 0 and (run.trials()["status"] == "told").all()
    with pytest.raises(InputError, match="positive seconds"):
        run.run(lambda trial: 0.0, seconds=0.0)


@pytest.mark.parametrize("noise", ["loud", 0.0, -1.0, True, float("nan")])
def test_it_refuses_noise_that_is_none(noise: Any) -> None:
    with pytest.raises(InputError, match="noise, 'learned' or 'none' or "):
        Campaign(CUBE, noise=noise)


def test_what_is_known_of_the_noise_reaches_the_surrogate() -> None:
    exact = Campaign(SQUARE, budget=50, noise="none", seed=0)
    assert exact.settings.surrogate is not None and exact.settings.surrogate["noise"] == "none"
    with pytest.raises(InputError, match="warped, trust_region"):
        Campaign(SQUARE, "hsgp", noise="none")
    known = told(Campaign(CUBE, acquisition="thompson", noise=0.25, **FAST), 3, 4)
    Yvar = known.state.observations.Yvar
    assert Yvar is not None and (Yvar == 0.25).all()


def test_a_search_of_another_family_is_refused() -> None:
    with pytest.raises(InputError, match="surrogate 'warped' for the acquisition function 'logei'"):
        Campaign(CUBE, "hsgp", "logei")
    with pytest.raises(InputError, match="'trust_region'"):
        Campaign(Pool(pd.DataFrame({"x": [1.0, 2.0]})), "trust_region", "trust_region")


def test_samples_choose_places_of_a_pool() -> None:
    pool = Pool(pd.DataFrame({"x0": np.linspace(0.0, 1.0, 60)}))
    run = told(Campaign(pool, acquisition="thompson", **FAST), 6, 4)
    assert len(run.trials()["place"].unique()) == 24
    assert abs(run.best()["x0"] - 0.4) < 0.05


def test_any_builder_is_given_what_it_asks_for() -> None:
    seen: list[set[str]] = []

    def build(model: Any, *, near: Tensor, bounds: Tensor, best_f: float) -> Any:
        from acquisitions import ThompsonSampling

        seen.append({f"{len(near)} near", f"{tuple(bounds.shape)}"})
        return ThompsonSampling(model, bounds, near=near, samples=2)

    told(Campaign(CUBE, acquisition=build, **FAST), 3, 4)
    assert seen[-1] == {"8 near", "(2, 3)"}


def test_the_start_is_one_sequence_however_it_is_asked_for() -> None:
    for surrogate in ("warped", "hsgp"):
        whole, parts = (Campaign(CUBE, surrogate, seed=3, budget=60) for _ in range(2))
        batches = [parts.ask(q) for q in (1, 4, 3)]
        pd.testing.assert_frame_equal(whole.ask(8), pd.concat(batches))


def test_statuses_follow_the_events() -> None:
    asked = {"kind": "asked", "trials": [[0, None, [0.1]], [1, None, [0.2]]], "by": None}
    failed = {"kind": "failed", "reasons": [[1, "broken"]]}
    history = TrialHistory().extended([asked, failed])
    assert [t.id for t in history.with_status("running")] == [0]
    assert [t.id for t in history.with_status("failed")] == [1]
    late = history.extended([{"kind": "told", "trials": [], "values": [[1, 2.0, None]]}])
    assert not late.with_status("failed") and late.trials[1].reason is None and late.num_told == 1


def test_a_view_has_the_points_of_the_best_outcomes() -> None:
    views: list[View] = []
    run = Campaign(CUBE, acquisition="thompson", **FAST)
    (stage,) = run.state.engine.stages

    class Looking(Rule):
        def propose(self, view: View, q: int) -> Proposal:
            views.append(view)
            return stage.rule.propose(view, q)

    run.state.engine.stages = (replace(stage, rule=Looking()),)
    told(run, 5, 6)
    before = run.trials().iloc[:24]
    best = before.nlargest(16, "y")[["x0", "x1", "x2"]].to_numpy()
    np.testing.assert_allclose(views[-1].data.best().numpy(), best)
    assert len(views[-1].data.X) == 24
