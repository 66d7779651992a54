"""Mistakes can be mended: afterwards the surrogate is the one that would have been."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.effort import FitPolicy
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import (
    BoundsError,
    BudgetError,
    InputError,
    StateError,
    UnsupportedError,
)
from tests.bo_stream.campaign.runs import CHEAP, box

BOX = Box({"x": (0.0, 4.0), "z": (-1.0, 1.0)})
NEVER = FitPolicy(then_every=0)


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.uniform(0.0, 4.0, n), "z": rng.uniform(-1.0, 1.0, n)})
    return frame.assign(y=np.sin(2.0 * frame["x"]) + frame["z"] ** 2)


def told(
    frame: pd.DataFrame, surrogate: Any, like: Campaign | None = None, **options: Any
) -> Campaign:
    """A campaign told one row at a time; with the hyperparameters of another one from the start."""
    campaign = Campaign(
        BOX, surrogate, "random", seed=0, initial=8, fit=NEVER, optimiser=CHEAP, **options
    )
    for i in range(len(frame)):
        campaign.tell(frame.iloc[[i]].reset_index(drop=True))
        if i == 8:
            campaign.state.update()
            if like is not None:
                take_hyperparameters(campaign, like)
    return campaign


def take_hyperparameters(campaign: Campaign, like: Campaign) -> None:
    mine, theirs = campaign.model, like.model
    assert mine is not None and theirs is not None
    values = dict(theirs.named_parameters())
    for name, parameter in mine.named_parameters():
        parameter.data.copy_(values[name].data)


def apart(a: Campaign, b: Campaign) -> float:
    X = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X = X * torch.tensor([4.0, 2.0]) + torch.tensor([0.0, -1.0])
    p, q = (campaign.model.posterior(X) for campaign in (a, b))
    assert a.model.num_observed == b.model.num_observed
    return float(max((p.mean - q.mean).abs().max(), (p.variance - q.variance).abs().max()))


FAMILIES = [
    {"name": "hsgp", "num_features": 40},
    "exact",
    pytest.param({"name": "wiski", "grid_size": 12}, marks=pytest.mark.slow),
    pytest.param("node_wiski", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("surrogate", FAMILIES, ids=str)
def test_after_an_amendment_the_surrogate_is_that_of_the_right_outcomes(surrogate: Any) -> None:
    right = rows(20)
    wrong = right.copy()
    wrong.loc[[3, 12], "y"] = [40.0, -7.0]
    campaign = told(wrong, surrogate)
    assert campaign.model is not None
    before = campaign.model.posterior(torch.zeros(1, 2, dtype=torch.float64)).mean.item()
    campaign.amend(right.loc[[3, 12], ["y"]].rename_axis("trial"))
    assert campaign.trials()["y"].tolist() == right["y"].tolist()
    assert campaign.model.posterior(torch.zeros(1, 2, dtype=torch.float64)).mean.item() != before
    assert apart(campaign, told(right, surrogate, campaign)) < 1e-10


@pytest.mark.parametrize("surrogate", FAMILIES, ids=str)
def test_after_a_withdrawal_the_surrogate_is_that_of_the_rest(surrogate: Any) -> None:
    frame = rows(20)
    bad = pd.DataFrame({"x": [1.0, 1.1], "z": [0.0, 0.1], "y": [90.0, 80.0]})
    frame = pd.concat([frame[:5], bad[:1], frame[5:12], bad[1:], frame[12:]], ignore_index=True)
    campaign = told(frame, surrogate)
    campaign.withdraw([5, 13], "the probe was loose")
    trials = campaign.trials()
    assert trials["status"].value_counts().to_dict() == {"told": 20, "withdrawn": 2}
    assert trials.loc[[5, 13], "reason"].tolist() == ["the probe was loose"] * 2
    # the right campaign builds its surrogate from the same rows, told one at a time, too
    kept = frame.drop(index=[5, 13]).reset_index(drop=True)
    right = Campaign(BOX, surrogate, "random", seed=0, initial=8, fit=NEVER, optimiser=CHEAP)
    for i in range(len(kept)):
        right.tell(kept.iloc[[i]].reset_index(drop=True))
        if i == 7:
            right.state.update()
            take_hyperparameters(right, campaign)
    assert apart(campaign, right) < 1e-10
    assert len(campaign.state.observations.X) == 20


def test_a_correction_of_the_only_batch_builds_the_surrogate_anew() -> None:
    right = rows(20)
    wrong = right.assign(y=right["y"].where(right.index != 4, 1e4))
    campaigns = []
    for frame in (wrong, right):
        campaign = Campaign(BOX, {"name": "hsgp", "num_features": 24}, "random", seed=0, initial=8)
        campaign.tell(frame)
        campaign.state.update()
        campaigns.append(campaign)
    campaigns[0].amend(right.loc[[4], ["y"]].rename_axis("trial"))
    predictions = [campaign.predict(right[["x", "z"]]) for campaign in campaigns]
    pd.testing.assert_frame_equal(*predictions, rtol=0.0, atol=0.0)


def test_a_fit_follows_a_correction_where_the_schedule_has_one() -> None:
    campaign = box(initial=4)
    for x in np.linspace(0.0, 4.0, 12):
        campaign.tell(pd.DataFrame({"x": [x], "y": [np.sin(x) if x != 4.0 else 500.0]}))
        campaign.state.update()
    spent = campaign.ledger.row["fit_evaluations"]
    campaign.amend(pd.DataFrame({"y": [np.sin(4.0)]}, pd.Index([11], name="trial")))
    error = campaign.predict(pd.DataFrame({"x": [2.0]}))["mean"] - np.sin(2.0)
    assert campaign.ledger.row["fit_evaluations"] > spent and abs(float(error[0])) < 0.05


def test_a_withdrawn_trial_can_be_taken_back() -> None:
    frame = rows(12)
    campaign = told(frame, "exact")
    campaign.withdraw(3, "suspicious")
    campaign.withdraw([3], "suspicious")  # twice is once
    assert campaign.ledger.store.events_since("campaign", 0)[-2]["kind"] == "told"
    campaign.tell(frame.loc[[3]].rename_axis("trial"))  # a file that is told again changes nothing
    assert campaign.trials().loc[3, "status"] == "withdrawn"
    with pytest.raises(StateError, match="withdrawn.*amend"):
        campaign.tell(frame.loc[[3]].assign(y=9.0).rename_axis("trial"))
    campaign.amend(frame.loc[[3], ["y"]].rename_axis("trial"))
    assert campaign.trials().loc[3, ["status", "reason"]].isna().tolist() == [False, True]
    assert len(campaign.state.observations.X) == campaign.model.num_observed == 12  # type: ignore[union-attr]


def test_the_ledger_keeps_what_was_told_before() -> None:
    campaign = told(rows(10), "exact")
    y = campaign.trials().loc[2, "y"]
    campaign.amend(pd.DataFrame({"trial": [2], "y": [5.0]}))
    campaign.withdraw(7, "spilled")
    campaign.widen({"x": (-1.0, 5.0)})
    campaign.change(budget=40)
    amended, withdrawn, widened, changed = campaign.ledger.store.events_since("campaign", 10)
    assert amended["outcomes"] == {"y": [(2, 5.0, None)]}
    assert withdrawn["reasons"] == [[7, "spilled"]]
    assert widened["settings"]["space"]["bounds"][0] == ["x", -1.0, 5.0]
    assert changed["settings"] == {"budget": 40}
    with pytest.raises(StateError, match=r"trial 2 was told before, 5.0.*amend"):
        campaign.tell(pd.DataFrame({"trial": [2], "y": [y]}))


def test_noise_variances_and_other_columns_are_amended_alone() -> None:
    campaign = box(initial=2)
    campaign.tell(pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [1.0, 2.0, 3.0], "yvar": 0.1}))
    campaign.amend(pd.DataFrame({"trial": [1], "yvar": [4.0]}))
    assert campaign.trials().loc[1, ["y", "yvar"]].tolist() == [2.0, 4.0]
    with pytest.raises(StateError, match=r"2.0 with variance 4.0; got 2.0 with variance 0.1"):
        campaign.tell(pd.DataFrame({"trial": [1], "y": [2.0], "yvar": [0.1]}))
    assert campaign.state.observations.Yvar[:, 0].tolist() == [0.1, 4.0, 0.1]  # type: ignore[index]
    campaign.amend(pd.DataFrame({"trial": [1], "y": [2.5]}))
    assert campaign.trials().loc[1, ["y", "yvar"]].tolist() == [2.5, 4.0]


def test_counts_are_amended() -> None:
    outcome = {"column": "k", "likelihood": "binomial", "trials": "n"}
    campaign = Campaign(BOX, goal="learn", seed=0, initial=6, outcome=outcome)
    frame = rows(9)[["x", "z"]].assign(k=3, n=10)
    campaign.tell(frame)
    campaign.state.update()
    campaign.amend(pd.DataFrame({"trial": [4], "k": [9]}))
    assert campaign.trials().loc[4, ["k", "n"]].tolist() == [9.0, 10.0]
    campaign.withdraw(0, "lost")
    assert len(campaign.predict(frame[["x", "z"]])) == 9
    assert campaign.model is not None and campaign.model.num_observed == 8


@pytest.mark.parametrize(
    ("frame", "error", "says"),
    [
        (pd.DataFrame({"x": [0.1], "y": [1.0]}), InputError, "trial ids"),
        (pd.DataFrame({"trial": [0]}), InputError, "a column among y, yvar"),
        (pd.DataFrame({"trial": [9], "y": [1.0]}), InputError, "trial ids, 0 to 2"),
        (pd.DataFrame({"trial": [2], "y": [1.0]}), StateError, r"trial 2.*Tell it"),
        (pd.DataFrame({"trial": [0], "y": [np.nan]}), InputError, "outcome in every row"),
        (pd.DataFrame({"trial": [0], "y": [1.0], "yvar": [0.1]}), InputError, "without"),
        (pd.DataFrame({"trial": [0], "x": [3.0], "y": [1.0]}), InputError, "'x' = 1, as trial 0"),
    ],
)
def test_amendments_that_do_not_fit(frame: pd.DataFrame, error: Any, says: str) -> None:
    campaign = box()
    campaign.tell(pd.DataFrame({"x": [1.0, 2.0], "y": [0.0, 1.0]}))
    campaign.ask()
    events = campaign.ledger.store.events_since("campaign", 0)
    with pytest.raises(error, match=says):
        campaign.amend(frame)
    assert campaign.ledger.store.events_since("campaign", 0) == events


def test_a_withdrawn_place_is_measured_again_and_counts_in_the_budget() -> None:
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 5.0]})
    campaign = Campaign(Pool(table), "exact", seed=0, initial=4, budget=4)
    batch = campaign.ask(3)
    campaign.tell(batch.assign(y=1.0))
    assert len(campaign.state.free_places) == 0
    campaign.withdraw(int(batch.index[1]), "wrong sample")
    assert len(campaign.state.free_places) == 1
    again = campaign.ask()
    assert again["place"].tolist() == [batch["place"].iloc[1]]
    with pytest.raises(BudgetError):
        campaign.ask()


def test_running_and_failed_trials_are_withdrawn() -> None:
    campaign = box()
    campaign.ask(3)
    campaign.fail(1, "broken")
    campaign.withdraw([0, 1], "never mind")
    assert campaign.trials()["status"].tolist() == ["withdrawn", "withdrawn", "running"]
    assert campaign.running().index.tolist() == [2]
    with pytest.raises(StateError, match="withdrawn"):
        campaign.tell(pd.DataFrame({"trial": [0], "y": [1.0]}))
    with pytest.raises(StateError):
        campaign.fail(0, "again")


# -- bounds and settings --------------------------------------------------------------------------


def test_a_box_is_widened() -> None:
    campaign = told(rows(12), {"name": "wiski", "grid_size": 12})
    outside = pd.DataFrame({"x": [5.0], "z": [0.0], "y": [2.0]})
    with pytest.raises(BoundsError):
        campaign.tell(outside)
    campaign.widen({"x": (0.0, 6.0)})
    campaign.tell(outside)
    assert dict(campaign.space.bounds) == {"x": (0.0, 6.0), "z": (-1.0, 1.0)}  # type: ignore[union-attr]
    campaign.state.update()
    assert campaign.model is not None and campaign.model.bounds[1, 0] == 6.0  # type: ignore[index]
    assert campaign.model.num_observed == 13
    assert campaign.ask(20)["x"].max() > 4.0


def test_bounds_that_are_not_wider_are_refused() -> None:
    campaign = box()
    for bounds, error in (
        ({"x": (1.0, 5.0)}, BoundsError),
        ({"w": (1.0, 5.0)}, InputError),
        ({"x": (9.0, -9.0)}, InputError),
        ({}, InputError),
    ):
        with pytest.raises(error):
            campaign.widen(bounds)
    campaign.widen({"x": (0.0, 4.0)})  # as before
    assert not campaign.ledger.store.events_since("campaign", 0)
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0]})
    with pytest.raises(UnsupportedError, match="a pool"):
        Campaign(Pool(table)).widen({"a": (0.0, 9.0)})


def test_settings_are_changed() -> None:
    campaign = box(surrogate=None, acquisition=None, initial=4, budget=20)
    campaign.tell(pd.DataFrame({"x": np.linspace(0.0, 4.0, 6), "y": np.arange(6.0)}))
    campaign.state.update()
    assert type(campaign.model).__name__ == "WarpedGP"
    assert campaign.settings.acquisition == {"name": "logei"}
    campaign.change(surrogate={"name": "wiski", "grid_size": 12})
    assert campaign.settings.acquisition == {"name": "qlogei"}  # `logei` belongs to the other one
    assert campaign.settings.fit.growth == 1.3
    campaign.ask()
    assert type(campaign.model).__name__ == "WISKI" and campaign.model.num_observed == 6  # type: ignore[union-attr]
    campaign.change(acquisition="thompson", budget=9, fit=FitPolicy(then_every=3))
    assert campaign.settings.acquisition == {"name": "thompson"} and campaign.remaining == 2
    campaign.ask(2)
    assert campaign.remaining == 0
    campaign.change(budget=8 + 2)
    assert campaign.remaining == 1


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"surrogate": "none of them"},
        {"surrogate": {"name": "wiski", "wings": 2}},
        {"acquisition": "luck"},
        {"acquisition": "trust_region"},
        {"surrogate": lambda *args: None},
        {"budget": 1},
        {"budget": 2.5},
        {"fit": "often"},
    ],
)
def test_changes_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    campaign = box()
    campaign.ask(2)
    with pytest.raises(InputError):
        campaign.change(**change)
    assert len(campaign.ledger.store.events_since("campaign", 0)) == 1
    assert campaign.remaining == np.inf


# -- other processes ------------------------------------------------------------------------------


def test_another_process_follows() -> None:
    store = MemoryStore()
    options: dict[str, Any] = {"surrogate": {"name": "wiski", "grid_size": 12}, "initial": 4}
    one, other = box(store, **options), box(store, **options)
    one.tell(pd.DataFrame({"x": np.linspace(0.0, 4.0, 8), "y": np.arange(8.0)}))
    other.state.update()
    one.amend(pd.DataFrame({"trial": [2], "y": [9.0]}))
    one.withdraw(3, "a leak")
    one.widen({"x": (-2.0, 6.0)})
    one.change(budget=30, acquisition="random")
    assert other.remaining == 22  # before anything else has read the change
    assert other.trials()["status"].tolist().count("withdrawn") == 1
    assert other.settings.acquisition == {"name": "random"}
    one.change(budget=31)
    assert repr(other).endswith("7 of 31 told>")
    other.ask()
    assert other.model is not None and other.model.num_observed == 7
    assert float(other.model.bounds[0, 0]) == -2.0  # type: ignore[index]
    assert other.settings == one.settings


CORRECTIONS = {
    "amend": lambda c: c.amend(pd.DataFrame({"trial": [2], "y": [0.3]})),
    "withdraw": lambda c: c.withdraw([1, 6], "a leak"),
    "widen": lambda c: c.widen({"x": (-2.0, 6.0)}),
    "change": lambda c: c.change(surrogate="exact"),
}


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize(
    "resumed", ["twice", *(pytest.param(w, marks=pytest.mark.slow) for w in ("before", "after"))]
)
def test_a_resumed_campaign_goes_on_as_an_undisturbed_one(
    tmp_path: Path, correction: str, resumed: str
) -> None:
    pytest.importorskip("sqlalchemy")

    def run(url: str, again: Any) -> Campaign:
        campaign = Campaign(
            Box({"x": (0.0, 4.0)}),
            {"name": "hsgp", "num_features": 24},
            "qlogei",
            store=url,
            seed=1,
            initial=5,
            fit=FitPolicy(then_every=2, max_evals=4),
            optimiser=CHEAP,
        )
        for i in range(9):
            if i == 7:
                campaign = again(campaign, "before")
                CORRECTIONS[correction](campaign)
                campaign = again(campaign, "after")
            batch = campaign.ask()
            campaign.tell(batch.assign(y=np.sin(3.0 * batch["x"])))
        return campaign

    def again(campaign: Campaign, when: str) -> Campaign:
        if resumed not in (when, "twice"):
            return campaign
        return Campaign.resume(campaign.ledger.store)

    undisturbed = run(f"sqlite:///{tmp_path}/a.db", lambda campaign, when: campaign)
    disturbed = run(f"sqlite:///{tmp_path}/b.db", again)
    assert disturbed.trials().equals(undisturbed.trials())  # to the last bit


def test_a_snapshot_of_before_a_correction_is_corrected(tmp_path: Path) -> None:
    """Killed between the event and the next snapshot, the surrogate is the corrected one."""
    pytest.importorskip("sqlalchemy")
    from bo_stream.campaign.storage.sql_store import Database

    class Killed(Database):
        def save_snapshot(self, *args: Any) -> int:
            if self.names() and any(
                event["kind"] == "withdrawn" for event in self.events_since("campaign", 0)
            ):
                raise KeyboardInterrupt
            return super().save_snapshot(*args)

    url = f"sqlite:///{tmp_path}/oven.db"
    campaign = told(rows(20), {"name": "wiski", "grid_size": 12}, store=Killed(url))
    with pytest.raises(KeyboardInterrupt):
        campaign.withdraw(13, "a leak")
    resumed = Campaign.resume(url)
    assert resumed.model is not None and resumed.model.num_observed == 19
    assert apart(campaign, resumed) == 0.0
