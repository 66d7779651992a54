"""A copy of a store's file alone has its trials, or says which file is missing beside it."""

import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

from bo_stream import Box, Campaign

pytest.importorskip("sqlalchemy")

from bo_stream.campaign.storage.check import check_store
from bo_stream.campaign.storage.sql_store import Database

LINE = Box({"x": (0.0, 1.0)})


def begun(folder: Path) -> Campaign:
    return Campaign(LINE, store=f"sqlite:///{folder}/lab.db", name="lab", seed=0, initial=1000)


def tell(campaign: Campaign, number: int) -> None:
    frame = pd.DataFrame({"x": [0.5], "y": [1.0]})
    for _ in range(number):
        campaign.tell(frame)


def copy(folder: Path, name: str) -> str:
    shutil.copy(folder / "lab.db", folder / name)
    return f"sqlite:///{folder / name}"


def trials(url: str) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return len(Campaign.resume(url, "lab").trials())


def test_a_copy_of_an_open_store_has_every_trial(tmp_path: Path) -> None:
    campaign = begun(tmp_path)
    assert trials(copy(tmp_path, "0.db")) == 0
    tell(campaign, 5)
    assert trials(copy(tmp_path, "5.db")) == 5
    campaign.run(lambda row: 1.0, 7)
    assert trials(copy(tmp_path, "7.db")) == 7


def test_what_is_in_the_log_is_named_until_it_is_moved(tmp_path: Path) -> None:
    file, number = tmp_path / "lab.db", 0
    database = Database(f"sqlite:///{file}")
    database.create("lab", {})

    def append() -> None:
        nonlocal number
        with database.transaction("lab") as transaction:
            transaction.append({"kind": "asked", "trials": [[number, None, [0.5]]]})
        number += 1

    def events(url: str) -> int:
        return len(Database(url).events_since("lab", 0))

    while b"\x01" not in file.read_bytes()[60:64]:  # until moving it has taken half a second in all
        append()
    append()
    with pytest.warns(UserWarning, match=r"without its file some.db-wal"):
        assert events(copy(tmp_path, "some.db")) < number
    with pytest.warns(UserWarning, match=r"without its file more.db-wal"):
        check_store(copy(tmp_path, "more.db"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shutil.copy(tmp_path / "lab.db-wal", tmp_path / "both.db-wal")
        assert events(copy(tmp_path, "both.db")) == number
        database.flush()
        assert events(copy(tmp_path, "flushed.db")) == number
        append()
        database.close()
        assert events(copy(tmp_path, "closed.db")) == number
