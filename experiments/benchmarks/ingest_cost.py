"""Ingestion of CSV partitions by Dask workers: rows a second, and what bounds them.

Run `python -m experiments.benchmarks.ingest_cost` (add `--smoke` for a run of seconds, `--rows` and
`--workers` for others). Writes partitions of made-up rows to a temporary folder, then has one
worker and several ingest them into a WISKI of 900 nodes. The last columns are one process's seconds
by part, measured without Dask: reading, absorbing, merging. Workers have one thread each and are
started and warm before the clock.

Prints a table and writes `results/benchmarks/ingest_cost.csv`.
"""

from typing import Annotated

from experiments.common.command import Out, Smoke, begin, command, option, start
from experiments.common.progress import say

TAKES = "about a minute"

Rows = Annotated[int, option(help="Rows in all.")]
Workers = Annotated[int, option(help="Dask workers to compare with one.")]


def main(
    out: Out = None, smoke: Smoke = False, rows: Rows = 1_000_000, workers: Workers = 2
) -> None:
    """Write partitions, ingest them, compare."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=("distributed",))

    import tempfile
    from pathlib import Path

    import pandas as pd
    import torch

    from experiments.benchmarks.ingest_tasks import by_part, ingested, written

    torch.set_num_threads(1)
    n, size = (4_000, 1_000) if smoke else (rows, 50_000)
    lines: list[dict[str, float]] = []
    evidence = []
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder), n, size)
        for count in (1, workers):
            seconds, used, value = ingested(paths, count)
            evidence.append(value)
            line = {"workers": count, "rows": n, "seconds": seconds, "CPU s": used}
            line["rows/s"] = n / seconds
            lines.append(line | {"rate": lines[0]["seconds"] / seconds if lines else 1.0})
        lines[0] |= by_part(paths)
    table = pd.DataFrame(lines)
    say(table.to_string(index=False, float_format="{:.4g}".format))
    say(f"Relative difference of the evidence: {abs(evidence[0] / evidence[1] - 1.0):.1e}")
    table.to_csv(out / "ingest_cost.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
