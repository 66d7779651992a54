"""The git commit that results come from."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["provenance"]


def provenance() -> dict[str, Any]:
    """The git commit of this code, and whether the working tree was clean.

    Both are None where there is no repository or no git. Git is asked once in each process.
    """
    return dict(_asked(Path(__file__).parents[2]))


@cache
def _asked(folder: Path) -> dict[str, Any]:
    commit = _git(folder, "rev-parse", "HEAD")
    changed = None if commit is None else _git(folder, "status", "--porcelain")
    return {"commit": commit, "clean": None if changed is None else not changed}


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if it cannot say."""
    try:
        ran = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30.0
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None
