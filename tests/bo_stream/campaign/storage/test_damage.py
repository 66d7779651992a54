"""A damaged store is read with all its trials, or refused with an error that names what is lost."""

import random
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.campaign.storage.damage import CampaignScan
from bo_stream.campaign.storage.salvage import check_store, salvage
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import StateError
from tests.bo_stream.campaign.runs import CHEAP, alter

COPIES = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """The file of a campaign, closed, and its trials."""
    path = tmp_path_factory.mktemp("whole") / "oven.db"
    campaign = Campaign(
        Box({"x": (0.0, 4.0), "z": (0.0, 1.0)}),
        {"name": "exact"},
        "random",
        store=f"sqlite:///{path}",
        seed=0,
        initial=8,
        optimiser=CHEAP,
    )
    for i in range(40):
        batch = campaign.ask()
        if i % 9 == 4:
            campaign.fail(batch.index, "the oven was off")
        else:
            campaign.tell(batch.assign(y=batch["x"] - batch["z"]))
    campaign.amend(pd.DataFrame({"trial": [2], "y": [0.5]}))
    campaign.withdraw(5, "a leak")
    trials = campaign.trials()
    campaign.store.close()  # type: ignore[attr-defined]
    return path, trials


def overwritten(path: Path, copy: Path, seed: int, block: int = 64) -> None:
    """A copy with random bytes at a random place."""
    data, rng = bytearray(path.read_bytes()), random.Random(seed)
    place = rng.randrange(len(data) - block)
    data[place : place + block] = rng.randbytes(block)
    copy.write_bytes(bytes(data))


def outcome(copy: Path, trials: pd.DataFrame) -> str:
    """Whether a copy is read with all its trials or refused; anything else fails."""
    try:
        with warnings.catch_warnings(action="ignore"):
            campaign = Campaign.resume(f"sqlite:///{copy}")
            found = campaign.trials()
    except StateError as error:
        named = ("lost", "None of its trials", "none of its trials", "of version")
        assert any(words in str(error) for words in named), error
        return "refused"
    pd.testing.assert_frame_equal(found, trials)
    return "read"


@pytest.mark.parametrize(
    "seeds",
    [range(COPIES), pytest.param(range(COPIES, 400), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_a_damaged_copy_is_read_whole_or_refused(
    tmp_path: Path, whole: tuple[Path, pd.DataFrame], seeds: range
) -> None:
    path, trials = whole
    found = []
    for seed in seeds:
        copy = tmp_path / f"{seed}.db"
        overwritten(path, copy, seed)
        found.append(outcome(copy, trials))
        for file in tmp_path.iterdir():
            file.unlink()
    assert {"read", "refused"} <= set(found)


# -- what is lost, and what is saved --------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path, whole: tuple[Path, pd.DataFrame]) -> Path:
    shutil.copy(whole[0], tmp_path / "oven.db")
    return tmp_path / "oven.db"


def scanned(copy: Path) -> CampaignScan:
    (scan,) = check_store(f"sqlite:///{copy}")
    return scan


def test_a_whole_store(copy: Path, whole: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    scan = scanned(copy)
    assert scan.whole and len(scan.events) == 82
    new = f"sqlite:///{tmp_path}/new.db"
    assert salvage([scan], new) == []
    pd.testing.assert_frame_equal(Campaign.resume(new).trials(), whole[1])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE events SET payload = '{}' WHERE number = 8", "events 8 of 82"),
        ("UPDATE events SET payload = 'x' WHERE number = 8", "events 8 of 82"),
        ("DELETE FROM events WHERE number = 8", "events 8 of 82"),
        ("UPDATE events SET campaign = 'other' WHERE number = 82", "campaign 'other'"),
        ("UPDATE events SET number = 900 WHERE number = 82", "events 82, 83"),
        ("UPDATE campaigns SET settings = replace(settings, ': 8,', ': 9,')", "its settings"),
        ("UPDATE campaigns SET name = 'other'", "campaign 'campaign' has lost its settings"),
    ],
)
def test_what_is_lost_is_named(copy: Path, damage: str, says: str) -> None:
    alter(f"sqlite:///{copy}", "PRAGMA foreign_keys=OFF")
    alter(f"sqlite:///{copy}", damage)
    with pytest.raises(StateError, match=says):
        Campaign.resume(f"sqlite:///{copy}").trials()
    assert not all(scan.whole for scan in check_store(f"sqlite:///{copy}"))


def test_what_is_whole_is_saved(
    copy: Path, whole: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    trials = whole[1]
    # trials 3 (asked in event 7, told in 8) and 6 (asked in event 13, told in 14)
    alter(f"sqlite:///{copy}", "UPDATE events SET payload = 'x' WHERE number IN (8, 13)")
    scan = scanned(copy)
    assert scan.unknown_trials() == [6] and scan.doubtful_trials() == [3]
    notes = salvage([scan], f"sqlite:///{tmp_path}/new.db")
    assert any("The inputs of trials 6 to 6 are lost" in note for note in notes)
    assert any("Trial 6 was told" in note for note in notes)
    campaign = Campaign.resume(f"sqlite:///{tmp_path}/new.db")
    found = campaign.trials()
    assert found.index.tolist() == trials.index.tolist()
    assert found.loc[[3, 6], "status"].tolist() == ["running", "withdrawn"]
    others = trials.index.drop([3, 6])
    columns = ["x", "z", "y", "status", "reason"]
    pd.testing.assert_frame_equal(found.loc[others, columns], trials.loc[others, columns])
    assert "Lost" in found.loc[6, "reason"]
    campaign.ask()


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(300), marks=pytest.mark.slow)])
def test_salvage_never_fails(
    tmp_path: Path, whole: tuple[Path, pd.DataFrame], seeds: range
) -> None:
    path, trials = whole
    for seed in seeds:
        copy, new = tmp_path / "copy.db", tmp_path / "new.db"
        overwritten(path, copy, seed, block=2000)
        try:
            scans = check_store(f"sqlite:///{copy}")
        except StateError:
            continue
        salvage(scans, f"sqlite:///{new}")
        names = Database(f"sqlite:///{new}").names() if new.exists() else []
        if names:
            found = Campaign.resume(f"sqlite:///{new}", names[0]).trials()
            told = found[found["status"] == "told"]
            same = trials.loc[told.index, ["x", "z"]]
            pd.testing.assert_frame_equal(told[["x", "z"]], same)
        new.unlink(missing_ok=True)


def test_checksums_are_made_for_campaigns_of_earlier_releases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    campaign = Campaign(Box({"x": (0.0, 4.0)}), store=url, seed=0)
    campaign.ask(2)
    sql = "json_remove({0}, '$.checksum')"
    alter(url, f"UPDATE campaigns SET settings = {sql.format('settings')}")
    alter(url, f"UPDATE events SET payload = {sql.format('payload')}")
    again = Campaign.resume(url)
    again.tell(pd.DataFrame({"trial": [0, 1], "y": [1.0, 2.0]}))
    assert Campaign.resume(url).trials()["y"].tolist() == [1.0, 2.0]
    again.ask()
    alter(url, f"UPDATE events SET payload = {sql.format('payload')} WHERE number = 3")
    with pytest.raises(StateError, match="events 3 of 3"):  # all have one after the first
        Campaign.resume(url)


# -- a full disk ----------------------------------------------------------------------------------


def test_a_full_disk_costs_nothing_that_was_told(tmp_path: Path) -> None:
    """The size of files is limited for a while, as by a quota."""
    resource = pytest.importorskip("resource")
    url = f"sqlite:///{tmp_path}/oven.db"
    campaign = Campaign(Box({"x": (0.0, 4.0)}), "exact", "random", store=url, seed=0, initial=99)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    frame = pd.DataFrame({"x": [i / 100 for i in range(200)], "y": 1.0})
    told = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        with pytest.raises(StateError, match="told before is kept|disk"):
            for _ in range(200):
                campaign.tell(frame)
                told += len(frame)
        assert 0 < told == len(campaign.trials())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    campaign.tell(frame)  # there is space again
    assert len(campaign.trials()) == told + 200
    assert len(Campaign.resume(url).trials()) == told + 200
