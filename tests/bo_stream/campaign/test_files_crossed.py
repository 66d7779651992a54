"""How many files of a package a call crosses, by the profile of the interpreter."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import bo_stream.campaign
from bo_stream import Campaign, CountGP

FOLDER = Path(bo_stream.campaign.__file__).parent


def crossed(call: Callable[[], Any], folder: Path = FOLDER) -> tuple[Any, list[str]]:
    """What a call returns, and the files of a folder that it enters, in order."""
    files: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(folder)) and files[-1:] != [file]:
            files.append(file)

    sys.setprofile(look)
    try:
        return call(), files
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "file"])
def test_ask_tell_and_recommend_cross_few_files(stored: bool, tmp_path: Path) -> None:
    if stored:
        pytest.importorskip("sqlalchemy")
    store = f"sqlite:///{tmp_path}/oven.db" if stored else None
    box = {"x": (0.0, 4.0), "z": (0.0, 1.0)}
    campaign, changes = Campaign(box, goal="minimise", store=store, budget=30, seed=0), 0
    _ = campaign.state  # what settings name is made once
    for _ in range(10):
        batch, asked = crossed(lambda: campaign.ask(2))
        frame = batch.assign(y=(batch["x"] - 3.0) ** 2 + batch["z"])
        _, told = crossed(lambda frame=frame: campaign.tell(frame))  # type: ignore[misc]
        assert len(set(asked)) <= 14 and len(set(told)) <= 14
        changes += len(asked) + len(told)
    assert changes <= 2750
    advised, files = crossed(campaign.recommend)
    assert len(advised) == 1 and len(set(files)) <= 14 and len(files) <= 600


def test_a_count_is_observed_with_few_changes_of_file() -> None:
    torch.manual_seed(0)
    X, unit = torch.rand(40, 2).double(), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    model = CountGP(X, torch.full((40,), 3.0), 8, bounds=unit.double())
    _, files = crossed(lambda: model.observe(X[:1] / 2.0, [3.0], 8), FOLDER.parent)
    assert len(files) <= 64
