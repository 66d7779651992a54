"""The study of an exchange rate, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.fx_stream import __main__ as fx_stream
from experiments.fx_stream.recipe import Stream

SYNTHETIC = {"table": "synthetic", "held_out": 0.2, "initial": 0.05}


@pytest.mark.slow  # that it runs is seen by `make smoke`
def test_it_prints_writes_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fx_stream.main(smoke=True)
    assert "random, seed 1, online_svgp" in capsys.readouterr().out
    folder = Path("results/fx_smoke")
    days = pd.read_csv(folder / "days.csv")
    means = pd.read_csv(folder / "means.csv", index_col=["order", "method"])
    assert len(days) == 45 * 4 * 2 and bool(days.notna().all().all())
    one = days[(days["seed"] == 0) & (days["method"] == "wiski")]
    assert one["n"].tolist() == list(range(4, 49))
    assert one["mean_loss"].iloc[-1] == pytest.approx(one["loss"].mean())
    assert one["running_rmse"].iloc[-1] == pytest.approx(one["square"].mean() ** 0.5)
    random = means.loc["random"]
    # fits of two evaluations may end apart, under the same likelihood
    assert random.loc["wiski", "rmse"] == pytest.approx(random.loc["exact", "rmse"], rel=0.2)
    assert random.loc["wiski", "rmse"] < 0.3 and random.loc["online_sgpr", "rmse"] < 0.4
    assert random.loc["wiski", "nll"] < random.loc["online_svgp", "nll"]
    assert len(list(folder.glob("*.png"))) == 4


@pytest.mark.parametrize("order", ["time", "random"])
def test_every_day_is_seen_or_held_out(order: str) -> None:
    streams = [Stream.of(order, seed, SYNTHETIC) for seed in (0, 1)]
    for s in streams:
        assert (len(s.X), len(s.X_test), s.initial) == (48, 12, 3)
        assert len(torch.cat([s.X, s.X_test]).unique()) == 60
        assert bool((s.X[1:] > s.X[:-1]).all()) == (order == "time")
    assert not torch.equal(streams[0].X_test, streams[1].X_test)
