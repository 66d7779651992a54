"""A copy of a store's file has its trials, also while a program has it open."""

import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

from bo_stream import Box, Campaign

pytest.importorskip("sqlalchemy")


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
    tell(campaign, 60)
    assert trials(copy(tmp_path, "60.db")) == 60
    campaign.run(lambda row: 1.0, 62)
    assert trials(copy(tmp_path, "62.db")) == 62
