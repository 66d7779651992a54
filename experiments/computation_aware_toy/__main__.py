"""Uncertainty that knows its budget, in one dimension: four posteriors of the same 120 data.

Run `python -m experiments.computation_aware_toy` (add `--smoke` for a run of seconds): an exact GP,
SVGP with 8 inducing points, CaGP with 8 conjugate-gradient and with 8 learned actions. Prints, for
each, error and density at test points, learned noise and lengthscale, and the least and greatest
ratio of its latent deviation to that of the exact GP with the same hyperparameters. A ratio below
one is confidence that the data do not give; computation-aware GPs have none. Writes the table and a
picture.  [CaGP, figure 1]
"""

from typing import Annotated

from experiments.common.command import Out, Smoke, begin, command, option, start
from experiments.common.progress import say


def main(
    actions: Annotated[int, option(min=1, help="Actions, and inducing points.")] = 8,
    seconds: Annotated[float, option(help="Processor seconds of training each.")] = 10.0,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Train, compare, draw."""
    takes = f"at most {4 * seconds:.0f} seconds of one processor"
    folder = begin("results/computation_aware_toy", out, smoke, takes)

    import torch

    from experiments.computation_aware_toy.plots import draw_toy
    from experiments.computation_aware_toy.posteriors import posteriors
    from experiments.computation_aware_toy.wave import toy

    torch.set_num_threads(1)
    split, grid, truth = toy()
    drawn, table = posteriors(split, grid, actions, 0.3 if smoke else seconds)
    draw_toy(drawn, grid[:, 0], split.X[:, 0], split.Y[:, 0], truth, folder / "posteriors.png")
    table.to_csv(folder / "table.csv", index=False)
    say(table.to_string(index=False, float_format="{:.4f}".format))


app = command(main)

if __name__ == "__main__":
    start(app)
