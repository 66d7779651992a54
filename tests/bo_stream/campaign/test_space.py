import io
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.space import space_from_dict
from bo_stream.errors import BoundsError, InputError

BOX = Box({"pressure": (1.0, 10.0), "rate": (1e-4, 0.1)}, log=["rate"], units={"pressure": "bar"})
TABLE = pd.DataFrame({"east": [0.0, 1.0, 2.0], "north": [5.0, 4.0, 6.0]}, index=["a", "b", "c"])


def test_a_logarithmic_input_is_searched_in_its_logarithm() -> None:
    expected = [[1.0, math.log(1e-4)], [10.0, math.log(0.1)]]
    torch.testing.assert_close(BOX.tensor_bounds, torch.tensor(expected, dtype=torch.float64))
    middle = BOX.decode(BOX.tensor_bounds.mean(0, keepdim=True))
    assert middle[0].tolist() == pytest.approx([5.5, math.sqrt(1e-5)])


def test_what_is_decoded_lies_within_the_bounds() -> None:
    values = BOX.decode(BOX.tensor_bounds)
    assert values.ravel().tolist() == pytest.approx([1.0, 1e-4, 10.0, 0.1], rel=1e-14)
    frame = pd.DataFrame(values, columns=list(BOX.names))
    np.testing.assert_array_equal(BOX.values(frame), values)


MIXED = Box(
    {
        "rate": (1e-4, 0.1),
        "trees": (50, 500),
        "depth": [16, 2, 4, 8],
        "loss": ["squared", "huber", "absolute"],
        "warm": [True, False],
    },
    log=["rate", "trees"],
    integer=["trees"],
)
LABELLED = TABLE.assign(kind=["new", "old", "new"], open=[True, False, True])


@pytest.mark.parametrize(
    "space",
    [
        BOX,
        MIXED,
        Pool(TABLE, repeats=True),
        Pool(TABLE, ["north"]),
        Pool(LABELLED, ["north", "kind", "open"]),
    ],
)
def test_a_space_comes_back_from_plain_data(space: Box | Pool) -> None:
    again = space_from_dict(space.to_dict())
    assert again.to_dict() == json.loads(json.dumps(space.to_dict())) == space.to_dict()
    assert torch.equal(again.tensor_bounds, space.tensor_bounds)


def test_users_see_labels_and_integers() -> None:
    values = np.array([[0.01, 120.0, 8.0, 2.0, 1.0], [0.1, 500.0, 2.0, 0.0, 0.0]])
    frame = MIXED.labelled(values)
    first = frame.astype(object).iloc[0].to_dict()
    expected = {"rate": 0.01, "trees": 120, "depth": 8, "loss": "absolute", "warm": False}
    assert first == expected
    assert [type(value) for value in first.values()] == [float, int, int, str, bool]
    np.testing.assert_array_equal(MIXED.values(frame), values)
    again = pd.read_csv(io.StringIO(frame.to_csv()), index_col=0)
    np.testing.assert_array_equal(MIXED.values(again), values)
    np.testing.assert_allclose(MIXED.decode(MIXED.encode(values)), values, rtol=1e-14)


def test_every_allowed_value_has_its_coordinate() -> None:
    trees = np.arange(50.0, 501.0)
    values = np.tile([[0.01, 50.0, 2.0, 0.0, 0.0]], (len(trees), 1))
    values[:, 1] = trees
    X = MIXED.encode(values)
    assert bool(torch.isin(X[:, 1], torch.from_numpy(MIXED.kinds[1].choices)).all())
    np.testing.assert_array_equal(MIXED.decode(X + 1e-6)[:, 1:], values[:, 1:])
    assert MIXED.kinds[2].choices.tolist() == [2.0, 4.0, 8.0, 16.0]
    many = Box({"n": (1, 10**9)}, log=["n"], integer=["n"])
    assert (
        len(many.kinds[0].choices) < 10_001 and many.decode(many.encode(np.array([[7.0]]))) == 7.0
    )


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("trees", 120.5, InputError, "an integer"),
        ("trees", 501, BoundsError, "between 50 and 500"),
        ("depth", 6, InputError, "2, 4, 8, 16"),
        ("loss", "Squard", InputError, "squared, huber, absolute"),
        ("loss", 1, InputError, "squared"),
        ("warm", "maybe", InputError, "True, False"),
        ("warm", None, InputError, "True, False"),
    ],
)
def test_values_that_are_not_allowed_are_refused(
    name: str, value: object, error: type[Exception], match: str
) -> None:
    frame = MIXED.labelled(np.array([[0.01, 120.0, 8.0, 2.0, 1.0]])).astype(object)
    with pytest.raises(error, match=match):
        MIXED.values(frame.assign(**{name: [value]}))


def test_places_are_named_by_the_index_or_by_coordinates() -> None:
    pool = Pool(TABLE)
    assert pool.places(pd.DataFrame({"place": ["c", "a"]})) == [2, 0]
    assert pool.places(TABLE.iloc[[1]]) == [1]
    with pytest.raises(InputError, match="d"):
        pool.places(pd.DataFrame({"place": ["d"]}))
    with pytest.raises(InputError, match="places of the pool"):
        pool.places(pd.DataFrame({"east": [0.5], "north": [5.0]}))


@pytest.mark.parametrize(
    ("bounds", "options"),
    [
        ({}, {}),
        ({"x": (2.0, 1.0)}, {}),
        ({"x": (1.0, 1.0)}, {}),
        ({"x": (0.0, math.inf)}, {}),
        ({"x": (0.0, math.nan)}, {}),
        ({"x": (0.0, 1.0, 2.0)}, {}),
        ({"x": ["red"]}, {}),
        ({"x": ["red", "red"]}, {}),
        ({"x": ["red", 1.0]}, {}),
        ({"x": [1.0, math.inf]}, {}),
        ({"x": ["red", "blue"]}, {"log": ["x"]}),
        ({"x": [1.0, 2.0]}, {"integer": ["x"]}),
        ({"x": (1.5, 3.0)}, {"integer": ["x"]}),
        ({"x": (0, 3)}, {"integer": ["x"], "log": ["x"]}),
        ({"x": (1.0, 2.0)}, {"integer": ["z"]}),
        ({"x": {"red", "green"}}, {}),
        ({"y": (0.0, 1.0)}, {}),
        ({"x": (0.0, 1.0)}, {"log": ["x"]}),
        ({"x": (1.0, 2.0)}, {"log": ["z"]}),
        ({"x": (1.0, 2.0)}, {"units": {"z": "m"}}),
    ],
)
def test_boxes_that_cannot_be_are_refused(bounds: dict, options: dict) -> None:
    with pytest.raises(InputError):
        Campaign(Box(bounds, **options))


@pytest.mark.parametrize(
    "table",
    [
        TABLE.iloc[:1],
        pd.concat([TABLE, TABLE]),
        TABLE.assign(north=1.0),
        TABLE.assign(north=[1.0, math.nan, 2.0]),
        TABLE.rename(columns={"north": "y"}),
    ],
)
def test_pools_that_cannot_be_are_refused(table: pd.DataFrame) -> None:
    with pytest.raises(InputError):
        Campaign(Pool(table))


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ([0.5], BoundsError),
        ([11.0], BoundsError),
        ([math.nan], InputError),
        ([math.inf], InputError),
        (["3.0"], InputError),
        ([None], InputError),
        ([True], InputError),
    ],
)
def test_points_that_cannot_be_are_refused(column: list, error: type[Exception]) -> None:
    frame = pd.DataFrame({"pressure": column, "rate": 0.01})
    with pytest.raises(error, match="pressure"):
        BOX.values(frame)
    with pytest.raises(InputError, match="rate"):
        BOX.values(frame[["pressure"]].assign(pressure=2.0))


def test_names_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(InputError, match="characters that can be printed"):
        Campaign(Box({"a\ud800": (0.0, 1.0)}))
    with pytest.raises(InputError, match="a name of whole characters"):
        Campaign(BOX, name="oven \udfff")
