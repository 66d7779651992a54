"""What benchmarks share: one thread, a folder of results, tables printed and written."""

import warnings
from collections.abc import Callable, Iterable

import pandas as pd
import torch
from typer import Typer

from experiments.common.command import Out, Smoke, begin, command
from experiments.common.progress import say

Tables = Iterable[tuple[str, pd.DataFrame]]
"""Tables with the names of their files, without suffix."""
LONG = 40
"""Rows of a table that is written but not printed."""


def benchmark(measure: Callable[[bool], Tables], takes: str, help: str | None) -> Typer:
    """A program that measures, in a smoke run for seconds, and shows the tables as they come."""

    def main(out: Out = None, smoke: Smoke = False) -> None:
        folder = begin("results/benchmarks", out, smoke, takes)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling, retries of optimisers
        for name, table in measure(smoke):
            table.to_csv(folder / f"{name}.csv", index=False)
            if len(table) < LONG:
                say(f"\n{table.to_string(index=False, float_format='{:.4g}'.format, na_rep='-')}")

    return command(main, help)
