"""The benchmarks run in their smoke mode; what they measure is not asserted on a busy machine."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.benchmarks import bo_step_cost, fit_quality, nipv_cost


def test_bo_step_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bo_step_cost", "--smoke"])
    bo_step_cost.main()
    assert "exactly 5 objective evaluations" in capsys.readouterr().out
    early = pd.read_csv("results/benchmarks/bo_step_cost_early.csv")
    assert early["problem"].tolist() == ["levy", "ackley"]
    parts = early[["fit", "acquisition", "update"]].sum(axis=1)
    assert bool((early["step"] > 0.5 * parts).all())  # medians of parts and of their sum
    for name in ("late", "exact"):
        table = pd.read_csv(f"results/benchmarks/bo_step_cost_{name}.csv")
        assert bool((table.select_dtypes("number") > 0).all(axis=None))


def test_fit_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fit_quality", "--smoke"])
    fit_quality.main()
    assert "median paired difference" in capsys.readouterr().out
    table = pd.read_csv("results/benchmarks/fit_quality.csv")
    assert table["seed"].tolist() == [0, 1]
    assert bool((table["kept, fit evaluations"] > 0).all())


def test_nipv_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nipv_cost", "--smoke"])
    nipv_cost.main()
    assert "resident memory" in capsys.readouterr().out
    table = pd.read_csv("results/benchmarks/nipv_cost.csv")
    assert table["acquisition"].tolist() == ["WISKI"] * 4 + ["stock qNIPV"]
