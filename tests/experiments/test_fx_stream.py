"""The stream of an exchange rate."""

import pytest
import torch

from experiments.fx_stream import PICTURES, follow, stream

SYNTHETIC = {"table": "synthetic", "held_out": 0.2, "initial": 0.05}


@pytest.mark.parametrize("order", ["time", "random"])
def test_every_day_is_seen_or_held_out(order: str) -> None:
    streams = [stream(order, seed, SYNTHETIC) for seed in (0, 1)]
    for s in streams:
        assert (len(s.X), len(s.X_test), s.initial) == (48, 12, 3)
        assert len(torch.cat([s.X, s.X_test]).unique()) == 60
        assert bool((s.X[1:] > s.X[:-1]).all()) == (order == "time")
    assert not torch.equal(streams[0].X_test, streams[1].X_test)


def test_days_are_scored_before_they_are_seen() -> None:
    data = stream("random", 0, SYNTHETIC)
    options = {"options": {}, "evaluations": 0}
    table = follow("exact", data, data.pretrained(), options)
    assert table["n"].tolist() == list(range(4, 49)) and bool(table.notna().all(axis=None))
    assert table["mean_loss"].iloc[-1] == pytest.approx(table["loss"].mean())
    assert table["running_rmse"].iloc[-1] == pytest.approx(table["square"].mean() ** 0.5)
    assert {*PICTURES} < set(table)
    assert table["rmse"].iloc[-1] < 0.5 * table["rmse"].iloc[0]
