"""What commands share: folders of results, configurations, errors of one line."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from experiments import smoke
from experiments.common.command import CONFIGS, TAKES, begin, parsed, read, start

ROOT = CONFIGS.parents[1]
PROGRAMS = sorted({name.split()[0] for name in smoke.commands()} | {"malaria_report"})
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


def app_of(name: str) -> Any:
    """The program of that name."""
    package = (CONFIGS.parent / name / "__main__.py").exists()
    return import_module(f"experiments.{name}" + (".__main__" if package else "")).app


def run(name: str, *arguments: str) -> None:
    sys.argv = [name, *arguments]  # given back by the fixture below
    start(app_of(name))


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)


def ran(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    where = os.environ | {"PYTHONPATH": str(ROOT)}  # studies are not installed
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=where)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(name, "--help")
    assert not end.value.code and "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["comparison", "active_learning"])
def test_help_of_long_studies_does_not_wait_for_torch(name: str) -> None:
    shown = ran(
        "import runpy, sys\nsys.argv = ['command', '--help']\n"
        f"try:\n    runpy.run_module('experiments.{name}', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'botorch', 'matplotlib', 'pandas', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert shown.returncode == 0, shown.stderr


def test_smoke_results_lie_beside_the_real_ones(tmp_path: Path) -> None:
    assert begin("results/a", None, False) == Path("results/a")
    assert begin("results/a", None, True) == Path("results/a_smoke")
    assert begin("results/a", tmp_path / "b", True) == tmp_path / "b"  # named: taken as it is
    assert Path("results/a_smoke").is_dir() and (tmp_path / "b").is_dir()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["growth", "nosuch.toml"], "does not exist"),
        (["comparison", "nosuch.toml"], "does not exist"),
        (["growth", str(CONFIGS / "demo.toml")], "has no floor, kernel"),
        (["comparison", str(CONFIGS / "growth.toml")], "has no method, task"),
        (["cost", str(CONFIGS / "classes.toml")], "has no"),
    ],
)
def test_what_cannot_be_run_is_said_without_a_traceback(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # rich breaks lines
    with pytest.raises(SystemExit) as stop:
        run(*command)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_a_command_says_first_how_long_it_takes_and_where_results_go(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    begin("results/a", tmp_path / "b", False, "about 3 minutes on one core")
    begin("results/a", None, True, "about 3 minutes on one core")
    begin("results/a", None, False)
    assert capsys.readouterr().out.splitlines() == [
        f"Takes about 3 minutes on one core. Results go to {tmp_path / 'b'}/.",
        "A smoke run takes seconds. Results go to results/a_smoke/.",
        "How long this takes depends on the configuration. Results go to results/a/.",
    ]


def test_a_configuration_has_the_keys_of_the_default_and_need_not_say_how_long(
    tmp_path: Path,
) -> None:
    default, own = CONFIGS / "growth.toml", tmp_path / "own.toml"
    lines = default.read_text().splitlines()
    own.write_text("\n".join(line for line in lines if not line.startswith(TAKES)))
    assert TAKES not in read(own, default) and read(default, default)["output"]
    own.write_text("colour = 1\n" + default.read_text())
    with pytest.raises(typer.BadParameter, match=r"own\.toml has colour; known are ") as refused:
        read(own, default)
    assert "\n" not in str(refused.value)
    own.write_text("\n".join(line for line in lines if not line.startswith("seeds")))
    with pytest.raises(typer.BadParameter, match="has no seeds"):
        read(own, default)
    own.write_text("[")
    with pytest.raises(typer.BadParameter, match=r"own.toml is no TOML"):
        read(own, default)
    for config in CONFIGS.glob("*.toml"):
        assert parsed(config).get(TAKES, "about ").startswith(("about ", "at most ")), config


def test_missing_data_is_named_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"malaria_ethiopia.*BO_STREAM_DATA.*--smoke"):
        run("counts.schools")


@pytest.mark.parametrize(
    "package", ["typer", "rich", "matplotlib", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_a_missing_extra_is_named_in_one_line(package: str, tmp_path: Path) -> None:
    arguments = ["--smoke"]
    code = BLOCKED.format(package=package, module="experiments.comparison", arguments=arguments)
    ended = ran(code, tmp_path)
    assert ended.returncode == 1 and not list(tmp_path.iterdir())
    (line,) = ended.stderr.strip().splitlines()
    assert package in line and 'pip install "bo_stream[cli,plots,workers]"' in line
