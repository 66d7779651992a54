"""What commands share: instant help, folders of smoke runs, errors of one line."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from experiments.command import CONFIGS, folder, read, selected, start

COMMANDS = [
    "benchmarks.bo_step_cost",
    "benchmarks.cagp_cost",
    "benchmarks.fit_quality",
    "benchmarks.nipv_cost",
    "benchmarks.sgpr_cost",
    "benchmarks.wiski_cost",
    "computation_aware_toy",
    "field",
    "fx_stream",
    "growth",
    "model_size",
    "small_batches",
]


def run(name: str, *arguments: str) -> None:
    sys.argv = [name, *arguments]  # given back by the fixture below
    module = import_module(f"experiments.{name}")
    if name == "bayesopt":
        module.app()
    else:
        start(module.main)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_does_not_wait_for_torch(name: str) -> None:
    code = (
        f"import sys\nimport experiments.{name}\n"
        "heavy = {'torch', 'botorch', 'matplotlib', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    root = Path(__file__).parents[2]
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert shown.returncode == 0, shown.stderr


def test_smoke_results_lie_beside_the_real_ones(tmp_path: Path) -> None:
    assert folder("results/a", None, False) == Path("results/a")
    assert folder("results/a", None, True) == Path("results/a_smoke")
    assert folder("results/a", tmp_path / "b", True) == tmp_path / "b"  # named: taken as it is
    assert Path("results/a_smoke").is_dir() and (tmp_path / "b").is_dir()


@pytest.mark.parametrize("name", ["field", "fx_stream", "growth", "model_size"])
def test_every_default_config_reads_as_itself(name: str) -> None:
    default = import_module(f"experiments.{name}").CONFIG
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
