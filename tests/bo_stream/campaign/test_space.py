import math

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Pool
from bo_stream.campaign.space import space_from_dict
from bo_stream.errors import BoundsError, InputError, UnsupportedError

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


@pytest.mark.parametrize("space", [BOX, Pool(TABLE, repeats=True), Pool(TABLE, ["north"])])
def test_a_space_comes_back_from_plain_data(space: Box | Pool) -> None:
    again = space_from_dict(space.to_dict())
    assert again.to_dict() == space.to_dict()
    assert torch.equal(again.tensor_bounds, space.tensor_bounds)


def test_places_are_named_by_the_index_or_by_coordinates() -> None:
    pool = Pool(TABLE)
    assert pool.places(pd.DataFrame({"place": ["c", "a"]})) == [2, 0]
    assert pool.places(TABLE.iloc[[1]]) == [1]
    with pytest.raises(InputError, match="d"):
        pool.places(pd.DataFrame({"place": ["d"]}))
    with pytest.raises(InputError, match="places of the pool"):
        pool.places(pd.DataFrame({"east": [0.5], "north": [5.0]}))


@pytest.mark.parametrize(
    ("bounds", "options", "error"),
    [
        ({}, {}, InputError),
        ({"x": (2.0, 1.0)}, {}, InputError),
        ({"x": (1.0, 1.0)}, {}, InputError),
        ({"x": (0.0, math.inf)}, {}, InputError),
        ({"x": (0.0, math.nan)}, {}, InputError),
        ({"x": (0.0, 1.0, 2.0)}, {}, InputError),
        ({"x": ["red", "green", "blue"]}, {}, UnsupportedError),
        ({"x": {"red", "green"}}, {}, UnsupportedError),
        ({"y": (0.0, 1.0)}, {}, InputError),
        ({"x": (0.0, 1.0)}, {"log": ["x"]}, InputError),
        ({"x": (1.0, 2.0)}, {"log": ["z"]}, InputError),
        ({"x": (1.0, 2.0)}, {"units": {"z": "m"}}, InputError),
    ],
)
def test_boxes_that_cannot_be_are_refused(
    bounds: dict, options: dict, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Box(bounds, **options)


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
        Pool(table)


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
