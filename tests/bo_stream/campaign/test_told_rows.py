"""Rows as people tell them: own ones beside those of trials, keys, notes, what was done."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import BoundsError, InputError, StateError

BOX = Box({"x": (0.0, 10.0), "rate": (1e-4, 0.1)}, log=["rate"])


def begun(**options: Any) -> Campaign:
    return Campaign(BOX, "exact", "random", seed=0, initial=99, **options)


def inputs(campaign: Campaign) -> pd.DataFrame:
    return campaign.trials()[["x", "rate"]]


def test_ids_and_own_rows_in_one_frame() -> None:
    campaign = begun()
    asked = campaign.ask(2)
    frame = pd.DataFrame(
        {
            "trial": [np.nan, 1.0, None, 0],
            "x": [1.0, asked["x"][1], 2.0, asked["x"][0]],
            "rate": [0.01, asked["rate"][1], 0.02, asked["rate"][0]],
            "y": [10.0, 11.0, 12.0, 13.0],
        }
    )
    campaign.tell(frame)
    assert campaign.trials()["y"].tolist() == [13.0, 11.0, 10.0, 12.0]
    assert inputs(campaign)["x"].tolist() == [asked["x"][0], asked["x"][1], 1.0, 2.0]
    campaign.tell(frame[frame["trial"].notna()])  # ids are told once
    assert len(campaign.trials()) == 4


def test_own_rows_with_a_key_are_told_once() -> None:
    store = MemoryStore()
    campaign = begun(store=store)
    frame = pd.DataFrame({"key": ["a", "b", ""], "x": [1.0, 2.0, 3.0], "rate": 0.01, "y": 1.0})
    campaign.tell(frame)
    again = Campaign.resume(store)
    again.tell(frame)  # the row without a key is another measurement
    assert campaign.trials()["key"].tolist()[:2] == ["a", "b"] and len(campaign.trials()) == 4
    with pytest.raises(StateError, match="trial 0 was told before"):
        campaign.tell(frame.assign(y=2.0))
    with pytest.raises(InputError, match="every key once"):
        campaign.tell(frame.assign(key="c"))
    with pytest.raises(InputError, match="'x' = 1,"):
        campaign.tell(frame.assign(x=9.0))
    asked = campaign.enqueue(pd.DataFrame({"x": [5.0], "rate": [0.1]}))
    campaign.tell(asked.assign(y=3.0))
    campaign.tell(asked.assign(y=3.0))
    assert len(campaign.trials()) == 5


def test_notes_are_kept_with_their_trials() -> None:
    store = MemoryStore()
    campaign = begun(store=store)
    asked = campaign.ask(3)
    assert "note" not in campaign.trials()
    campaign.tell(asked.assign(y=1.0, notes=["smoke", None, " "]))
    campaign.tell(pd.DataFrame({"x": [1.0], "rate": [0.01], "y": [2.0], "note": ["by hand"]}))
    trials = Campaign.resume(store).trials()
    assert trials["note"].dropna().to_dict() == {0: "smoke", 3: "by hand"}
    campaign.tell(pd.DataFrame({"trial": [1], "y": [1.0], "note": ["seen later"]}))
    campaign.amend(pd.DataFrame({"trial": [3], "y": [2.5], "note": ["by hand, twice"]}))
    notes = campaign.trials()["note"].dropna().to_dict()
    assert notes == {0: "smoke", 1: "seen later", 3: "by hand, twice"}


def test_inputs_rounded_as_they_are_printed_are_those_that_were_asked_for() -> None:
    campaign = begun()
    asked = campaign.ask(4)
    rounded = asked.apply(lambda column: [float(f"{value:.6g}") for value in column])
    assert not rounded.equals(asked)
    campaign.tell(rounded.assign(y=1.0))
    pd.testing.assert_frame_equal(inputs(campaign), asked, rtol=0.0, atol=0.0)


def test_a_trial_keeps_what_was_done() -> None:
    store = MemoryStore()
    campaign = begun(store=store)
    asked = campaign.ask(2)
    done = asked.assign(x=np.clip(asked["x"] + [0.5, 0.0], 0.0, 10.0))
    campaign.tell(done.assign(y=1.0))
    again = Campaign.resume(store)
    assert inputs(again)["x"].tolist() == done["x"].tolist()
    assert again.state.observations.X[:, 0].tolist() == done["x"].tolist()
    campaign.tell(done.assign(y=1.0))  # told twice
    assert len(store.events_since("campaign", 0)) == 2


def test_rows_that_are_mixed_up_are_refused() -> None:
    campaign = begun()
    asked = campaign.ask(2)
    swapped = asked.iloc[::-1].set_axis(asked.index)
    with pytest.raises(InputError, match="within 10% of its range.*rows are not mixed up"):
        campaign.tell(swapped.assign(y=1.0))
    edge = asked.assign(x=10.0)[:1]
    campaign.enqueue(edge)
    with pytest.raises(BoundsError):
        campaign.tell(pd.DataFrame({"trial": [2], "x": [10.5], "y": [1.0]}))
    assert campaign.trials()["status"].tolist() == ["running"] * 3


def test_places_of_a_pool_are_what_they_are() -> None:
    table = pd.DataFrame({"a": [0.0, 1.23456789, 2.0], "b": [1.0, 0.0, 5.0]})
    campaign = Campaign(Pool(table), "exact", seed=0)
    asked = campaign.enqueue(pd.DataFrame({"place": [1]}))
    with pytest.raises(InputError, match="'a' = 1.23456789.*got 1.3"):
        campaign.tell(asked.assign(a=1.3, y=1.0))
    campaign.tell(asked.assign(a=1.23457, y=1.0))
    assert campaign.trials()["a"].tolist() == [1.23456789]


def test_an_outcome_that_is_far_off_is_named_once() -> None:
    campaign = begun()
    rng = np.random.default_rng(0)
    for i in range(12):
        frame = pd.DataFrame({"x": [i / 2], "rate": [0.01], "y": rng.normal(5.0, 1.0)})
        campaign.tell(frame)
    wrong = pd.DataFrame({"x": [9.0], "rate": [0.01], "y": [5e6]})
    with pytest.warns(UserWarning, match=r"trials 12 are hundreds of .*amend\(\) or withdraw\(\)"):
        campaign.tell(wrong)
    campaign.tell(wrong.assign(y=6.0))  # no warning for another one
    campaign.withdraw(12, "a typing error")


def test_inputs_may_have_the_names_of_labels() -> None:
    campaign = Campaign(Box({"note": (0.0, 1.0), "key": (0.0, 1.0)}), seed=0)
    batch = campaign.ask(2)
    campaign.tell(batch.assign(y=1.0))
    assert campaign.trials()["note"].tolist() == batch["note"].tolist()


def test_an_index_left_over_is_not_taken_for_trial_ids() -> None:
    campaign = begun()
    asked = campaign.ask(6)
    mine = asked.assign(x=(asked["x"] + 0.3).clip(upper=10.0), y=1.0).reset_index(drop=True)
    kept = mine.iloc[[0, 2, 5]]
    with pytest.raises(InputError, match=r"'x' = .*index was read.*reset_index\(drop=True\)"):
        campaign.tell(kept)
    assert (campaign.trials()["status"] == "running").all()
    campaign.tell(kept.reset_index(drop=True))  # measurements that were not asked for
    assert campaign.trials()["status"].tolist() == ["running"] * 6 + ["told"] * 3
    chosen = asked.rename_axis(None).iloc[[1, 4]]
    campaign.tell(chosen.assign(y=2.0))  # the inputs say that they are these trials
    campaign.tell(pd.DataFrame({"y": [3.0]}, index=[3]))
    assert campaign.trials()["y"][[1, 3, 4]].tolist() == [2.0, 3.0, 2.0]
    with pytest.raises(InputError, match=r"trial ids, 0 to 8; got 12, .*reset_index"):
        campaign.tell(mine.set_axis([12, 14, 15, 16, 17, 18]))


def test_values_that_differ_are_printed_so() -> None:
    campaign = Campaign(Box({"n": (1, 9)}, integer=["n"]), seed=0)
    asked = campaign.enqueue(pd.DataFrame({"n": [2]}))
    with pytest.raises(InputError, match="'n' = 2, as trial 0 was asked for.*got 2.5"):
        campaign.tell(asked.rename_axis(None).set_axis([0]).iloc[[0]].assign(n=2.5, y=1.0))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"trial": [0.0, np.inf]}, "trial ids, 0 to 1; got inf"),
        ({"c": [["A"], "A"]}, r"one of True, True text; got \['A'\] in row 0"),
    ],
)
def test_cells_of_other_types_are_refused(frame: dict[str, Any], said: str) -> None:
    campaign = Campaign(Box({"x": (0.0, 1.0), "c": ["True", "True text"]}), seed=0)
    batch = campaign.ask(2).reset_index().assign(y=1.0)
    with pytest.raises(InputError, match=said):
        campaign.tell(batch.assign(**{name: pd.Series(cells) for name, cells in frame.items()}))
    for name in ("trial", "note", "x"):
        batch = batch.assign(note="n")
        with pytest.raises(InputError, match=f"one column '{name}'; got several"):
            campaign.tell(pd.concat([batch, batch[[name]]], axis=1))
    campaign.tell(batch.assign(c=True, x=0.5, note=[["list"], None]).drop(columns="trial"))
    assert campaign.trials()["c"].tolist()[2:] == ["True"] * 2


def test_a_truth_value_is_the_label_of_its_name() -> None:
    box = Box({"c": ["True", "1"]})
    assert box.values(pd.DataFrame({"c": [True, 1]})).tolist() == [[0.0], [1.0]]
