"""The toy of computation-aware GPs, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.computation_aware_toy import __main__ as computation_aware_toy


def test_the_toy_shows_that_computation_aware_gps_are_never_too_sure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computation_aware_toy.main(seconds=1.0, out=tmp_path, smoke=True)
    assert "least ratio" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table.csv").set_index("surrogate")
    assert table.index.tolist() == ["ExactGP", "SVGP", "CaGP-CG", "CaGP-Opt"]
    assert table.loc["ExactGP", "least ratio"] == pytest.approx(1.0, abs=1e-6)
    assert bool((table.loc[["CaGP-CG", "CaGP-Opt"], "least ratio"] >= 1.0).all())
    assert (tmp_path / "posteriors.png").stat().st_size > 10_000
