"""What kinds of studies share: keys of configurations, labels, options of families."""

from pathlib import Path

import pytest
import typer

from bo_stream.growth import VIPS
from experiments.common.command import CONFIGS
from experiments.common.kinds import (
    built,
    configured,
    listed,
    planned,
    refuse_options,
    surrogates,
    takes_part,
)

DEFAULTS = ["stream_tables", "classes", "cost"]


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_reads_as_itself_and_refuses_other_keys(name: str, tmp_path: Path) -> None:
    default = CONFIGS / f"{name}.toml"
    assert configured(default, default)["output"].startswith("results/")
    own = tmp_path / "own.toml"
    own.write_text("colour = 1\n" + default.read_text())
    with pytest.raises(typer.BadParameter, match=r"own\.toml has colour; known are ") as refused:
        configured(own, default)
    assert "\n" not in str(refused.value)
    own.write_text("\n".join(x for x in default.read_text().splitlines() if "seeds" not in x))
    with pytest.raises(typer.BadParameter, match="has no seeds"):
        configured(own, default)


def test_lists_among_options_are_surrogates_of_their_own() -> None:
    entries = [{"name": "exact"}, {"name": "wiski", "grid_size": [8, 16], "most_inputs": 3}]
    assert [(label, files) for _, label, files in surrogates(entries)] == [
        ("exact", "exact"),
        ("wiski, grid_size 8", "wiski_wiski-grid-size-8"),
        ("wiski, grid_size 16", "wiski_wiski-grid-size-16"),
    ]
    assert surrogates(entries)[2][0] == {"name": "wiski", "grid_size": 16, "most_inputs": 3}


def test_surrogates_that_cannot_be_told_apart_end_the_command() -> None:
    with pytest.raises(typer.BadParameter, match="told apart"):
        planned(
            lambda c, smoke: surrogates(c["surrogate"]), {"surrogate": [{"name": "a"}] * 2}, True
        )


def test_a_surrogate_has_the_options_of_its_family() -> None:
    refuse_options({"name": "wiski", "label": "W", "grid_size": 8, "most_inputs": 3})
    refuse_options({"name": "exact", "rows": 5}, ["rows"])
    for entry in ({"name": "exact", "rows": 5}, {"name": "wiski", "train_X": 1}):
        with pytest.raises(typer.BadParameter, match=f"surrogate {entry['name']} has "):
            refuse_options(entry)
    with pytest.raises(typer.BadParameter, match="no surrogate kriging; there are wiski"):
        refuse_options({"name": "kriging"})


def test_policies_are_built_and_inputs_decide_who_takes_part() -> None:
    made = built({"growth": {"name": "VIPS", "delta": 0.2, "max_points": 7}, "trust": 0.1})
    assert isinstance(made["growth"], VIPS) and made["growth"].max_points == 7
    assert made["trust"] == 0.1
    assert [d for d in range(1, 6) if takes_part({"least_inputs": 2, "most_inputs": 4}, d)] == [
        *(2, 3, 4)
    ]
    assert takes_part({}, 50) and listed("a") == ["a"] and listed([1, 2]) == [1, 2]
