"""The commit that results come from, and its absence."""

import subprocess
from pathlib import Path

from experiments.common.provenance import _asked, provenance


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    ran = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def test_commit_and_changes_of_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert _asked(tmp_path) == {"commit": head, "clean": True}
    (tmp_path / "new").touch()
    _asked.cache_clear()
    assert _asked(tmp_path) == {"commit": head, "clean": False}


def test_outside_of_a_repository_nothing_is_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    inner = tmp_path / "inner"
    inner.mkdir()
    assert _asked(inner) == {"commit": None, "clean": None}
    assert set(provenance()) == {"commit", "clean"}
