"""Online SGPR fed a few points at a time: its size, what pruning saves, how hyperparameters drift.

Run `python -m experiments.small_batches`. Three parts, each a table:

- points arrive one to six at a time, hyperparameters held after a first fit. VIPS weighs each batch
  against what the model knows and stops growing, at whatever size of the batches; `Pruned` ends
  with about as many points;
- points chosen under a lengthscale that is much too short, and a refit that then finds the right
  one: VIPS keeps the points that are now superfluous, `Pruned` drops them, at the same error;
- refits on batches of six: they cost accuracy whatever holds hyperparameters back, and without
  priors the lengthscale drifts away.

Writes the tables and pictures to results/small_batches.
"""

import typer

from experiments.command import Out, Smoke, folder, start


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Stream one function in small batches under several settings."""
    import pandas as pd
    import torch

    from bo_stream.growth import VIPS, GrowthPolicy, Pruned
    from experiments.growth_scenarios import stationary
    from experiments.plots import draw_bands, draw_sizes
    from experiments.refits import REFITS, mended, streamed

    torch.set_num_threads(1)
    n, counts, seeds = (180, [6], [0]) if smoke else (600, [1, 2, 3, 6], [0, 1, 2])
    out = folder("results/small_batches", out, smoke)
    policies: dict[str, GrowthPolicy] = {"VIPS": VIPS(), "Pruned(VIPS)": Pruned(VIPS())}
    sizes, mends = [], []
    for seed in seeds:
        for q in counts:
            stream = stationary(2, q, n // q, 0.2, seed)
            for name, policy in policies.items():
                facts = {"dim": 2, "scenario": f"q = {q}", "seed": seed, "policy": name}
                sizes += [facts | row for row in streamed(stream, policy, REFITS["never"])]
                if q == 6:
                    mends += [facts | row for row in mended(stream, policy)]
    about = {"pruning": "First points right", "mended": "First points under short lengthscales"}
    for (name, title), rows in zip(about.items(), (sizes, mends), strict=True):
        table = pd.DataFrame(rows)
        table.to_csv(out / f"{name}.csv", index=False)
        draw_sizes(table, out / f"{name}.png")
        columns = ["points", "rmse", "seconds"]
        ends = table.groupby(["scenario", "policy", "seed"], sort=False)[columns].last()
        medians = ends.groupby(["scenario", "policy"], sort=False).median()
        typer.echo(f"{title}: after {n} points, medians over seeds")
        typer.echo(f"{medians.round(3).to_string()}\n")
    drifts = []
    for seed in seeds:
        stream = stationary(2, 6, n // 6, 0.2, seed)
        for name, refit in REFITS.items():
            run = pd.DataFrame(streamed(stream, policies["Pruned(VIPS)"], refit))
            drifts.append(run.rename(columns={"batch": "step"}).assign(refits=name, seed=seed))
    labels = {"step": "batch of 6", "rmse": "test RMSE", "noise": "noise variance"}
    for y in ("rmse", "lengthscale", "noise"):
        title = "Refits in a stream of small batches"
        draw_bands(drifts, y, "step", ["refits"], out / f"{y}.png", labels=labels, title=title)
    drift = pd.concat(drifts)
    columns = ["points", "rmse", "lengthscale", "noise"]
    ends = drift.groupby(["refits", "seed"], sort=False)[columns].last()
    table = ends.groupby("refits", sort=False).median()
    typer.echo(f"Refits on batches of 6, medians over seeds\n{table.round(3).to_string()}")
    drift.to_csv(out / "drift.csv", index=False)


if __name__ == "__main__":
    start(main)
