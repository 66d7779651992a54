"""Online SGPR fed a few points at a time: what pruning saves, and how hyperparameters drift.

Run `python -m experiments.small_batches`. Points arrive one to six at a time. VIPS asks of each
batch what it is worth, and nearly every point of so small a batch is worth something: its model
grows with the data. `Pruned` drops the points that no longer earn their place. Then refits after
every batch of six, of which some way of holding hyperparameters back is needed: without one, each
batch is explained anew. Prints both tables; writes them and pictures to results/small_batches.
"""

from pathlib import Path
from typing import Annotated

import typer


def main(
    smoke: Annotated[bool, typer.Option(help="Few points, seconds.")] = False,
) -> None:
    """Stream one function in small batches under several settings."""
    import pandas as pd
    import torch

    from bo_stream.growth import VIPS, GrowthPolicy, Pruned
    from experiments.growth_scenarios import stationary
    from experiments.plots import draw_bands, draw_sizes
    from experiments.refits import REFITS, streamed

    torch.set_num_threads(1)
    n, counts = (60, [6]) if smoke else (600, [1, 2, 3, 6])
    out = Path("results/small_batches" + ("_smoke" if smoke else ""))
    out.mkdir(parents=True, exist_ok=True)
    sizes = []
    for q in counts:
        stream = stationary(2, q, n // q, 0.2, seed=0)
        policies: dict[str, GrowthPolicy] = {"VIPS": VIPS(), "Pruned(VIPS)": Pruned(VIPS())}
        for name, policy in policies.items():
            facts = {"dim": 2, "scenario": f"q = {q}", "seed": 0, "policy": name}
            sizes += [facts | row for row in streamed(stream, policy, REFITS["never"])]
    pruning = pd.DataFrame(sizes)
    draw_sizes(pruning, out / "sizes.png")
    last = pruning.groupby(["scenario", "policy"], sort=False)[["points", "rmse", "seconds"]]
    typer.echo(f"After {n} points\n{last.last().round(3).to_string()}\n")
    drifts = []
    for seed in range(1 if smoke else 3):
        stream = stationary(2, 6, n // 6, 0.2, seed)
        for name, refit in REFITS.items():
            rows = pd.DataFrame(streamed(stream, Pruned(VIPS()), refit))
            drifts.append(rows.rename(columns={"batch": "step"}).assign(refits=name, seed=seed))
    for y in ("rmse", "lengthscale", "noise"):
        draw_bands(drifts, y, "step", ["refits"], out / f"{y}.png")
    drift = pd.concat(drifts)
    columns = ["points", "rmse", "lengthscale", "noise"]
    ends = drift.groupby(["refits", "seed"], sort=False)[columns].last()
    table = ends.groupby("refits", sort=False).median()
    typer.echo(f"Refits on batches of 6, medians over seeds\n{table.round(3).to_string()}")
    pruning.to_csv(out / "pruning.csv", index=False)
    drift.to_csv(out / "drift.csv", index=False)


if __name__ == "__main__":
    typer.run(main)
