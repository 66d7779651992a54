"""A damaged store is read with all its trials, or refused with an error that names what is lost."""

import random
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.campaign.storage.sql_store import check_store
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
    campaign.ledger.store.close()  # type: ignore[attr-defined]
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
        named = ("check", "None of its trials", "none of its trials", "of version")
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


@pytest.fixture
def copy(tmp_path: Path, whole: tuple[Path, pd.DataFrame]) -> Path:
    shutil.copy(whole[0], tmp_path / "oven.db")
    return tmp_path / "oven.db"


def test_a_whole_store(copy: Path) -> None:
    assert check_store(f"sqlite:///{copy}") == {"campaign": ""}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE events SET payload = '{}' WHERE number = 8", "event 8 of"),
        ("UPDATE events SET payload = 'x' WHERE number = 8", "event 8 of"),
        ('UPDATE events SET payload = \'{"kind": "told"}\' WHERE number = 8', "event 8 of"),
        ("DELETE FROM events WHERE number = 8", "event 8 of"),
        ("UPDATE events SET number = 900 WHERE number = 82", "event 82 of"),
        ("UPDATE campaigns SET settings = replace(settings, ': 8,', ': 9,')", "damaged settings"),
    ],
)
def test_what_is_lost_is_named(copy: Path, damage: str, says: str) -> None:
    alter(f"sqlite:///{copy}", "PRAGMA foreign_keys=OFF")
    alter(f"sqlite:///{copy}", damage)
    with pytest.raises(StateError, match=says):
        Campaign.resume(f"sqlite:///{copy}").trials()
    assert says in check_store(f"sqlite:///{copy}")["campaign"]


def test_campaigns_of_earlier_releases_have_no_checksums(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    campaign = Campaign(Box({"x": (0.0, 4.0)}), store=url, seed=0)
    campaign.ask(2)
    sql = "json_remove({0}, '$.checksum')"
    alter(url, f"UPDATE campaigns SET settings = {sql.format('settings')}")
    alter(url, f"UPDATE events SET payload = {sql.format('payload')}")
    again = Campaign.resume(url)
    again.tell(pd.DataFrame({"trial": [0, 1], "y": [1.0, 2.0]}))
    assert Campaign.resume(url).trials()["y"].tolist() == [1.0, 2.0]


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
