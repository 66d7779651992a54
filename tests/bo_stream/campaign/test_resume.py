"""A resumed campaign continues as if it had not been interrupted, also in several processes."""

from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("sqlalchemy")


from bo_stream import Box, Campaign
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import StateError
from tests.bo_stream.campaign.runs import alter

PLACES = pd.DataFrame({"x": np.linspace(0.0, 4.0, 9)})


def begun(url: str | Database, **options: Any) -> Campaign:
    return Campaign(
        Box({"x": (0.0, 4.0)}),
        {"name": "wiski", "grid_size": 12},
        "qlogei",
        goal="minimise",
        store=url,
        seed=1,
        optimiser=Optimiser(2, 16),
        **options,
    )


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(y=np.sin(3.0 * frame["x"]) + 0.1 * frame["x"])


def steps(campaign: Campaign, count: int) -> Campaign:
    for _ in range(count):
        campaign.tell(measured(campaign.ask()))
    return campaign


def spread(count: int) -> Iterator[pd.DataFrame]:
    for x in np.linspace(0.01, 3.99, count):
        yield measured(pd.DataFrame({"x": [x]}))


def test_a_region_of_trials_is_resumed(url: str, tmp_path: Path) -> None:
    def asked(store: str, resumed: bool) -> pd.DataFrame:
        given: dict[str, Any] = {"surrogate": "hsgp", "acquisition": "thompson", "seed": 0}
        campaign = Campaign(Box({"x": (0.0, 4.0)}), goal="minimise", store=store, **given)
        X = np.random.default_rng(0).random(1200) * 4.0
        noise = np.random.default_rng(1).standard_normal(1200)
        campaign.tell(pd.DataFrame({"x": X, "y": (X - 1.3) ** 2 + noise}))
        campaign.ask(20)
        region = campaign.state.engine.region
        assert region is not None and abs(float(region[0, 0]) - 1.3) < 0.2
        return (Campaign.resume(store) if resumed else campaign).ask(300)

    whole = asked(f"sqlite:///{tmp_path}/undisturbed.db", resumed=False)
    pd.testing.assert_frame_equal(asked(url, resumed=True), whole, check_exact=True)


def test_resumed_before_every_ask_and_tell_it_goes_on_bit_for_bit(url: str, tmp_path: Path) -> None:
    fit = FitPolicy(every_step_until=2, then_every=8)
    frequent = {"snapshot_every": 3}  # snapshots between fits, too
    undisturbed = begun(Database(f"sqlite:///{tmp_path}/undisturbed.db", **frequent), fit=fit)
    steps(undisturbed, 9)
    begun(Database(url, **frequent), fit=fit)
    for _ in range(9):
        batch = Campaign.resume(Database(url, **frequent)).ask()
        Campaign.resume(Database(url, **frequent)).tell(measured(batch))
    resumed = Campaign.resume(url)
    pd.testing.assert_frame_equal(resumed.trials(), undisturbed.trials(), check_exact=True)
    assert resumed.model is not None and undisturbed.model is not None
    ours, theirs = (c.model.state_dict() for c in (resumed, undisturbed))
    assert all(torch.equal(v, theirs[k]) for k, v in ours.items() if isinstance(v, torch.Tensor))
    apart = (resumed.predict(PLACES) - undisturbed.predict(PLACES)).abs()
    assert apart.max(axis=None) <= 1e-10
    mine, whole = (
        astuple(s) for s in (c.state.engine.learners["y"].surprise for c in (resumed, undisturbed))
    )
    assert mine == pytest.approx(whole, rel=1e-9) and mine[0] > 0


def test_fits_keep_their_schedule_over_a_resume(tmp_path: Path) -> None:
    fits = []
    for resuming in (False, True):
        url = f"sqlite:///{tmp_path}/{resuming}.db"
        campaign = begun(url, fit=FitPolicy(every_step_until=2, then_every=3))
        numbers = []
        for _ in range(12):
            if resuming:
                campaign = Campaign.resume(url)
                assert campaign.ledger.row["fit_evaluations"] == 0
            steps(campaign, 1)
            numbers.append(campaign.ledger.store.newest_snapshot("campaign"))
        fits.append(numbers)
    assert fits[0] == fits[1]
    assert fits[0] == [0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 4, 4]


def test_resuming_neither_fits_nor_replays_from_the_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/oven.db"
    campaign = begun(Database(url, snapshot_every=10), initial=4)
    for batch in list(spread(4 + 10 + 3))[::-1]:
        campaign.tell(batch)
        if len(campaign.trials()) == 4:
            campaign.state.update()
    resumed = Campaign.resume(url)
    assert resumed.ledger.row["fit_evaluations"] == 0
    assert resumed.ledger.store.newest_snapshot("campaign") == 2
    newest = next(resumed.ledger.store.snapshots("campaign"))
    assert newest.about["parts"]["y"]["told"] == 4 + 10
    assert resumed.model is not None and resumed.model.num_observed == 4 + 10 + 3
    assert (resumed.predict(PLACES) - campaign.predict(PLACES)).abs().max(axis=None) < 1e-10


def test_a_damaged_snapshot_costs_no_outcome(url: str) -> None:
    campaign = steps(begun(url), 8)
    newest = campaign.ledger.store.newest_snapshot("campaign")
    alter(url, f"UPDATE snapshots SET checksum = 'x' WHERE number = {newest}")
    with pytest.warns(UserWarning, match=f"Snapshot {newest} .* is damaged"):
        resumed = Campaign.resume(url)
        assert resumed.model is not None and resumed.model.num_observed == 8
    pd.testing.assert_frame_equal(resumed.trials(), campaign.trials())
    steps(resumed, 1)  # and it goes on, with a new snapshot
    assert Campaign.resume(url).model.num_observed == 9  # type: ignore[union-attr]


def test_without_any_good_snapshot_the_surrogate_is_built_anew(url: str) -> None:
    steps(begun(url), 8)
    alter(url, "UPDATE snapshots SET checksum = 'x'")
    with pytest.warns(UserWarning, match="is damaged"):
        resumed = Campaign.resume(url)
        assert resumed.model is None
    steps(resumed, 1)
    assert resumed.model.num_observed == 9  # type: ignore[union-attr]


def test_what_one_learns_another_knows(url: str) -> None:
    one, other = begun(url), begun(url)
    steps(one, 6)
    one.state.update()
    pd.testing.assert_frame_equal(other.trials(), one.trials())
    pd.testing.assert_frame_equal(other.predict(PLACES), one.predict(PLACES), check_exact=True)
    assert one.ledger.row["fit_evaluations"] > 0 and other.ledger.row["fit_evaluations"] == 0


def test_both_ask_and_get_different_trials(url: str) -> None:
    one, other = begun(url), begun(url)
    steps(one, 5)
    batches = [one.ask(2), other.ask(2), one.ask(), other.ask()]
    trials = pd.concat(batches)
    assert trials.index.tolist() == [5, 6, 7, 8, 9, 10]
    assert trials["x"].round(9).is_unique


def test_both_tell_one_trial_and_it_is_taken_once(url: str) -> None:
    one, other = begun(url), begun(url)
    batch = measured(one.ask(2))
    other.trials()
    one.tell(batch)
    other.tell(batch)
    with pytest.raises(StateError, match="trial 0 was told before"):
        other.tell(batch.assign(y=batch["y"] + 1.0))
    told = [e for e in one.ledger.store.events_since("campaign", 0) if e["kind"] == "told"]
    assert len(told) == 1 and len(other.trials()) == 2


def test_a_name_on_another_space_is_refused_and_the_file_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/oven.db"
    steps(begun(url), 2)
    before = (tmp_path / "oven.db").read_bytes()
    with pytest.raises(StateError, match="another space"):
        Campaign(Box({"x": (0.0, 5.0)}), goal="minimise", store=url)
    with pytest.raises(StateError, match="'oven'.*'campaign'"):
        Campaign.resume(url, "oven")
    assert (tmp_path / "oven.db").read_bytes() == before


def test_two_that_create_one_campaign_at_once_share_its_seed(tmp_path: Path) -> None:
    class Late(Database):
        """Looks for the campaign just before another process creates it."""

        def settings(self, name: str) -> Any:
            return super().settings(name) if self.names() else _begin(url)

    url = f"sqlite:///{tmp_path}/oven.db"
    mine = Campaign(Box({"x": (0.0, 4.0)}), store=Late(url))
    assert mine.settings.seed == Campaign.resume(url).settings.seed


def _begin(url: str) -> None:
    Campaign(Box({"x": (0.0, 4.0)}), store=url)
