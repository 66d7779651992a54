"""Where to measure next on a malaria raster: campaigns of active learning, compared.

Run `python -m experiments.active_learning experiments/configs/malaria_senegal.toml` for all
observation models, surrogates, policies, kernels and seeds of the file, which takes hours, or
choose among them by options. With `--smoke`: seconds on the synthetic field. Tables, figures and
maps go to the config's folder.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import Config, Out, Smoke, folder
from experiments.matrix import narrowed, read, smoked

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
CURVES = ["surrogate", "policy", "observation", "kernel"]


@app.command()
def main(
    config: Config,
    out: Out = None,
    smoke: Smoke = False,
    observation: Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")] = None,
    surrogate: Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")] = None,
    grid_size: Annotated[list[int] | None, typer.Option(help="Only these of WISKI.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")] = None,
    kernel: Annotated[list[str] | None, typer.Option(help="Only these; may repeat.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only these; may repeat.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the config's.")] = None,
) -> None:
    """Run every observation model, surrogate, policy, kernel and seed of a config; draw them."""
    chosen: dict[str, list[Any] | None] = {
        "observations": observation,
        "surrogates": surrogate,
        "grid_size": grid_size,
        "policies": policy,
        "kernels": kernel,
        "seeds": seed,
    }
    c = narrowed(read(config), chosen) | ({} if steps is None else {"steps": steps})
    run(smoked(c) if smoke else c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
    """The campaigns of one configuration."""
    import pandas as pd
    import torch

    from bo_stream.errors import InputError
    from experiments.campaigns import campaigns, provenance
    from experiments.maps import draw_maps
    from experiments.plots import draw_bands
    from problems.errors import ProblemDataError

    torch.set_num_threads(1)
    try:
        cells, planned = campaigns(c)
    except (InputError, ProblemDataError) as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(f"{len(planned)} campaigns on {len(cells.X)} cells. {cells.attribution}")
    tables = []
    for facts, make in planned:
        label = "_".join(str(v) for v in facts.values()).replace(" ", "-")
        typer.echo(label)
        campaign = make()
        table = campaign.run()
        campaign.save(out / f"{label}.csv", **facts, **provenance(cells, c))
        draw_maps(campaign, cells, out / f"{label}.png", title=label.replace("_", " "))
        typer.echo(
            table.iloc[-1][["n", "rmse", "nlpd", "coverage", "wallclock_seconds"]].to_string()
        )
        tables.append(table.assign(**facts))
    parts = pd.concat(tables).groupby(["observation", "kernel"], sort=False)
    for key, part in parts:
        stem = "_".join(map(str, key)).replace(" ", "-")
        draw_bands([part], "rmse", "step", CURVES, out / f"{stem}_rmse_steps.png")
        path = out / f"{stem}_rmse_wallclock.png"
        draw_bands([part], "rmse", "wallclock_seconds", CURVES, path, logarithmic_x=True)


if __name__ == "__main__":
    app()
