"""Names of inputs and outcomes: each means one column, in whatever spelling it is written."""

import unicodedata
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.names import folded
from bo_stream.campaign.settings import Choices, Settings
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import InputError, StateError

MICRO, MU = "\u00b5m", "\u03bcm"
DECOMPOSED = unicodedata.normalize("NFD", "Düse")
SPELLINGS = [
    (MICRO, MU),
    ("\u2126", "\u03a9"),
    ("\u212b", "\u00c5"),
    (DECOMPOSED, "Düse"),
    ("\u0430", "a"),  # Cyrillic
    ("\u0422", "\u03a4"),  # Cyrillic and Greek
]


def box(*names: str) -> Box:
    return Box(dict.fromkeys(names, (0.0, 1.0)))


@pytest.mark.parametrize("name", ["gain", "lower", "upper", "feasible", "gain ", "a\nb"])
def test_columns_of_results_are_no_inputs(name: str) -> None:
    with pytest.raises(InputError, match=r"names .*; got .*Rename it"):
        Campaign(box(name))


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (["strength_var"], {"goal": {"strength": "maximise"}}, "variances of 'strength'"),
        (["x"], {"goal": {"a": "maximise", "a_var": "minimise"}}, "variances of 'a'"),
        (["x"], {"goal": {"a": "maximise"}, "constraints": ["a_var <= 2"]}, "variances of 'a'"),
        (["x"], {"goal": dict.fromkeys(("a", "a_sd"), "maximise")}, "column of results"),
        (["rise_mean"], {"goal": {"rise": "maximise", "cost": "minimise"}}, "column of results"),
        (["c_upper"], {"constraints": ["c <= 2"]}, "column of results"),
        ([MICRO, MU], {}, r"'\\u03bcm', an input, beside '\\xb5m', an input"),
        ([MICRO], {"goal": {MU: "maximise"}}, "an input, beside .* an outcome"),
        (["a ", "a"], {}, "an input, beside"),
        (["status "], {}, "a column of every campaign"),
        (["a\u200b"], {}, "can be printed"),
    ],
)
def test_one_name_of_two_columns_is_refused(
    names: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Campaign(box(*names), **options)


def test_names_that_only_resemble_results_are_kept() -> None:
    campaign = Campaign(box("rise_mean", "gain_1"), goal={"rise": "maximise"}, seed=0)
    assert list(campaign.ask().columns) == ["rise_mean", "gain_1"]
    Campaign(box("x"), goal={"gain": "maximise", "lower": "minimise"})  # results have gain_mean


@pytest.mark.parametrize(("name", "other"), SPELLINGS)
@pytest.mark.parametrize("quote", ["", "`"])
def test_look_alike_letters_are_one_name(name: str, other: str, quote: str) -> None:
    assert folded(name) == folded(other) and name != other
    for mine, theirs in ((name, other), (other, name)):
        text = f"{quote}{theirs}{quote} + b <= 0.3"
        campaign = Campaign(box(mine, "b"), constraints=[text], seed=0)
        batch = campaign.ask(4)
        assert (batch[mine] + batch["b"]).max() <= 0.3 + 1e-9
        assert campaign.settings.outcomes.columns == ["y"]
        campaign.tell(batch.rename(columns={mine: theirs}).assign(y=1.0))
        assert (campaign.trials()["status"] == "told").all()
        assert Box({mine: (1.0, 2.0)}, log=[theirs]).log == (mine,)


def test_two_columns_that_look_like_one_input_are_refused() -> None:
    campaign = Campaign(box(MICRO), seed=0)
    frame = pd.DataFrame([[0.1, 0.2, 1.0]], columns=[MU, "\u00b5m ", "y"])
    with pytest.raises(InputError, match="several that look alike"):
        campaign.tell(frame)
    pool = Pool(pd.DataFrame({MU: [0.0, 1.0]}), [MICRO])
    assert pool.names == (MICRO,)


def stored(space: Box, **options: Any) -> MemoryStore:
    """A campaign as a release before names were checked created it."""
    store = MemoryStore()
    settings = Settings.of(space, Choices.read({"goal": "maximise", "seed": 0, **options}))
    store.create("campaign", settings.to_dict())
    return store


def test_stored_campaigns_with_such_names_open_with_a_warning() -> None:
    store = stored(box("gain", "b"), initial=4)
    with pytest.warns(UserWarning, match="'gain', an input, beside 'gain', a column of results"):
        campaign = Campaign.resume(store)
    batch = campaign.ask(6)
    campaign.tell(batch.assign(y=batch["gain"]))
    assert campaign.best()["gain"] == batch["gain"].max()
    assert np.isfinite(campaign.predict(batch)["mean"]).all()
    with pytest.raises(StateError, match="names no column of results has; got gain"):
        campaign.recommend()
    with pytest.warns(UserWarning, match="a column of results"):
        Campaign(box("gain", "b"), store=store, initial=4)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (pd.MultiIndex.from_product([["u", "v"], [0, 1]]), "in 2 levels"),
        ([0.0, 1.0, 2.0, np.nan], "4 rows with 3 names"),
    ],
)
def test_every_place_of_a_pool_has_one_name(index: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Pool(pd.DataFrame({"a": np.arange(4.0)}, index))


@pytest.mark.parametrize("given", [{"store": 3}, {"name": 3}, {"surrogate": {"name": ["exact"]}}])
def test_what_is_no_store_name_or_surrogate_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Expected .* got .*3|exact"):
        Campaign(box("x"), **given)
