"""The studies of computation-aware GPs, in their smoke modes."""

import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments import computation_aware_tables, computation_aware_toy
from experiments.cohort import COLUMNS, cohort
from experiments.contenders import Course, judged
from experiments.subspaces import grassmann
from experiments.tables import Split


@pytest.mark.parametrize("name", ["computation_aware_tables"])
def test_help_does_not_wait_for_torch(name: str) -> None:
    code = f"import sys\nfrom experiments import {name}\nassert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


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


def test_grassmann_distance_is_that_of_known_angles() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    for angles in ([0.3, 1.1], [0.0, math.pi / 2], [1e-9, 0.2]):
        turned = [
            math.cos(a) * eye[:, k] + math.sin(a) * eye[:, k + 2] for k, a in enumerate(angles)
        ]
        mixed = torch.stack(turned, -1) @ torch.tensor([[2.0, 1.0], [0.5, -1.0]]).double()
        want = math.hypot(*angles) / (math.sqrt(2) * math.pi / 2)
        assert grassmann(eye[:, :2], mixed) == pytest.approx(want, abs=1e-12)
    assert grassmann(eye[:, :2], eye[:, 2:4]) == pytest.approx(1.0)


def test_scores_of_a_right_law() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 2.0 * torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    split = Split(y, y, y, y)
    row = judged(lambda X: (torch.zeros(len(X)), torch.full((len(X),), 4.0)), split)
    assert row["nll"] == pytest.approx(0.5 * math.log(2 * math.pi * 4.0) + 0.5, abs=0.02)
    assert row["rmse"] == pytest.approx(2.0, abs=0.03)
    for level in (0.5, 0.95):
        assert row[f"coverage {level}"] == pytest.approx(level, abs=0.01)


def test_scoring_is_outside_the_account() -> None:
    split = Split.of("cohort", 40, 20, 0)
    course = Course(split, 100.0)

    def slow(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(200):
            torch.randn(100, 100) @ torch.randn(100, 100)
        return torch.zeros(len(X)), torch.ones(len(X))

    before = course.seconds
    for _ in range(5):
        course.note(slow)
    spent = course.seconds - before
    assert 0.0 <= spent < 0.02
    assert [row["seconds"] for row in course.rows] == sorted(row["seconds"] for row in course.rows)


def test_the_cohort_is_shuffled_and_smooth_in_who_and_when() -> None:
    X, Y = cohort(subjects=4, sessions=10)
    assert X.shape == (240, len(COLUMNS)) and Y.shape == (240, 1)
    assert len(X[:12, 0].unique()) > 1
    for subject in range(4):
        rows = X[:, 0] == subject
        day, score = X[rows, 3], Y[rows, 0]
        order = day.argsort()
        slopes = score[order].diff().abs() / day[order].diff().clamp_min(1e-9)
        assert len(X[rows, 1].unique()) == 1 and slopes.max() < 0.3  # points a day
    again, _ = cohort(subjects=4, sessions=10)
    assert torch.equal(X, again)


def test_a_split_is_standardised_and_shares_no_row() -> None:
    split = Split.of("cohort", 400, 100, 1)
    assert len(split.X) == 400 and len(split.X_test) == 100
    assert torch.allclose(split.X.mean(0), torch.zeros(20).double(), atol=1e-9)
    assert torch.allclose(split.Y.std(0), torch.ones(1).double())
    assert len(torch.cat([split.X, split.X_test]).unique(dim=0)) == 500
