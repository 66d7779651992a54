"""Help and the package itself import nothing heavy."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from bo_stream.cli.app import app

COMMANDS = list(typer.main.get_command(app).commands)
HEAVY = (
    "torch",
    "scipy",
    "scipy.stats",
    "sympy",
    "gpytorch",
    "botorch",
    "pandas",
    "numpy",
    "matplotlib",
    "jinja2",
    "sqlalchemy",
    "rich",
    "pydantic",
)


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TORCH_EXTENSIONS_DIR"}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


MAIN = f"""
import sys
from bo_stream.__main__ import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def test_all_commands_are_there() -> None:
    known = "init, run, resume, status, recommend, trials, plot, suggest, tell, amend, withdraw"
    assert ", ".join(map(str, COMMANDS)) == f"{known}, widen, change, map, report, check"


@pytest.mark.parametrize("args", [[], *([str(name)] for name in COMMANDS)])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    done = python(MAIN, *args, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(" ".join(["Usage: bo-stream", *args]))
    assert done.stderr == "[]\n"


def test_what_cannot_be_is_refused_before_anything_heavy_is_imported() -> None:
    for args, says in (
        (("run", "none.toml"), "none.toml cannot be read"),
        (("plot", "lab.db", "--out", "a.foo"), "Expected a file of .png, .pdf or .svg; got a.foo"),
    ):
        done = python(MAIN, *args)
        assert done.returncode == 2 and says in done.stderr
        assert done.stderr.endswith("\n['pydantic']\n")  # typer's own


@pytest.mark.parametrize(
    "args",
    [
        ("status", "oven.db"),
        ("trials", "oven.db", "--csv", "all.csv"),
        ("tell", "oven.toml", "told.csv"),
        ("amend", "oven.db", "told.csv"),
        ("withdraw", "oven.db", "1", "--reason", "draught"),
        ("plot", "oven.db"),
        ("check", "oven.db"),
        ("run", "wrong.toml"),
    ],
    ids=lambda args: args[0],
)
def test_commands_without_a_surrogate_import_no_torch(
    tmp_path: Path, bo: Callable[..., Any], oven: Path, args: tuple[str, ...]
) -> None:
    """Nor what takes as long as torch together; `tell` of a store that was told before."""
    pytest.importorskip("sqlalchemy")
    assert bo("run", oven)[0] == 0
    (tmp_path / "told.csv").write_text("trial,y\n3,2.0\n")
    (tmp_path / "wrong.toml").write_text('name = "oven"\nbugdet = 3\n')
    bo("amend", "oven.db", "told.csv")
    done = python(MAIN, *args)
    assert done.returncode == (2 if "wrong.toml" in args else 0), done.stderr
    imported = set(ast.literal_eval(done.stderr.splitlines()[-1]))
    assert not imported & {"torch", "scipy", "sympy", "gpytorch", "botorch"}


def test_a_recommendation_imports_no_statistics_of_scipy(
    tmp_path: Path, bo: Callable[..., Any], oven: Path
) -> None:
    """They take a third of a second, and are imported where they are first used."""
    pytest.importorskip("sqlalchemy")
    assert bo("run", oven)[0] == 0
    done = python(MAIN, "recommend", "oven.db")
    assert done.returncode == 0, done.stderr
    imported = set(ast.literal_eval(done.stderr.splitlines()[-1]))
    assert "torch" in imported and "scipy.stats" not in imported


def test_without_typer_one_line_names_the_extra() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom bo_stream.__main__ import main; main()"
    done = python(code, "--help")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "bo-stream needs typer (extra 'cli'): pip install 'bo_stream[cli]'\n"


def test_names_of_the_package_are_imported_when_used() -> None:
    """So are sample functions registered, whichever surrogate is imported; nothing else is set."""
    code = """
import os, pickle, sys
import bo_stream
from bo_stream.campaign.outcomes.outcomes import SPELLINGS
assert "torch" not in sys.modules and "WISKI" in dir(bo_stream)
from bo_stream import WISKI
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
assert DrawMatheronPaths.dispatch(WISKI) is not DrawMatheronPaths.dispatch(object)
assert bo_stream.WISKI is WISKI and pickle.loads(pickle.dumps(WISKI)) is WISKI
everything = {}
exec("from bo_stream import *", everything)
assert set(bo_stream.__all__) <= set(everything)
assert bo_stream.growth.VIPS and bo_stream.load
assert bo_stream.__version__[0].isdigit() and "__version__" in dir(bo_stream)
assert "TORCH_EXTENSIONS_DIR" not in os.environ
try:
    bo_stream.nothing
except AttributeError as error:
    print(error)
"""
    done = python(code)
    assert done.stderr == ""
    assert done.stdout == "module 'bo_stream' has no attribute 'nothing'\n"
