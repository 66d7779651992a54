"""The study of computation-aware GPs on tables, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.computation_aware_tables import __main__ as computation_aware_tables


def test_the_tables_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    computation_aware_tables.main(smoke=True)
    assert "error 95" in capsys.readouterr().out
    folder = Path("results/computation_aware_tables_smoke")
    results = pd.read_csv(folder / "results.csv").set_index("contender")
    assert results.index.tolist() == ["ExactGP", "SGPR", "SVGP", "CaGP-CG", "CaGP-Opt"]
    assert results.loc["ExactGP", "rmse"] < 0.3
    curves = pd.read_csv(folder / "curves.csv")
    for label, part in curves.groupby("contender"):
        assert part["seconds"].is_monotonic_increasing, label
        assert part["nll"].iloc[-1] == pytest.approx(results.loc[label, "nll"])
    far = pd.read_csv(folder / "subspaces.csv").set_index("actions")["distance"]
    assert bool(far.between(0.0, 1.0).all()) and far["CaGP-CG"] < far["random"]
    assert (folder / "curves.png").exists() and (folder / "calibration.png").exists()
