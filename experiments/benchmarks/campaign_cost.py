"""What a store costs a campaign: a durable `tell`, a resume, and room on the disk.

Run `python -m experiments.benchmarks.campaign_cost` (add `--smoke` for a run of seconds). WISKI on
its default grid in two inputs, a file of SQLite. Limits: a `tell` costs less than 10 ms (median) on
top of the surrogate's update, also after 10,000 trials; a campaign of 10,000 observations comes
back in less than 2 s once torch is imported, and fits nothing; the file grows linearly in trials.
Prints wall-clock and, as the machine may be busy, processor time; writes
`results/benchmarks/campaign_cost.csv` and `campaign_size.csv`.
"""

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import say

TAKES = "about two minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Measure, print, write."""
    out = begin("results/benchmarks", out, smoke, TAKES, packages=("sqlalchemy",))

    import pandas as pd
    import torch

    from experiments.benchmarks.campaign_cost_tasks import filled, resumes, sizes, tells

    torch.set_num_threads(1)
    few, many, repetitions, grid_size = (40, 200, 10, 12) if smoke else (100, 10_000, 100, None)
    rows = []
    for trials in (few, many):
        url = filled(out / f"campaign_cost_{trials}.db", trials, grid_size)
        rows += resumes(url, trials, 3 if smoke else 7)
        rows += tells(url, trials, repetitions)
    table = pd.DataFrame(rows, columns=["operation", "trials", "wall ms", "processor ms", "fits"])
    say(table.to_string(index=False, float_format="{:.2f}".format))
    table.to_csv(out / "campaign_cost.csv", index=False)

    counts = (100, 200, 300) if smoke else (500, 1_000, 2_000, 4_000, 8_000)
    size = sizes(out / "campaign_size.db", counts, grid_size)
    say(size.to_string(index=False, float_format="{:.0f}".format))
    size.to_csv(out / "campaign_size.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
