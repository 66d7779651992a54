"""A user's file with the name of one of our packages is named in a clear error."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bo_stream.errors import BoStreamError, check_not_shadowed
from tests.docs.pages import ROOT

PROGRAM = """
from bo_stream import Box, Campaign

campaign = Campaign(Box({"x": (0.0, 1.0)}), "exact", "qlogei")
"""


def test_a_program_called_acquisitions_is_told_to_rename_itself(tmp_path: Path) -> None:
    script = tmp_path / "acquisitions.py"
    script.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bo_stream.errors.ShadowedPackageError: ") and done.returncode == 1
    assert str(script) in last and last.endswith("Rename that file or folder.")


@pytest.mark.parametrize("made", ["problems.py", "problems/__init__.py"])
def test_a_file_or_folder_beside_the_program_is_named(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / made).parent.mkdir(exist_ok=True)
    (tmp_path / made).touch()
    monkeypatch.delitem(sys.modules, "problems", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=str(tmp_path / made)) as caught:
        check_not_shadowed("problems")
    assert isinstance(caught.value, BoStreamError)


def test_a_folder_without_code_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problems").mkdir()
    monkeypatch.delitem(sys.modules, "problems", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    check_not_shadowed("problems")
    assert Path(str(importlib.import_module("problems").__file__)).is_relative_to(ROOT)
