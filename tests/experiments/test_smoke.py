"""What `make smoke` runs, and what it says of a command that fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import smoke
from experiments.common.command import CONFIGS


def test_every_configuration_study_and_benchmark_is_run() -> None:
    names = smoke.commands()
    assert len(set(names)) == len(names)
    for config in CONFIGS.glob("*.toml"):
        assert sum(name.endswith(f" {config.name}") for name in names) == 1, config
    ran = {name.split()[0] for name in names}
    studies = {path.parent.name for path in CONFIGS.parent.glob("*/__main__.py")}
    assert studies | {"small_batches"} < ran
    costs = {f"benchmarks.{path.stem}" for path in CONFIGS.parent.glob("benchmarks/*_cost.py")}
    assert costs < ran and {"benchmarks.fit_modes", "benchmarks.fit_quality"} < ran
    assert "growth growth.toml" in names and "decoupled arm decoupled_arm_once.toml" in names


def test_a_configuration_that_nothing_runs_is_named() -> None:
    with pytest.raises(ValueError, match=r"orphan\.toml"):
        smoke.run_by(Path("orphan.toml"), ["comparison", "growth"])


def test_commands_that_fail_are_shown_and_the_others_run(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom experiments.smoke import report\n"
        f"sys.exit(report(['nothing of this name', 'common.kernels'], Path({str(tmp_path)!r}), 2))"
    )
    root = CONFIGS.parents[1]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert ran.returncode == 1, ran.stderr
    assert "2 commands in" in ran.stdout and ", 1 failed" in ran.stdout
    assert "No module named experiments.nothing" in ran.stdout
    assert (tmp_path / "common.kernels" / "printed.txt").is_file()
