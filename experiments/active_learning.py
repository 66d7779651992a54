"""Where to measure next on a malaria raster: campaigns of active learning, compared.

Run `python -m experiments.active_learning experiments/configs/malaria_senegal.toml`, or with
`--smoke` for seconds on the synthetic field. Tables, figures and maps go to the config's folder.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

SMOKE = {"steps": 3, "num_test": 300, "cells": 900, "grid_size": 16, "seeds": [0], "source": None}


def main(
    config: Annotated[Path, typer.Argument(help="TOML; keys as in configs/malaria_senegal.toml.")],
    smoke: Annotated[bool, typer.Option(help="Synthetic field, three steps, seconds.")] = False,
    seed: Annotated[list[int] | None, typer.Option(help="Instead of the config's seeds.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Instead of the policies.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the config's steps.")] = None,
) -> None:
    """Run every observation model, surrogate, policy, kernel and seed of a config; draw them."""
    given = {"seeds": seed, "policies": policy, "steps": steps}
    run(
        tomllib.loads(config.read_text())
        | {k: v for k, v in given.items() if v}
        | (SMOKE if smoke else {}),
        smoke,
    )


def run(c: dict[str, Any], smoke: bool = False) -> None:
    """The campaigns of one configuration."""
    import torch

    from experiments.campaigns import campaigns, provenance
    from experiments.maps import draw_maps
    from experiments.plots import draw_bands

    torch.set_num_threads(1)
    out = Path(c["output"] + ("_smoke" if smoke else ""))
    tables = []
    for facts, campaign, cells in campaigns(c):
        label = "_".join(str(v) for v in facts.values()).replace(" ", "-")
        typer.echo(label)
        table = campaign.run()
        campaign.save(out / f"{label}.csv", **facts, **provenance(cells, c))
        draw_maps(campaign, cells, out / f"{label}.png", title=label.replace("_", " "))
        typer.echo(
            table.iloc[-1][["n", "rmse", "nlpd", "coverage", "wallclock_seconds"]].to_string()
        )
        tables.append(table.assign(**facts))
    names = ["observation", "surrogate", "policy", "kernel"]
    draw_bands(tables, "rmse", "step", names, out / "rmse_steps.png")
    draw_bands(tables, "rmse", "wallclock_seconds", names, out / "rmse_wallclock.png")


if __name__ == "__main__":
    typer.run(main)
