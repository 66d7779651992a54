"""What studies share: lists in configurations, labels, options of families, failures."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from bo_stream.errors import InputError
from experiments.common.study import (
    conduct,
    expanded,
    listed,
    refuse_options,
    surrogates,
    takes_part,
    told_apart,
)
from tests.experiments.common.toys import Toy, toys


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


def test_lists_among_options_are_surrogates_of_their_own() -> None:
    entries = [{"name": "exact"}, {"name": "wiski", "grid_size": [8, 16], "most_inputs": 3}]
    assert [(label, files) for _, label, files in surrogates(entries)] == [
        ("exact", "exact"),
        ("wiski, grid_size 8", "wiski_wiski-grid-size-8"),
        ("wiski, grid_size 16", "wiski_wiski-grid-size-16"),
    ]
    assert surrogates(entries)[2][0] == {"name": "wiski", "grid_size": 16, "most_inputs": 3}


def test_what_failed_is_named_in_the_end_and_the_rest_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, seen = toys(tmp_path / "calls", 2), list[str]()
    runs.append(Toy(7, str(tmp_path / "calls"), how="fails"))
    study = SimpleNamespace(
        plan=lambda c, smoke: runs,
        report=lambda c, done, folder: seen.extend(run.stem for run, _ in done),
    )
    with pytest.raises(typer.Exit):
        conduct(study, {}, tmp_path / "out", workers=0)
    assert seen == ["toy_0", "toy_1"]
    said = capsys.readouterr().out
    assert "toy_7 failed: LookupError: no such oven; see" in said and "1 of 3 runs failed" in said
    (tmp_path / "calls" / "mended").touch()
    assert conduct(study, {}, tmp_path / "out", workers=0, retry=True) == tmp_path / "out"


def test_runs_are_chosen_by_name_and_there_may_be_none(tmp_path: Path) -> None:
    study = SimpleNamespace(plan=lambda c, smoke: toys(tmp_path / "calls", 2))
    with pytest.raises(typer.BadParameter, match="no run is named like"):
        conduct(study, {}, tmp_path / "out", only=["nothing*"])
    study.plan = lambda c, smoke: []  # of tasks whose packages are missing
    assert conduct(study, {}, tmp_path / "none", workers=0) == tmp_path / "none"


def test_configurations_that_cannot_be_told_apart_end_the_command(tmp_path: Path) -> None:
    study = SimpleNamespace(plan=lambda c, smoke: surrogates([{"name": "a"}] * 2))
    with pytest.raises(typer.BadParameter, match="told apart"):
        conduct(study, {}, tmp_path)


def test_a_surrogate_has_the_options_of_its_family() -> None:
    refuse_options({"name": "wiski", "label": "W", "grid_size": 8, "most_inputs": 3})
    refuse_options({"name": "exact", "rows": 5}, ["rows"])
    for entry in ({"name": "exact", "rows": 5}, {"name": "wiski", "train_X": 1}):
        with pytest.raises(typer.BadParameter, match=f"surrogate {entry['name']} has "):
            refuse_options(entry)
    with pytest.raises(typer.BadParameter, match="no surrogate kriging; there are wiski"):
        refuse_options({"name": "kriging"})


def test_inputs_decide_who_takes_part() -> None:
    assert [d for d in range(1, 6) if takes_part({"least_inputs": 2, "most_inputs": 4}, d)] == [
        *(2, 3, 4)
    ]
    assert takes_part({}, 50) and listed("a") == ["a"] and listed([1, 2]) == [1, 2]
