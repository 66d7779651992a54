"""What may not be written can be read, and writing it is refused."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")

from bo_stream import Box, Campaign
from bo_stream.errors import StateError

BOX = Box({"x": (0.0, 4.0)})


def begun(store: str) -> Campaign:
    campaign = Campaign(BOX, {"name": "hsgp", "num_features": 16}, store=store, seed=0, initial=4)
    x = np.linspace(0.0, 4.0, 6)
    campaign.tell(pd.DataFrame({"x": x, "y": np.sin(x)}))
    campaign.ask()
    return campaign


def test_a_campaign_that_is_only_read(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/oven.db"
    writer = begun(store)
    before = writer.trials()
    reader = Campaign.resume(store, readonly=True)
    assert reader.trials().equals(before) and len(reader.predict(before[["x"]])) == 7
    for change in (
        lambda: reader.ask(),
        lambda: reader.tell(pd.DataFrame({"x": [1.0], "y": [1.0]})),
        lambda: reader.fail(6, "no"),
        lambda: reader.withdraw(0, "no"),
        lambda: reader.change(budget=90),
    ):
        with pytest.raises(StateError, match="opened for reading only"):
            change()
    assert writer.trials().equals(before)
    writer.tell(pd.DataFrame({"x": [1.0], "y": [1.0]}))
    assert len(reader.trials()) == 8  # it follows the others


def read_everything(folder: Path) -> None:
    """What can be read without writing, by a user who may not write."""
    from bo_stream.cli.app import start

    os.chdir(folder)
    for args in (["status"], ["trials"], ["recommend"]):
        with pytest.raises(SystemExit) as end:
            start([args[0], "oven.db", *args[1:]])
        assert not end.value.code, args
    assert len(Campaign.resume("sqlite:///oven.db", readonly=True).trials()) == 7
    campaign = Campaign.resume("sqlite:///oven.db")
    if os.geteuid() == 0:
        return
    with pytest.raises(StateError, match="reading only"):
        campaign.ask()


def as_nobody(folder: Path) -> None:
    """Once as before, which imports everything, and once without any rights."""
    read_everything(folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    read_everything(folder)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
@pytest.mark.parametrize("log", [False, True], ids=["closed", "open"])
def test_a_file_that_may_not_be_written(tmp_path: Path, log: bool) -> None:
    """By a user who may write neither the file nor its folder."""
    writer = begun(f"sqlite:///{tmp_path}/oven.db")
    if not log:
        writer.ledger.store.close()  # type: ignore[attr-defined]
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(folder.stat().st_mode | 0o055)
    for path in (*tmp_path.iterdir(), tmp_path):
        path.chmod(0o555 if path.is_dir() else 0o444)
    process = multiprocessing.get_context("fork").Process(target=as_nobody, args=(tmp_path,))
    process.start()
    process.join(120)
    tmp_path.chmod(0o755)
    assert process.exitcode == 0
