"""Objectives by name: found beside the configuration, and found again in another process."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from bo_stream.cli.objective import find_objective
from bo_stream.cli.toml_reader import ConfigError


@pytest.fixture(autouse=True)
def path_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_function_of_a_file_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_random.py").write_text("TWO = 2\n")
    (tmp_path / "random.py").write_text(
        "from neighbour_of_random import TWO\ndef measure(x):\n    return TWO * x\n"
    )
    found = find_objective("random.py:measure", tmp_path)
    assert found(3) == 6
    assert pickle.loads(pickle.dumps(found))(4) == 8
    import random

    assert random.random() < 1.0  # the file has not taken its place
    code = f"import sys; sys.path[:] = {sys.path}; from random import Random"
    subprocess.run([sys.executable, "-c", code], check=True)  # nor where the path is inherited


def test_a_function_of_a_module(tmp_path: Path) -> None:
    assert find_objective("math:sqrt", tmp_path)(9.0) == 3.0


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("measure", "Expected file.py:function"),
        ("none.py:measure", "Expected an existing Python file"),
        ("there.py:measured", "has no function 'measured'"),
        ("broken.py:measure", "cannot be imported: ZeroDivisionError"),
        ("no_such_module_at_all:measure", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_one_that_cannot_be_had_is_refused(tmp_path: Path, named: str, said: str) -> None:
    (tmp_path / "there.py").write_text("def measure(x):\n    return x\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as error:
        find_objective(named, tmp_path)
    assert said in str(error.value)
