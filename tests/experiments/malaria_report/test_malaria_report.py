"""The report on saved campaigns: what it compares, and what it refuses."""

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from experiments.malaria_report import __main__ as malaria_report


def test_the_report_takes_the_middle_step_for_half_way(smoke):
    out, _ = smoke
    result = CliRunner().invoke(malaria_report.app, [str(out)])
    assert result.exit_code == 0, result.output
    assert "synthetic_incidence_seed0: Synthetic field" in result.output
    report = pd.read_csv(out / "report.csv")
    assert sorted(report["observation"]) == ["known noise", "raster"]
    assert report["n half way"].tolist() == [22, 22]
    numbers = report.select_dtypes("number").drop(columns="seed")
    assert bool((numbers > 0).all(axis=None))
    ratio = report["nipv"] / report["random"]  # pandas 2 reads a CSV to the last digit but one
    np.testing.assert_allclose(report["nipv / random"], ratio, rtol=1e-12)


def test_the_report_refuses_with_a_message(smoke, refused, tmp_path):
    out, _ = smoke
    assert "does not exist" in refused(malaria_report.app, "/nonexistent")
    message = refused(malaria_report.app, out, "--half", 610)
    assert "10, 16, 22, ..., 28; got 610" in message
    assert "got 0 campaigns" in refused(malaria_report.app, tmp_path)
    (tmp_path / "other.json").write_text("{}")
    assert "JSON of a saved campaign" in refused(malaria_report.app, tmp_path)
    for path in out.glob("*raster*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "other.json").unlink()
    (shorter,) = tmp_path.glob("*random*.csv")
    pd.read_csv(shorter).iloc[:-1].to_csv(shorter, index=False)
    assert "one length, got 28 cells" in refused(malaria_report.app, tmp_path)
