"""A campaign stops at its budget, however often its program is run."""

import multiprocessing
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bo_stream import Box, Campaign
from bo_stream.campaign.effort import Optimiser
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import BudgetError, InputError, StateError
from tests.docs.pages import ROOT, blocks

SPACE = Box({"x": (0.0, 4.0)})


def campaign(store: Any = None, space: Box = SPACE, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"surrogate": "exact", "seed": 0, "optimiser": Optimiser(2, 16)}
    return Campaign(space, store=store, **{**settings, **options})


def bowl(frame: pd.DataFrame) -> pd.Series:
    return (frame["x"] - 3.0) ** 2


def test_ask_stops_at_the_budget() -> None:
    run = campaign(budget=7)
    sizes = []
    while run.remaining > 0:
        batch = run.ask(3)
        sizes.append(len(batch))
        run.tell(batch.assign(y=bowl))
    assert sizes == [3, 3, 1] and run.remaining == 0
    with pytest.raises(BudgetError, match="its budget of 7; got 7.*raise the budget"):
        run.ask()
    assert len(run.trials()) == 7


def test_a_budget_that_another_process_raised_is_seen_at_once(tmp_path: Path) -> None:
    one, other = (campaign(f"sqlite:///{tmp_path}/c.db", budget=2) for _ in range(2))
    one.ask(2)
    other.change(budget=3)
    assert one.remaining == 1
    other.change(budget=4)
    assert "0 of 4 told" in repr(one)
    assert campaign().remaining == float("inf")


def test_running_and_failed_trials_count() -> None:
    run = campaign(budget=3)
    run.fail(run.ask(2).index[0], "broken")
    run.tell(pd.DataFrame({"x": [1.0], "y": [2.0]}))  # not asked for
    assert run.remaining == 0


def test_a_campaign_that_is_started_again_is_continued() -> None:
    store = MemoryStore()
    first = campaign(store, budget=5)
    first.tell(first.ask(5).assign(y=bowl))
    with pytest.raises(BudgetError):
        campaign(store, budget=5).ask()
    more = campaign(store, budget=6)
    assert more.remaining == 1 and len(more.ask(3)) == 1
    assert Campaign.resume(store).budget == 5  # that of the settings in the store


def test_settings_that_differ_from_the_stored_ones_are_named() -> None:
    store = MemoryStore()
    campaign(store)
    with pytest.warns(UserWarning, match="continues with the seed in its store, 0; 1 is"):
        again = campaign(store, seed=1)
    assert again.settings.seed == 0
    with pytest.warns(UserWarning, match="the surrogate .*'exact'.*'wiski'.* is ignored"):
        again = campaign(store, surrogate="wiski")
    with pytest.raises(StateError, match="another space"):
        campaign(store, Box({"x": (0.0, 5.0)}))
    with pytest.raises(StateError, match="another goal"):
        campaign(store, goal="minimise")


def test_run_takes_the_budget_of_the_campaign_and_a_larger_one_raises_it() -> None:
    run = campaign(budget=3)
    assert len(run.run(lambda row: row["x"])) == 3
    assert len(run.run(lambda row: row["x"], budget=4)) == 4
    assert run.budget == 4 and run.remaining == 0
    with pytest.raises(InputError, match="budget, an integer"):
        campaign().run(lambda row: row["x"])


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "7"])
def test_a_budget_that_is_no_count_is_refused(budget: Any) -> None:
    with pytest.raises(InputError, match="budget"):
        campaign(budget=budget)


def run_program(text: str, folder: Path) -> None:
    """What a process of its own does."""
    os.chdir(folder)
    with (folder / "printed").open("w") as out, redirect_stdout(out):
        exec(text, {"__name__": "__main__"})


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
def test_the_first_program_of_the_readme_may_be_run_again(tmp_path: Path) -> None:
    """It stops at its budget and prints so; a larger budget continues it."""
    program = next(b.text for b in blocks(ROOT / "README.md") if b.language == "python")
    fork = multiprocessing.get_context("fork")

    def printed(budget: int) -> str:
        text = program.replace("budget=40", f"budget={budget}")
        process = fork.Process(target=run_program, args=(text, tmp_path))
        process.start()
        process.join()
        assert process.exitcode == 0
        return (tmp_path / "printed").read_text()

    first = printed(6)
    assert first.startswith("6 of 6 trials. Recommended:\n   pressure")
    assert printed(6) == first
    assert printed(8).startswith("8 of 8 trials.")
