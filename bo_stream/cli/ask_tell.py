"""Commands for those who measure by hand: `suggest` where, `tell` what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bo_stream.cli.arguments import ConfigFile
from bo_stream.cli.config import read_config
from bo_stream.cli.toml_document import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign

__all__ = ["suggest", "tell"]


def suggest(
    config: ConfigFile,
    q: Annotated[int, typer.Option("-q", "--trials", min=1, help="How many trials.")] = 1,
    csv: Annotated[
        Path | None, typer.Option(help="Write them to a CSV with an empty column y to fill in.")
    ] = None,
) -> None:
    """Say where to measure next.

    The trials are under way from now on: later suggestions keep them in mind, and tell takes their
    outcomes. The campaign is begun if its store does not have it yet.
    """
    from bo_stream.cli.formatting import table
    from bo_stream.cli.load_campaign import begun

    if csv is not None and csv.exists():
        raise ConfigError(f"{csv} is there already and may hold answers. Choose another name.")
    if csv is not None and not csv.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {csv.absolute().parent}. Make it, or correct it.")
    campaign = begun(read_config(config)).campaign
    frame = campaign.ask(q)
    print(table(campaign, frame))
    if csv is not None:
        frame.assign(y="").to_csv(csv)
        print(f"Written to {csv}. Fill in y, then: bo-stream tell {config} {csv}")


def tell(
    config: ConfigFile,
    answers: Annotated[
        Path,
        typer.Argument(
            help="CSV with a column y; yvar, its noise variance, for all rows or for none. Rows of "
            "trials have their id in a column trial; other rows have the inputs."
        ),
    ],
) -> None:
    """Take outcomes from a CSV.

    Rows without a value are left for later; where they give a reason, in a column of that name, the
    trial is given up. A file may be told again when more of it is filled in.
    """
    from bo_stream.cli.formatting import counted, incumbent
    from bo_stream.cli.load_campaign import begun

    campaign = begun(read_config(config)).campaign
    frame = _answers(answers, campaign)
    given = frame["y"].notna()
    reasons = frame.pop("reason") if "reason" in frame else frame["y"].astype(object)
    failed = list(frame.index[~given & reasons.notna()]) if frame.index.name == "trial" else []
    before = counted(campaign.trials())
    if given.any():
        campaign.tell(frame[given].dropna(axis="columns", how="all"))
    for id in failed:
        campaign.fail(int(id), str(reasons[id]))
    trials = campaign.trials()
    print(f"Rows with a value: {int(given.sum())}; without: {int((~given).sum())}.")
    print(f"Trials: {counted(trials)} (before: {before}).")
    if best := incumbent(campaign, trials):
        print(f"Best: {best}")


def _answers(path: Path, campaign: Campaign) -> pd.DataFrame:
    """A CSV of outcomes, rows of trials indexed by their ids."""
    import pandas as pd

    from bo_stream.campaign.space import Pool

    kinds: dict[str, Any] = {}
    if isinstance(campaign.space, Pool) and campaign.space.table.index.dtype.kind not in "iuf":
        kinds["place"] = str  # so that 007 stays what it is
    try:
        frame = pd.read_csv(path, dtype=kinds)
    except ValueError as error:
        raise ConfigError(f"{path} is no CSV: {error}") from error
    if "y" not in frame:
        columns = ", ".join(map(str, frame.columns))
        raise ConfigError(
            f"{path}: Expected a column y; got {columns}. Rename the one with values."
        )
    if "trial" in frame:
        blank = frame["trial"].isna()
        if blank.any():
            raise ConfigError(
                f"{path}, line {int(blank.argmax()) + 2}: Expected the id of a trial in every row; "
                "got a row without. Put what nobody asked for into a file without a column trial."
            )
        frame = frame.set_index("trial")
    return frame
