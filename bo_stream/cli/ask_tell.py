"""Commands for measuring by hand: `suggest` the next trials, and `tell` their outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bo_stream.cli.load_campaign import AsJson, ConfigFile, create_or_continue
from bo_stream.cli.measurements import outcome_columns, read_measurements
from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.outcomes.count_outcomes import CountOutcome

__all__ = ["suggest", "tell"]


def suggest(
    config: ConfigFile,
    q: Annotated[int, typer.Option("-q", "--trials", min=1, help="Number of trials.")] = 1,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write them to this CSV, with empty columns for the outcome."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Suggest where to measure next.

    The suggested trials are running from now on: later suggestions take them into account, and
    their outcomes can be told. The campaign is created if its store does not have it yet.
    """
    if csv is not None and csv.exists():
        raise ConfigError(f"{csv} exists already and may contain outcomes. Choose another name.")
    if csv is not None and not csv.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {csv.absolute().parent}. Create it or correct it.")
    from bo_stream.cli.config import read_config

    campaign = create_or_continue(read_config(config)).campaign
    from bo_stream.cli.formatting import as_json, table

    frame = campaign.ask(q)
    columns = outcome_columns(campaign)
    if csv is not None:  # before anything is printed, which may fail
        frame.assign(**dict.fromkeys(columns, "")).to_csv(csv)
    print(as_json(frame.reset_index()) if json else table(campaign, frame))
    if csv is not None and not json:
        blank = " and ".join(columns)
        print(f"Wrote {csv}. Fill in {blank}, then: bo-stream tell {config} {csv}")


def tell(
    config: ConfigFile,
    outcomes: Annotated[
        Path,
        typer.Argument(
            help="CSV with a column y, and a column yvar (noise variance) for all rows or none; "
            "of counts, or of outcomes with names, with their columns. Rows of trials have the "
            "trial's id in a column trial; other rows have the inputs, and may have a name in a "
            "column key. A column note is kept. Semicolons, tabs and decimal commas are recognised."
        ),
    ],
) -> None:
    """Read outcomes from a CSV.

    Rows without a value are skipped, unless a column reason says why there is none: then the trial
    fails, also if only some of its outcomes are missing. The file may be told again when more of it
    is filled in: rows with an id or a key are recorded once. Inputs of a trial that were measured
    otherwise are corrected in its row.
    """
    from bo_stream.cli.config import read_config

    campaign = create_or_continue(read_config(config)).campaign
    import pandas as pd

    from bo_stream.cli.formatting import best_trial, count_by_status

    frame, columns = read_measurements(outcomes, campaign), outcome_columns(campaign)
    missing = [column for column in columns if column not in frame]
    if missing and (missing == columns or not campaign.settings.named.several):
        found = ", ".join(map(str, frame.columns))
        raise ConfigError(
            f"{outcomes}: Expected a column {missing[0]}; got {found}. Rename the column with the "
            "outcomes."
        )
    if "trial" not in frame:
        frame = frame.assign(trial=None)
    blank = frame.reindex(columns=columns).isna()
    filled = ~blank.all(axis=1)
    reasons = frame.pop("reason") if "reason" in frame else pd.Series(None, frame.index)
    notes: list[str] = []
    if campaign.counts is not None:
        filled, notes = _with_counts(frame, campaign.counts, filled, reasons)
    given = (blank.any(axis=1) | ~filled) & reasons.notna() & frame["trial"].notna()
    why = zip(reasons[given], filled[given], strict=True)
    failed = dict(zip(_whole(frame["trial"][given], outcomes), why, strict=True))
    before = count_by_status(campaign.trials())
    if filled.any():
        told = frame[filled]
        campaign.tell(told.loc[:, told.notna().any() | (told.columns == "trial")])
    for id, (reason, partly) in failed.items():
        if not partly or id in campaign.history.running:  # the others may be known from before
            campaign.fail(id, reason)
    trials = campaign.trials()
    for note in notes:
        print(note)
    print(f"Rows with a value: {int(filled.sum())}; without: {int((~filled).sum())}.")
    print(f"Trials: {count_by_status(trials)} (before: {before}).")
    if best := best_trial(campaign, trials):
        print(f"Best: {best}")


def _whole(ids: pd.Series[Any], path: Path) -> list[int]:
    """Trial ids of rows of a file as integers."""
    for row, id in ids.items():
        if not float(id).is_integer():
            raise ConfigError(f"{path}, row {row}: Expected a trial id; got {id}. Correct it.")
    return [int(id) for id in ids]


def _with_counts(
    frame: pd.DataFrame, counts: CountOutcome, filled: pd.Series[bool], reasons: pd.Series[Any]
) -> tuple[pd.Series[bool], list[str]]:
    """Which filled rows have a count, and notes on those that have none and no reason."""
    notes = []
    for what, rows in counts.without_count(frame).items():
        numbers = ", ".join(map(str, frame.index[filled & rows & reasons.isna()]))
        filled = filled & ~rows
        if numbers:
            notes.append(f"Rows {what}, which were left out: {numbers}.")
    return filled, notes
