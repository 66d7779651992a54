"""Without its extras a command ends in one line that names them."""

import subprocess
import sys

import pytest

from experiments.common.extras import missing

BLOCKED = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
sys.argv = [{module!r}, *{arguments!r}]
runpy.run_module({module!r}, run_name="__main__")
"""


@pytest.mark.parametrize("package", ["typer", "rich", "matplotlib"])
@pytest.mark.parametrize("command", ["bayesopt demo --smoke", "growth --smoke"])
def test_a_missing_extra_is_named_in_one_line(package: str, command: str, tmp_path) -> None:
    name, *arguments = command.split()
    code = BLOCKED.format(package=package, module=f"experiments.{name}", arguments=arguments)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 1 and ran.stdout == ""
    (line,) = ran.stderr.strip().splitlines()
    assert package in line and 'pip install "bo_stream[cli,plots]"' in line
    assert not list(tmp_path.iterdir())


def test_help_needs_no_pictures(tmp_path) -> None:
    code = BLOCKED.format(package="matplotlib", module="experiments.growth", arguments=["--help"])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0 and "Usage" in ran.stdout


def test_other_missing_modules_are_not_taken_for_extras() -> None:
    assert missing(ModuleNotFoundError("No module named 'torch'", name="torch")) is None
    assert "plots" in (missing(ImportError("matplotlib is blocked")) or "")
