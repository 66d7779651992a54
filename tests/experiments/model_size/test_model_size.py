"""The study of model sizes, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.model_size import __main__ as model_size


def test_it_prints_and_writes_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model_size.main(smoke=True)
    assert "exact GP" in capsys.readouterr().out
    folder = Path("results/model_size_smoke")
    (row,) = pd.read_csv(folder / "splits.csv").to_dict("records")
    batches = pd.read_csv(folder / "batches.csv")
    sizes = batches["points"].tolist()
    assert len(sizes) == 4 and sizes == sorted(sizes) and sizes[-1] == row["points"] < 80
    assert row["rmse_full"] < row["rmse"] < 0.5 * row["rmse_mean"] and row["excess_%"] < 15.0
    for error in ("rmse", "nlpd"):
        assert batches[error].iloc[-1] == row[error] < batches[error].iloc[0]
        assert bool((batches[f"{error}_full"] == row[f"{error}_full"]).all())
    assert {path.stem for path in folder.glob("*.png")} == {"points", "seconds", "rmse", "nlpd"}
