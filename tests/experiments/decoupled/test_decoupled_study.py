"""The study of decoupled GPs, in its smoke mode, and its parts."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from bo_stream.errors import InputError
from experiments.common.command import CONFIGS, parsed
from experiments.common.splits import TableSplit
from experiments.decoupled import __main__ as decoupled
from experiments.decoupled.contenders import baseline
from experiments.decoupled.course import scores, split_of
from experiments.decoupled.report import means, summary
from experiments.decoupled.toy import STOCHASTIC, distance, rows

KINDS = {"family", "svi", "batch_sgpr", "local", "stochastic"}


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_the_toy(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoupled.sinc(smoke=True)
    assert STOCHASTIC in capsys.readouterr().out
    folder = at_home / "decoupled_sinc_smoke"
    results = pd.read_csv(folder / "results.csv")
    error = results.groupby(["method", "step"])["mean_error"].mean()
    assert error[STOCHASTIC, 60] < error[STOCHASTIC, 1]  # gradients approach the exact mean
    assert results["seconds"].notna().all() and results["seed"].nunique() == 2
    assert {path.name for path in folder.glob("*.png")} == {"laws.png", "course.png"}


@pytest.mark.parametrize("command", [pytest.param("arm", marks=pytest.mark.slow), "stream"])
def test_streams(command: str, at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    getattr(decoupled, command)(smoke=True)
    c = parsed(CONFIGS / f"decoupled_{command}.toml")
    everyone = {*c["contenders"], *c["twins"]}
    shown = capsys.readouterr().out
    assert all(name in shown for name in everyone)
    folder = at_home / f"decoupled_{command}_smoke"
    table = pd.read_csv(folder / "scores.csv")
    assert bool(table.notna().all(axis=None)) and set(table["contender"]) == everyone
    assert table["rows"].unique().tolist() == [60, 90, 120]
    runs = table[table["contender"].isin(c["contenders"])]
    assert len(runs) == len(c["contenders"]) * 2 * 3  # seeds, batches
    for _, run in runs.groupby(["contender", "seed"]):
        assert bool((run["seconds"].diff().dropna() > 0.0).all())
    assert len(list(folder.glob("*.png"))) == 4


def test_the_first_sets_the_seconds_of_those_who_could_always_learn_more(
    at_home: Path, tmp_path: Path
) -> None:
    decoupled.arm(smoke=True, contender=["SVI, 128 points"], out=tmp_path)
    table = pd.read_csv(tmp_path / "scores.csv")
    first = table["contender"].iloc[0]
    spent = table[table["step"] == 2].groupby("contender")["seconds"].mean()
    assert 0.95 < spent["SVI, 128 points"] / spent[first] < 1.6


@pytest.mark.parametrize("name", ["arm", "arm_once", "stream"])
def test_every_contender_of_a_configuration_can_be_made(name: str) -> None:
    specs = parsed(CONFIGS / f"decoupled_{name}.toml")["contenders"].values()
    assert {spec["kind"] for spec in specs} <= KINDS
    for spec in specs:
        assert baseline(spec, 0).seconds == 0.0
    first = next(iter(specs))
    assert first["kind"] == "family"  # twins take its hyperparameters


def test_contenders_are_known_by_their_kind() -> None:
    with pytest.raises(InputError, match="family, svi, batch_sgpr, local, stochastic"):
        baseline({"kind": "nosuch"}, 0)


def test_scores_are_those_of_their_definitions() -> None:
    y = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    split = TableSplit(y, y, y, y)
    law = torch.tensor([0.5, 2.0]).double(), torch.tensor([1.0, 4.0]).double()
    got = scores(law, split)
    assert got["nmse"] == pytest.approx(0.125)  # variance 1 of the test outcomes, mean square 1/8
    density = torch.distributions.Normal(law[0], law[1].sqrt()).log_prob(y[:, 0])
    assert got["nlpd"] == pytest.approx(-float(density.mean()))


def test_a_split_is_of_one_outcome_and_the_same_rows() -> None:
    c = {"train": 60, "test": 20}
    one, other = split_of("made up", 0, c, 3), split_of("made up", 1, c, 3)
    assert torch.equal(one.X, other.X) and not torch.equal(one.Y, other.Y)
    assert (one.X.shape, one.Y.shape, one.X_test.shape) == ((60, 6), (60, 1), (20, 6))
    assert not torch.equal(one.X, split_of("made up", 0, c, 4).X)


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
    law = torch.full((4,), 0.4).double(), torch.full((4,), 4.04).double()
    got = distance(law, truth, 0.04)
    assert got == {"mean_error": pytest.approx(2.0), "deviation": pytest.approx(2.0)}
    X, Y = rows(300, 0.01, 0)
    assert X.min() < -4.5 and X.max() > 4.5
    assert float((Y - torch.sinc(X)).std()) == pytest.approx(0.01, rel=0.2)
