"""What tests of pages share: the folder of a study that was never run, and a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
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


def made(
    folder: Path, labels: dict[str, str], seeds: int, steps: int, task: str | None = "levy"
) -> Path:
    """The folder of a study that was never run."""
    folder.mkdir()
    for k, (stem, label) in enumerate(labels.items()):
        for seed in range(seeds):
            draws = np.random.default_rng([k, seed])
            seconds = draws.lognormal(-3.0, 0.3, (3, steps + 1))
            run = {"step": np.arange(steps + 1), "n": 10 + 3 * np.arange(steps + 1), "bytes": 800}
            parts = ("fit_seconds", "acquisition_seconds", "update_seconds")
            run |= dict(zip(parts, seconds, strict=True))
            run |= {"step_seconds": seconds.sum(0), "wallclock_seconds": seconds.sum(0).cumsum()}
            fall = (k + 1.0) * np.exp(-run["step"] / 30.0)
            for regret in ("simple_regret", "inference_regret"):
                run[regret] = fall * draws.lognormal(0.0, 0.5, steps + 1)
            frame = pd.DataFrame(run)
            frame.loc[1, "inference_regret"] = np.nan
            frame.to_csv(folder / f"{stem}_{seed}.csv", index=False)
            about = {"label": label, "config": {"q": 3, "seed": seed}}
            about |= {"environment": {"cpu": "Abacus 3", "versions": {"torch": "2.13"}}}
            about |= {"problem": {"name": task, "dim": 2}} if task else {}
            (folder / f"{stem}_{seed}.json").write_text(json.dumps(about))
    return folder
