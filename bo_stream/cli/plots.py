"""Commands that draw a campaign: `plot` its outcomes, and `map` its predictions over a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.load_campaign import CampaignName, Where, load_campaign
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["map_places", "plot"]


def plot(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("campaign.png"),
) -> None:
    """Plot the outcome of every trial, and the best outcome so far.

    Of several objectives the picture shows the front: the trials that are not dominated.
    """
    import matplotlib  # noqa: F401  # now, so that a missing package costs no work

    loaded = load_campaign(where, name)
    campaign = loaded.campaign
    from bo_stream.cli.formatting import count_by_status

    figure = campaign.plot(loaded.outcome, loaded.optimum)
    figure.suptitle(f"{campaign.name}: {count_by_status(campaign.trials())}")
    figure.savefig(out, dpi=110)
    print(f"Wrote {out}.")


def map_places(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("map.png"),
    csv: Annotated[
        Path | None, typer.Option(help="Also write the predictions of every place to this CSV.")
    ] = None,
) -> None:
    """Map predictions over a pool with two inputs.

    The two maps show the mean and the standard deviation of the prediction, with the places that
    were measured and those of running trials. Of counts they show the prevalence in percent, or the
    rate, of the smooth surface.
    """
    import matplotlib  # noqa: F401  # now, so that a missing package costs no work

    from bo_stream.campaign.figures import maps
    from bo_stream.campaign.space import Pool

    loaded = load_campaign(where, name)
    campaign, space = loaded.campaign, loaded.campaign.space
    if not isinstance(space, Pool) or space.dim != 2:
        kind = "a pool" if isinstance(space, Pool) else "a box"
        raise ConfigError(
            f"Expected a pool with two inputs; got {kind} with {space.dim} inputs: "
            f"{', '.join(space.names)}. Use bo-stream plot."
        )
    figure = maps(campaign, loaded.outcome)
    figure.suptitle(f"{campaign.name}: {len(space.table)} places")
    figure.savefig(out, dpi=110)
    print(f"Wrote {out}.")
    if csv is not None:
        predictions = campaign.predict(space.table)
        frame = space.table[list(space.names)].join(predictions).rename_axis("place")
        frame.to_csv(csv)
        print(f"Wrote {len(frame)} places to {csv}.")
