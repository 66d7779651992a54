"""Benchmarks in their smoke mode, where there is more to see than that they run.

Times are not asserted on a busy machine; that the others run is seen by ``make smoke``, which
runs the slow ones here too.
"""

from pathlib import Path

import pandas as pd
import pytest

from experiments.benchmarks import (
    acquisition_cost,
    bo_step_cost,
    campaign_cost,
    fit_modes,
    ingest_cost,
    large_grid_cost,
    nipv_cost,
    svdgp_cost,
    table_error,
)


@pytest.mark.slow
def test_bo_step_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bo_step_cost.main(smoke=True)
    assert "exactly 5 objective evaluations" in capsys.readouterr().out
    early = pd.read_csv("results/benchmarks_smoke/bo_step_cost_early.csv")
    assert early["problem"].tolist() == ["levy", "ackley"]
    parts = early[["fit", "acquisition", "update"]].sum(axis=1)
    assert bool((early["step"] > 0.5 * parts).all())  # medians of parts and of their sum
    assert bool(early["wall-clock / parts"].between(0.98, 1.02).all())
    for name in ("late", "exact"):
        table = pd.read_csv(f"results/benchmarks_smoke/bo_step_cost_{name}.csv")
        assert bool((table.select_dtypes("number") > 0).all(axis=None))


@pytest.mark.slow
def test_acquisition_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    acquisition_cost.main(out=tmp_path, smoke=True)
    assert "closed (c)" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "acquisition_cost.csv")
    assert table["acquisition"].tolist() == ["qucb", "qlogei"] * 3
    assert bool((table["apart"] < 1e-2).all())


@pytest.mark.slow
def test_fit_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit_modes.main(out=tmp_path, smoke=True)
    assert "all families, 9 hard problems: 0.0% (limit 2%)" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "fit_modes.csv")
    assert table["family"].tolist() == ["exact"] * 3 + ["wiski"] * 3 + ["cagp"] * 3
    assert bool((table["best start"] <= table["value"] + 1.0).all())


def test_nipv_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nipv_cost.main(smoke=True)
    assert "resident memory" in capsys.readouterr().out
    table = pd.read_csv("results/benchmarks_smoke/nipv_cost.csv")
    assert table["acquisition"].tolist() == ["WISKI"] * 4 + ["stock qNIPV"]
    pools = pd.read_csv("results/benchmarks_smoke/nipv_pool_cost.csv")
    assert pools["family"].tolist() == ["NodeWISKI", "HSGP", "OnlineSGPR", "CaGP", "ExactGP"]
    assert bool(pools["same picks"].all())


def test_svdgp_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svdgp_cost.main(out=tmp_path, smoke=True)
    assert "RMSE ratio" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "svdgp_cost.csv")["n"].tolist() == [150, 400]
    assert bool((pd.read_csv(tmp_path / "svdgp_folding.csv")["ratio"] < 1.0).all())


def test_large_grid_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large_grid_cost.main(out=tmp_path, smoke=True)
    assert "evidence and gradient" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "large_grid_cost.csv")
    assert table["nodes"].tolist() == [4913] * 3 + [216] * 3
    assert (table["mean off"] < 1e-3).all()


@pytest.mark.slow
def test_campaign_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    campaign_cost.main(smoke=True)
    assert "on top of the surrogate" in capsys.readouterr().out
    table = pd.read_csv("results/benchmarks_smoke/campaign_cost.csv")
    assert len(table) == 8 and bool((table["fits"] == 0).all())
    size = pd.read_csv("results/benchmarks_smoke/campaign_size.csv")
    assert size["snapshots saved"].is_monotonic_increasing
    assert bool((size["bytes a trial more"].dropna() < 1_000).all())


@pytest.mark.slow
def test_ingest_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    ingest_cost.main(out=tmp_path, smoke=True)
    assert "Relative difference of the evidence" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "ingest_cost.csv")
    assert table["workers"].tolist() == [1, 2] and table["rows"].tolist() == [4000, 4000]
    assert bool((table.loc[0, ["read", "absorb", "merge"]] > 0.0).all())


def test_table_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table_error.main(out=tmp_path, smoke=True)
    assert "projected_wiski" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table_error.csv")
    assert table["table"].tolist() == ["made-up"] * 3
    assert bool((table["rmse"] < 0.9).all())  # of a function that is nearly a sum
