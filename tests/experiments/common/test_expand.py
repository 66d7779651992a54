"""Lists in a configuration: every combination, by names that tell them apart."""

import pytest

from bo_stream.errors import InputError
from experiments.common.expand import expanded, told_apart


def test_every_combination_of_lists_once() -> None:
    tables = expanded({"name": ["levy", "ackley"], "dim": [3, 6], "noise_std": 1.0})
    assert [(t["name"], t["dim"]) for t in tables] == [
        ("levy", 3),
        ("levy", 6),
        ("ackley", 3),
        ("ackley", 6),
    ]
    assert all(t["noise_std"] == 1.0 for t in tables)


def test_lists_inside_tables_count_and_a_list_in_a_list_is_a_value() -> None:
    tables = expanded({"actions": {"name": "BlockSparse", "num_actions": [8, 16]}})
    assert [t["actions"]["num_actions"] for t in tables] == [8, 16]
    choices = expanded({"actions": [{"name": "a", "num_actions": [8, 16]}, {"name": "b"}]})
    assert [t["actions"]["name"] for t in choices] == ["a", "a", "b"]
    assert expanded({"weights": [[0.2, 0.8]]}) == [{"weights": [0.2, 0.8]}]
    assert expanded({"weights": [[1, 2], [3, 4]]}) == [{"weights": [1, 2]}, {"weights": [3, 4]}]


def test_a_list_without_values_is_refused() -> None:
    with pytest.raises(InputError, match="dim.*an empty list"):
        expanded({"name": "levy", "dim": []})


@pytest.mark.parametrize(
    ("entries", "labels", "files"),
    [
        ([{"name": "levy", "dim": 3}], ["levy"], ["levy"]),
        (
            expanded({"name": ["levy", "ackley"], "dim": [3, 6]}),
            ["levy, dim 3", "levy, dim 6", "ackley, dim 3", "ackley, dim 6"],
            ["levy_levy-dim-3", "levy_levy-dim-6", "ackley_ackley-dim-3", "ackley_ackley-dim-6"],
        ),
        (
            expanded({"name": "wiski", "label": "Grid", "grid_size": [8, 12], "nu": 0.5}),
            ["Grid, grid_size 8", "Grid, grid_size 12"],
            ["wiski_Grid-grid-size-8", "wiski_Grid-grid-size-12"],
        ),
        (
            [{"name": "exact"}, {"name": "exact", "nu": 0.5}],
            ["exact", "exact, nu 0.5"],
            ["exact_exact", "exact_exact-nu-0.5"],
        ),
    ],
)
def test_entries_go_by_what_tells_them_apart(entries, labels, files) -> None:
    assert told_apart(entries, "entries") == (labels, files)


def test_entries_that_are_alike_are_refused() -> None:
    with pytest.raises(InputError, match="problems that can be told apart"):
        told_apart([{"name": "levy"}, {"name": "levy"}], "problems")
