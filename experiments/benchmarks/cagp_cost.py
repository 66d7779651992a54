"""What CaGP costs: appends against rebuilding, the ELBO against SGPR, peak memory against n.

Run `python -m experiments.benchmarks.cagp_cost` (add `--smoke` for a run of seconds). Prints tables
and writes `results/benchmarks/cagp_*.csv`. One thread; medians of alternated repetitions in one
process, seconds of processor time; memory in processes of their own.
"""

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about 5 minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=())

    import torch

    from experiments.benchmarks.cagp_tasks import append_against_rebuild, elbo_against_sgpr, memory

    torch.set_num_threads(1)
    tables = {  # memory first: a process inherits the peak of the one that started it
        "memory": memory([200, 400] if smoke else [7_500, 15_000, 30_000], 32 if smoke else 512),
        "append": append_against_rebuild(*((400, 32, 3) if smoke else (5_000, 256, 20))),
        "elbo": elbo_against_sgpr(*((400, 32, 64, 2) if smoke else (10_000, 512, 1_024, 5))),
    }
    for name, table in tables.items():
        say(table.to_string(index=False, float_format="{:.3f}".format) + "\n")
        table.to_csv(out / f"cagp_{name}.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
