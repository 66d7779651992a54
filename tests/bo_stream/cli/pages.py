"""What tests of pages share: a browser."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium to open pages with"
)


def chromium(page: Path, light: bool, *task: str) -> "subprocess.CompletedProcess[str]":
    """Open a page without a window, for ten seconds of its own clock."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    own = (f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=10000")
    look = f"--blink-settings=preferredColorScheme={int(light)}"
    return subprocess.run(
        [str(CHROMIUM), *options, *own, look, *task, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
