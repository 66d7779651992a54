"""Stores that earlier releases wrote are read on.

``old_store.db.gz`` has two campaigns, ``kiln`` with a snapshot and ``oven`` without, of four
outcomes, a running trial and a failed one each. The release that wrote it had no budgets in its
settings.
"""

import gzip
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")


from bo_stream import Box, Campaign
from bo_stream.base.fitting import Surprise
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import StateError
from tests.bo_stream.campaign.runs import alter

OLD = Path(__file__).with_name("old_store.db.gz")


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "old.db").write_bytes(gzip.decompress(OLD.read_bytes()))
    return f"sqlite:///{tmp_path}/old.db"


@pytest.mark.filterwarnings("ignore:Snapshot")
@pytest.mark.parametrize("name", ["kiln", "oven"])
def test_campaigns_of_an_old_store_are_continued(url: str, name: str) -> None:
    campaign = Campaign.resume(url, name)
    trials = campaign.trials()
    assert trials["status"].tolist() == ["told"] * 4 + ["failed", "running"]
    assert trials["reason"][4] == "the oven was off"
    assert campaign.budget is None and campaign.settings.initial == 3
    batch = campaign.ask()
    campaign.tell(batch.assign(y=1.0))
    assert batch.index.tolist() == [6]
    assert campaign.model is not None and campaign.model.num_observed == 5
    box = Box({"x": (0.0, 4.0)}, units={"x": "m"})
    again = Campaign(box, goal="minimise", store=url, name=name, budget=9)
    assert again.remaining == 2


def test_a_snapshot_that_cannot_be_read_costs_a_fit_but_no_outcome(url: str) -> None:
    number = Database(url).save_snapshot("kiln", {"told": 4}, b"of another release")
    alter(url, f"DELETE FROM snapshots WHERE number < {number}")
    with pytest.warns(UserWarning, match=f"Snapshot {number} .* No outcome is lost"):
        campaign = Campaign.resume(url, "kiln")
        assert campaign.model is None
    assert len(campaign.trials()) == 6
    campaign.ask()
    assert campaign.model is not None and campaign.model.num_observed == 4
    assert campaign.ledger.row["fit_evaluations"] > 0
    assert Campaign.resume(url, "kiln").model is not None  # from a new snapshot


def test_a_snapshot_with_another_sum_of_surprises_is_read() -> None:
    campaign = Campaign(Box({"x": (0.0, 4.0)}), "wiski", seed=0)
    for q in (4, 6):
        campaign.tell(campaign.ask(q).assign(y=lambda frame: frame["x"]))
    learner = campaign.state.engine.learners["y"]
    about, model = learner.dumps()
    count, total, variance = about["surprise"]
    learner.loads({**about, "surprise": [float(count), total, 0.5, variance]}, model)
    assert learner.surprise == Surprise(count, total, variance)


def test_a_family_that_is_gone_is_replaced_on_request(url: str) -> None:
    alter(url, "DELETE FROM snapshots")
    alter(url, """UPDATE campaigns SET settings = replace(settings, '"wiski"', '"gone"')""")
    with pytest.raises(StateError, match=r"'gone'.*Campaign.resume\(url, 'oven', surrogate="):
        Campaign.resume(url, "oven").ask()
    assert len(Campaign.resume(url, "oven").trials())  # for which no surrogate is needed
    campaign = Campaign.resume(url, "oven", surrogate="exact")
    campaign.state.update()
    assert type(campaign.model).__name__ == "ExactGP"


def test_settings_of_a_newer_release_are_refused(url: str) -> None:
    for change in ('"version": 1, "wings": 2', '"version": 2'):
        alter(
            url,
            f"""UPDATE campaigns SET settings = replace(settings,
            '"version": 1', '{change}') WHERE name = 'kiln'""",
        )
        with pytest.raises(StateError, match="or a newer one"):
            Campaign.resume(url, "kiln")
