"""Uncertainty that knows its budget, in one dimension: four posteriors of the same 120 data.

Run `python -m experiments.computation_aware_toy` (add `--smoke` for a run of seconds): an exact GP,
SVGP with 8 inducing points, CaGP with 8 conjugate-gradient and with 8 learned actions. Prints, for
each, error and density at test points, learned noise and lengthscale, and the least and greatest
ratio of its latent deviation to that of the exact GP with the same hyperparameters. A ratio below
one is confidence that the data do not give; computation-aware GPs have none. Writes the table and a
picture.  [CaGP, figure 1]
"""

from typing import Annotated

import typer

from experiments.command import Out, Smoke, folder, start


def main(
    actions: Annotated[int, typer.Option(min=1, help="Actions, and inducing points.")] = 8,
    seconds: Annotated[float, typer.Option(help="Processor seconds of training each.")] = 10.0,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Train, compare, draw."""
    import pandas as pd
    import torch

    from bo_stream import ExactGP
    from bo_stream.scores import marginals
    from experiments.computation_aware_plots import draw_toy
    from experiments.contenders import CONTENDERS, Course
    from experiments.tables import toy

    torch.set_num_threads(1)
    out = folder("results/computation_aware_toy", out, smoke)
    split, grid, truth = toy()
    sizes = {"actions": actions, "cg": actions, "inducing": actions, "batch": len(split.X)}
    rows, laws = [], {}
    for label in ("ExactGP", "SVGP", "CaGP-CG", "CaGP-Opt"):
        course = Course(split, 0.3 if smoke else seconds)
        trained = CONTENDERS[label](split, course, sizes)
        modules = {"covar_module": trained.kernel, "likelihood": trained.likelihood}
        least = marginals(ExactGP(split.X, split.Y, **modules), grid)[1].sqrt()
        with torch.no_grad():
            mean, variance = trained.predict(grid)
            deviation = (variance - trained.likelihood.noise).sqrt()
        laws[label] = mean, deviation, least
        ratio = deviation / least
        row = {"surrogate": label, "nll": course.rows[-1]["nll"], "rmse": course.rows[-1]["rmse"]}
        row |= {"noise": trained.likelihood.noise.item()}
        row |= {"lengthscale": trained.kernel.base_kernel.lengthscale.item()}
        row |= {"least ratio": ratio.min().item(), "greatest ratio": ratio.max().item()}
        rows.append(row)
    table = pd.DataFrame(rows)
    draw_toy(laws, grid[:, 0], split.X[:, 0], split.Y[:, 0], truth, out / "posteriors.png")
    table.to_csv(out / "table.csv", index=False)
    typer.echo(table.to_string(index=False, float_format="{:.4f}".format))


if __name__ == "__main__":
    start(main)
