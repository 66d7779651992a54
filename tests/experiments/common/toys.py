"""Toy runs of milliseconds for tests of sweeps."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.common.tables import write_table


@dataclass(frozen=True)
class Toy:
    """A random walk of the seed; ``calls`` gets a line when it is done."""

    seed: int
    calls: str
    steps: int = 3
    pause: float = 0.005
    how: str = "well"

    @property
    def stem(self) -> str:
        return f"toy_{self.seed}"

    def execute(self, folder: Path) -> None:
        walk = np.random.default_rng(self.seed).normal(size=self.steps).cumsum()
        time.sleep(self.pause)
        mended = Path(self.calls, "mended").exists()
        if self.how == "fails" and not mended:
            raise LookupError("no such oven")
        if self.how == "dies":
            os._exit(3)
        if self.how == "is interrupted" and not mended:
            raise KeyboardInterrupt
        frame = pd.DataFrame({"step": range(1, self.steps + 1), "value": walk})
        if self.how == "writes half":
            frame.to_csv(folder / f"{self.stem}.csv")
            return
        write_table(frame, folder / f"{self.stem}.csv", {"seed": self.seed})
        with open(Path(self.calls, self.stem), "a") as file:
            file.write("x")


def toys(folder: Path, count: int = 6, **options: Any) -> list[Toy]:
    """Runs that note their calls in a folder."""
    folder.mkdir(exist_ok=True)
    return [Toy(seed, str(folder), **options) for seed in range(count)]


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
