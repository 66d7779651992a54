"""What commands share: instant help, folders of smoke runs, errors of one line."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import typer

from experiments.common.command import CONFIGS, TAKES, begin, folder, parsed, read, selected, start

STUDIES = sorted(path.parent.name for path in CONFIGS.parent.glob("*/__main__.py"))
BENCHMARKS = sorted(
    f"benchmarks.{path.stem}" for path in CONFIGS.parent.glob("benchmarks/*_cost.py")
)


def module_of(name: str) -> ModuleType:
    return import_module(f"experiments.{name}" + ("" if "." in name else ".__main__"))


def run(name: str, *arguments: str) -> None:
    sys.argv = [name, *arguments]  # given back by the fixture below
    start(module_of(name).app)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)


def test_every_study_of_the_readme_is_a_folder_with_a_command() -> None:
    assert STUDIES == [
        "active_learning",
        "bayesopt",
        "computation_aware_tables",
        "computation_aware_toy",
        "cost",
        "decoupled",
        "field",
        "fx_stream",
        "growth",
        "malaria_report",
        "model_size",
        "small_batches",
        "stream_classification",
        "stream_regression",
    ]
    readme = (CONFIGS.parents[1] / "README.md").read_text(encoding="utf-8")
    for name in [*STUDIES, *BENCHMARKS, "benchmarks.fit_modes", "benchmarks.fit_quality"]:
        assert f"`{name}" in readme, name


@pytest.mark.parametrize(
    "name", [*STUDIES, *BENCHMARKS, "benchmarks.fit_modes", "benchmarks.fit_quality"]
)
def test_help_does_not_wait_for_torch(name: str) -> None:
    code = (
        "import runpy, sys\nsys.argv = ['command', '--help']\n"
        f"try:\n    runpy.run_module('experiments.{name}', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'botorch', 'matplotlib', 'pandas', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    root = CONFIGS.parents[1]
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert shown.returncode == 0, shown.stderr
    assert "--help" in shown.stdout


def test_smoke_results_lie_beside_the_real_ones(tmp_path: Path) -> None:
    assert folder("results/a", None, False) == Path("results/a")
    assert folder("results/a", None, True) == Path("results/a_smoke")
    assert folder("results/a", tmp_path / "b", True) == tmp_path / "b"  # named: taken as it is
    assert Path("results/a_smoke").is_dir() and (tmp_path / "b").is_dir()


@pytest.mark.parametrize("name", ["field", "fx_stream", "growth", "model_size"])
def test_every_default_config_reads_as_itself(name: str) -> None:
    default = module_of(name).CONFIG
    assert read(default, default)["output"].startswith("results/")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["growth", "nosuch.toml"], "does not exist"),
        (["bayesopt", "run", "nosuch.toml"], "does not exist"),
        (["growth", str(CONFIGS / "demo.toml")], "has no output, streams"),
        (["bayesopt", "run", str(CONFIGS / "growth.toml")], "problem"),
        (["model_size", "--table", "nosuch"], "concrete"),
        (["fx_stream", "--method", "nosuch"], "online_sgpr"),
        (["growth", "--kernel", "nosuch"], "product"),
    ],
)
def test_what_cannot_be_run_is_said_without_a_traceback(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch
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


def test_a_configuration_says_how_long_it_takes_if_that_was_measured(tmp_path: Path) -> None:
    for config in CONFIGS.glob("*.toml"):
        assert parsed(config).get(TAKES, "about ").startswith("about "), config
    default = CONFIGS / "growth.toml"
    lines = default.read_text().splitlines()
    own = tmp_path / "own.toml"  # one's own need not
    own.write_text("\n".join(line for line in lines if not line.startswith(TAKES)))
    assert TAKES not in read(own, default)


def test_a_malformed_config_is_named(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("[")
    with pytest.raises(typer.BadParameter, match="study.toml is no TOML"):
        read(path, CONFIGS / "growth.toml")


def test_names_are_taken_in_the_order_of_the_config() -> None:
    assert selected(["b", "a"], {"a": 1, "b": 2, "c": 3}, "--table") == ["a", "b"]
    assert selected(None, "abc", "--table") == ["a", "b", "c"]


@pytest.mark.parametrize(("name", "file"), [("model_size", "concrete"), ("fx_stream", "fx2007")])
def test_missing_data_is_named_with_a_way_out(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)
    with pytest.raises(SystemExit, match=rf"{file}.*BO_STREAM_DATA.*--smoke"):
        run(name)
