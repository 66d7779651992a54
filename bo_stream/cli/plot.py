"""`plot`: outcomes by trial, and the best so far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bo_stream.cli.arguments import CampaignName, Where
from bo_stream.cli.toml_document import ConfigError

if TYPE_CHECKING:
    from bo_stream.cli.load_campaign import Opened

__all__ = ["plot"]


def plot(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("campaign.png"),
) -> None:
    """Draw outcomes by trial, and the best so far."""
    import matplotlib

    matplotlib.use("Agg")
    from bo_stream.cli.load_campaign import found

    opened = found(where, name)
    _draw(opened, out)
    print(f"Written to {out}.")


def _draw(opened: Opened, out: Path) -> None:
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    from bo_stream.cli.formatting import counted

    campaign = opened.campaign
    trials = campaign.trials()
    told = trials[trials["status"] == "told"]
    if not len(told):
        raise ConfigError(f"Campaign {campaign.name!r} has no outcomes yet. Tell some first.")
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    ax.plot(told.index, told["y"], "o", markersize=4, color="tab:blue", label="outcomes")
    if "yvar" in told:
        bars = told["yvar"] ** 0.5
        ax.errorbar(told.index, told["y"], bars, fmt="none", color="tab:blue", alpha=0.5)
    if campaign.goal != "learn":
        best = told["y"].cummin() if campaign.goal == "minimise" else told["y"].cummax()
        ax.step(told.index, best, where="post", color="tab:red", label="best so far")
    if opened.optimum is not None:
        ax.axhline(opened.optimum, color="black", linestyle="--", label="best there can be")
    for status, mark, word in (("failed", "x", "failed"), ("running", "|", "under way")):
        ids = trials.index[trials["status"] == status]
        if len(ids):
            low = ax.get_xaxis_transform()  # the height is a share of the panel's
            ax.plot(ids, [0.02] * len(ids), mark, color="black", transform=low, label=word)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    goal = "learn everywhere" if campaign.goal == "learn" else campaign.goal
    ax.set(xlabel="trial", ylabel=opened.outcome)
    ax.set_title(f"{campaign.name} ({goal}): {counted(trials)}")
    ax.legend(fontsize=8)
    figure.savefig(out, dpi=110)
    plt.close(figure)
