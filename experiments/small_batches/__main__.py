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

from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.progress import Progress, say

TAKES = "about 4 minutes on one core"


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Stream one function in small batches under several settings."""
    n, counts, seeds = (180, [6], [0]) if smoke else (600, [1, 2, 3, 6], [0, 1, 2])
    folder = begin("results/small_batches", out, smoke, TAKES)

    import torch

    from experiments.common.plots import draw_bands, draw_sizes
    from experiments.small_batches.refits import REFITS
    from experiments.small_batches.runs import drifts, ends, sizes

    torch.set_num_threads(1)
    progress = Progress(2 * len(seeds) * (len(counts) + 1) + len(seeds) * len(REFITS), "streams")
    about = {"pruning": "First points right", "mended": "First points under short lengthscales"}
    for (name, title), table in zip(about.items(), sizes(n, counts, seeds, progress), strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
        draw_sizes(
            table,
            folder / f"{name}.png",
            title=lambda dim, scenario: f"batches of {scenario.removeprefix('q = ')}, {dim}-D",
        )
        medians = ends(table, ["scenario", "policy"], ["points", "rmse", "seconds"])
        say(f"{title}: after {n} points, medians over seeds")
        say(f"{medians.round(3).to_string()}\n")
    drift = drifts(n, seeds, progress)
    labels = {
        "step": "batch (6 points each)",
        "rmse": "test RMSE (the function's units)",
        "lengthscale": "lengthscale (the inputs' units)",
        "noise": "noise variance (the function's units squared)",
    }
    for y in ("rmse", "lengthscale", "noise"):
        title = "Refits in a stream of small batches"
        draw_bands([drift], y, "step", ["refits"], folder / f"{y}.png", labels=labels, title=title)
    medians = ends(drift, ["refits"], ["points", "rmse", "lengthscale", "noise"])
    say(f"Refits on batches of 6, medians over seeds\n{medians.round(3).to_string()}")
    drift.to_csv(folder / "drift.csv", index=False)


app = command(main)

if __name__ == "__main__":
    start(app)
