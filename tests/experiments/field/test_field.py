"""The study of a magnetic field, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.field import __main__ as field


def test_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    field.main(smoke=True)
    folder = Path("results/field_smoke")
    table = pd.read_csv(folder / "batches.csv")
    assert (folder / "map.png").exists() and "all at once" in capsys.readouterr().out
    assert table["rmse"].iloc[-2] < 0.5 * table["rmse"].iloc[0]
