"""What benchmarks share: a device, one thread, a folder of results, tables printed and written."""

import warnings
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from typer import Typer

from experiments.common.command import BadParameter, Out, Smoke, begin, command, option
from experiments.common.progress import say
from experiments.common.records import environment
from experiments.common.tables import write_table

Tables = Iterable[tuple[str, pd.DataFrame]]
"""Tables with the names of their files, without suffix."""
Measure = Callable[[bool, torch.device], Tables]
"""Measures, in a smoke run for seconds, with tensors and models on a device."""
Device = Annotated[
    Literal["cpu", "cuda"], option(help="Where tensors and models are; cuda has its own folder.")
]
LONG = 40
"""Rows of a table that is written but not printed."""


def benchmark(measure: Measure, takes: str, help: str | None, only_cpu: str = "") -> Typer:
    """A program that measures and shows the tables as they come.

    Beside each table is a JSON file with the device and the environment. ``takes`` is for the
    processor; ``only_cpu`` says why a benchmark refuses any other device.
    """

    def main(out: Out = None, smoke: Smoke = False, device: Device = "cpu") -> None:
        where = checked(device, only_cpu)
        default = "results/benchmarks" + ("" if device == "cpu" else f"_{device}")
        folder = begin(default, out, smoke, takes if device == "cpu" else None)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling, retries of optimisers
        for name, table in measure(smoke, where):
            about = {"device": described(where), "smoke": smoke, "environment": environment()}
            write_table(table, folder / f"{name}.csv", about)
            if len(table) < LONG:
                say(f"\n{table.to_string(index=False, float_format='{:.4g}'.format, na_rep='-')}")

    return command(main, help)


def checked(device: str, only_cpu: str = "") -> torch.device:
    """The device of this name; one that is missing or of no use ends the command in one line."""
    if device != "cpu" and only_cpu:
        raise BadParameter(f"{only_cpu} Leave --device out.")
    if device == "cuda" and not torch.cuda.is_available():
        built = f"torch {torch.__version__} sees none"
        raise BadParameter(f"--device cuda needs a CUDA device; {built}. Leave --device out.")
    return torch.device(device)


def described(device: torch.device) -> dict[str, Any]:
    """The kind of a device, and its name; None for the processor, which the environment names."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"type": device.type, "name": name}
