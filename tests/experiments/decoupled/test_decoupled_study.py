"""The study of decoupled GPs: its methods, scores and summaries."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from bo_stream.errors import InputError
from experiments.common.command import CONFIGS, parsed
from experiments.common.data import MADE_UP, TableSplit
from experiments.decoupled.streams import baseline, followed, means, scored, summary
from experiments.decoupled.toy import distance, rows

KINDS = {"family", "svi", "batch_sgpr", "cggp", "local", "stochastic"}


def test_the_first_sets_the_seconds_of_those_who_could_always_learn_more() -> None:
    c = parsed(CONFIGS / "decoupled_arm.toml") | {"table": [{"name": MADE_UP}], "twins": {}}
    c |= {"seeds": [0], "train": 120, "test": 60, "first": 60, "batch": 30, "times": 4.0}
    first = next(iter(c["contenders"]))
    c["contenders"] = {name: c["contenders"][name] for name in (first, "SVI, 128 points")}
    followed(c, lambda rows: None)  # pays for imports
    kept: list[int] = []
    table = followed(c, lambda rows: kept.append(len(rows)))
    assert kept == [6] and table["rows"].unique().tolist() == [60, 90, 120]
    spent = table[table["step"] == 2].groupby("contender")["seconds"].mean()
    assert 3.6 < spent["SVI, 128 points"] / spent[first] < 5.0


@pytest.mark.parametrize("name", ["arm", "arm_first", "arm_once", "stream"])
def test_every_contender_of_a_configuration_can_be_made(name: str) -> None:
    specs = parsed(CONFIGS / f"decoupled_{name}.toml")["contenders"].values()
    assert {spec["kind"] for spec in specs} <= KINDS
    for spec in specs:
        assert baseline(spec, 0).seconds == 0.0
    first = next(iter(specs))
    assert first["kind"] == "family"  # twins take its hyperparameters


def test_contenders_are_known_by_their_kind() -> None:
    with pytest.raises(InputError, match="family, svi, batch_sgpr, cggp, local, stochastic"):
        baseline({"kind": "nosuch"}, 0)


def test_scores_are_those_of_their_definitions() -> None:
    y = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    split = TableSplit(y, y, y, y)
    predicted = torch.tensor([0.5, 2.0]).double(), torch.tensor([1.0, 4.0]).double()
    got = scored(predicted, split)
    assert got["nmse"] == pytest.approx(0.125)  # variance 1 of the test outcomes, mean square 1/8
    density = torch.distributions.Normal(predicted[0], predicted[1].sqrt()).log_prob(y[:, 0])
    assert got["nlpd"] == pytest.approx(-float(density.mean()))


def test_targets_of_a_table_of_ones_own_are_streams_of_the_same_rows(tmp_path: Path) -> None:
    rows = torch.rand(80, 4, generator=torch.Generator().manual_seed(0)).numpy()
    pd.DataFrame(rows, columns=list("abyz")).to_csv(tmp_path / "own.csv", index=False)
    table = {"name": str(tmp_path / "own.csv"), "target": ["y", "z"], "inputs": ["a", "b"]}
    c = {"table": [table], "seeds": [0], "train": 60, "test": 20, "first": 60, "batch": 60}
    c |= {"contenders": {"exact": {"kind": "family", "name": "exact"}}, "twins": {}, "times": 1.0}
    found = followed(c, lambda rows: None)
    assert found["output"].tolist() == ["y", "z"] and set(found["table"]) == {"own"}
    assert found["nmse"].nunique() == 2


def test_a_summary_compares_with_the_first() -> None:
    base = {"table": "t", "seed": 0, "seconds": 1.0}
    frame = pd.DataFrame(
        base | {"output": k, "contender": n, "step": s, "rows": 10 + s, "nmse": v + k, "nlpd": v}
        for n, values in {"a": (9.0, 1.0), "b": (9.0, 3.0)}.items()
        for s, v in enumerate(values)
        for k in (0, 2)
    )
    table = summary(means(frame), "a").set_index("contender")
    assert table["nmse"].to_dict() == {"a": 2.0, "b": 4.0}  # the last batch, mean over outputs
    assert table["ratio"].to_dict() == {"a": 1.0, "b": 0.5}
    assert table["gap"].to_dict() == {"a": 0.0, "b": -2.0}


def test_distances_of_the_toy_are_in_deviations() -> None:
    truth = torch.zeros(4).double(), torch.full((4,), 1.04).double()
    predicted = torch.full((4,), 0.4).double(), torch.full((4,), 4.04).double()
    got = distance(predicted, truth, 0.04)
    assert got == {"mean_error": pytest.approx(2.0), "deviation": pytest.approx(2.0)}
    X, Y = rows(300, 0.01, 0)
    assert X.min() < -4.5 and X.max() > 4.5
    assert float((Y - torch.sinc(X)).std()) == pytest.approx(0.01, rel=0.2)
