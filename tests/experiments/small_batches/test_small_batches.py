"""The study of small batches, in its smoke mode."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.small_batches import __main__ as small_batches


@pytest.mark.slow  # that it runs is seen by `make smoke`
def test_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small_batches.main(smoke=True)
    out = capsys.readouterr().out
    assert "Pruned(VIPS)" in out and "every batch, priors, trust" in out
    folder = Path("results/small_batches_smoke")
    assert len(list(folder.glob("*.png"))) == 5
    ends = pd.read_csv(folder / "mended.csv").groupby("policy").last()
    assert ends["points"]["Pruned(VIPS)"] < 0.5 * ends["points"]["VIPS"]
    assert ends["rmse"]["Pruned(VIPS)"] == pytest.approx(ends["rmse"]["VIPS"], rel=0.05)
