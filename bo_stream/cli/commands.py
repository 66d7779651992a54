"""The commands: measuring by an objective or by hand, showing, drawing, and mending mistakes."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bo_stream.cli.error_handling import INTERRUPTED, print_error
from bo_stream.cli.load_campaign import (
    AsJson,
    CampaignName,
    ConfigFile,
    Where,
    create_or_continue,
    existing_store,
    is_config,
    load_campaign,
)
from bo_stream.cli.measurements import outcome_columns, read_measurements
from bo_stream.cli.objective import NamedObjective, find_objective
from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.outcomes.count import Count
    from bo_stream.cli.config import CampaignConfig

__all__ = [
    "amend",
    "change",
    "check",
    "map_places",
    "plot",
    "recommend",
    "report",
    "resume",
    "run",
    "status",
    "suggest",
    "tell",
    "trials",
    "widen",
    "withdraw",
]

Named = Annotated[
    str | None, typer.Option("--name", help="Name of the campaign, if the store has several.")
]

Choice = Annotated[
    str | None,
    typer.Option(help="A name, or name and options: '{name = \"wiski\", grid_size = 20}'."),
]

Seconds = Annotated[
    float | None,
    typer.Option(min=0.0, help="Start no further trial after so many seconds."),
]

DAMAGED = 1
"""Exit code for a damaged store."""


def run(config: ConfigFile, seconds: Seconds = None) -> None:
    """Measure with an objective until the budget is used up.

    A campaign that exists already is continued.
    """
    _run(str(config), None, None, None, None, seconds, create=True)


def resume(
    where: Where,
    name: CampaignName = None,
    objective: Annotated[
        str | None, typer.Option(help="file.py:function or module:function.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of trials in all, earlier ones included.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of local processes.")] = None,
    seconds: Seconds = None,
) -> None:
    """Continue a campaign that was interrupted.

    Nothing is measured or fitted again. By default objective, budget and workers are those of the
    TOML. For a store, objective and budget have to be given.
    """
    _run(where, name, objective, budget, workers, seconds, create=False)


def status(where: Where, name: CampaignName = None, json: AsJson = False) -> None:
    """Show the current state of a campaign."""
    loaded = load_campaign(where, name)
    from bo_stream.cli.formatting import as_json, summary, table

    facts, running = summary(loaded), loaded.campaign.running().reset_index()
    if json:
        print(as_json({**facts, "running": running}))
        return
    width = max(map(len, facts))
    for fact, value in facts.items():
        print(f"{fact:<{width}}  {value}")
    if len(running):
        print("running:")
        print(table(loaded.campaign, running))


def trials(
    where: Where,
    name: CampaignName = None,
    csv: Annotated[Path | None, typer.Option(help="Write them to this CSV instead.")] = None,
    json: AsJson = False,
) -> None:
    """List all trials.

    The list has inputs, outcome and status, and the reason of every failure.
    """
    campaign = load_campaign(where, name).campaign
    frame = campaign.trials()
    from bo_stream.cli.formatting import as_json, table

    if json:
        print(as_json(frame.reset_index()))
        return
    if csv is None:
        print(table(campaign, frame.reset_index()) if len(frame) else "No trials yet.")
        return
    frame.to_csv(csv)
    print(f"Wrote {len(frame)} trials to {csv}.")


def recommend(
    where: Where,
    name: CampaignName = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of settings.")] = 1,
    json: AsJson = False,
) -> None:
    """Recommend settings: those to use by what is known, in order of preference.

    The list has the expected outcome without noise, its standard deviation, a 90 % interval, and
    the gain that may still be had: how much better the best outcome anywhere is expected to be.
    """
    campaign = load_campaign(where, name).campaign
    from bo_stream.cli.formatting import as_json, table

    found = campaign.recommend(n)
    print(as_json(found) if json else table(campaign, found))


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
    shown = frame.reset_index()
    print(as_json(shown) if json else table(campaign, shown))
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
    if missing and (missing == columns or len(campaign.settings.outcomes.measured) == 1):
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
    if campaign.settings.counts is not None:
        filled, notes = _with_counts(frame, campaign.settings.counts, filled, reasons)
    given = (blank.any(axis=1) | ~filled) & reasons.notna() & frame["trial"].notna()
    why = zip(reasons[given], filled[given], strict=True)
    failed = dict(zip(_whole(frame["trial"][given], outcomes), why, strict=True))
    before = count_by_status(campaign.trials())
    if filled.any():
        told = frame[filled]
        campaign.tell(told.loc[:, told.notna().any() | (told.columns == "trial")])
    for id, (reason, partly) in failed.items():
        trial = campaign.ledger.refresh().trials[int(id)]
        if not partly or trial.status == "running":  # the others may be known from before
            campaign.fail(id, reason)
    trials = campaign.trials()
    for note in notes:
        print(note)
    print(f"Rows with a value: {int(filled.sum())}; without: {int((~filled).sum())}.")
    print(f"Trials: {count_by_status(trials)} (before: {before}).")
    if best := best_trial(campaign, trials):
        print(f"Best: {best}")


def amend(
    where: Where,
    outcomes: Annotated[
        Path,
        typer.Argument(
            help="CSV with the trials' ids in a column trial, and the columns of the outcome that "
            "are to be corrected."
        ),
    ],
    name: Named = None,
) -> None:
    """Correct outcomes that were told.

    The store keeps the old ones. Rows without a value are skipped. A withdrawn trial that is
    amended is told again.
    """
    campaign = load_campaign(where, name).campaign
    frame = read_measurements(outcomes, campaign)
    columns = (*outcome_columns(campaign), *campaign.settings.outcomes.known_columns)
    given = [column for column in dict.fromkeys(columns) if column in frame]
    if "trial" not in frame or not given:
        raise ConfigError(
            f"{outcomes}: Expected a column trial, and columns of the outcome; got "
            f"{', '.join(map(str, frame.columns))}. Name the columns so."
        )
    filled = frame[~frame[given].isna().all(axis=1)]
    before = campaign.ledger.refresh().trials
    if len(filled):
        campaign.amend(filled.dropna(axis="columns", how="all"))
    print(f"Rows with a value: {len(filled)}; without: {len(frame) - len(filled)}.")
    after = campaign.ledger.refresh().trials
    corrected = [f"{id}" for id in filled["trial"] if before[int(id)] != after[int(id)]]
    print(f"Corrected trials: {', '.join(corrected) or 'none'}.")


def withdraw(
    where: Where,
    ids: Annotated[list[int], typer.Argument(metavar="IDS", help="Ids of the trials.")],
    reason: Annotated[str, typer.Option(help="Why nothing is to be learned from them.")],
    name: Named = None,
) -> None:
    """Remove trials from what is learned.

    They stay in the store with the reason, and count in the budget; bo-stream amend takes them
    back.
    """
    campaign = load_campaign(where, name).campaign
    campaign.withdraw(ids, reason)
    from bo_stream.cli.formatting import count_by_status

    print(f"Trials: {count_by_status(campaign.trials())}.")


def widen(
    where: Where,
    bounds: Annotated[
        list[str], typer.Argument(metavar="NAME=LOW:HIGH", help="New bounds of an input.")
    ],
    name: Named = None,
) -> None:
    """Widen the bounds of inputs.

    The surrogate is built anew over the wider box. A TOML may keep the old bounds, or have the new
    ones.
    """
    campaign = load_campaign(where, name).campaign
    campaign.widen(dict(_bounds(text) for text in bounds))
    for text in bounds:
        print(f"{_bounds(text)[0]}: {' to '.join(f'{end:g}' for end in _bounds(text)[1])}")


def change(
    where: Where,
    name: Named = None,
    surrogate: Choice = None,
    acquisition: Choice = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of trials in all, earlier ones included.")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(help="When hyperparameters are fitted: '{then_every = 5, growth = 1.3}'."),
    ] = None,
    failures: Annotated[
        str | None, typer.Option(help="What failed trials are: ignored or infeasible.")
    ] = None,
) -> None:
    """Change the surrogate, the acquisition function, the budget, fits, or what failures are.

    A TOML may keep the old settings, or have the new ones.
    """
    campaign = load_campaign(where, name).campaign
    chosen: dict[str, Any] = {"surrogate": surrogate, "acquisition": acquisition, "fit": fit}
    chosen = {option: _choice(option, text) for option, text in chosen.items() if text is not None}
    campaign.change(budget=budget, failures=cast(Any, failures), **chosen)
    for option, value in {**chosen, "budget": budget, "failures": failures}.items():
        if value is not None:
            print(f"{option}: {getattr(campaign.settings, option)}")


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
    figure.suptitle(f"{campaign.ledger.name}: {count_by_status(campaign.trials())}")
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
    figure = maps(campaign.state, loaded.outcome)
    figure.suptitle(f"{campaign.ledger.name}: {len(space.table)} places")
    figure.savefig(out, dpi=110)
    print(f"Wrote {out}.")
    if csv is not None:
        predictions = campaign.predict(space.table)
        frame = space.table[list(space.names)].join(predictions).rename_axis("place")
        frame.to_csv(csv)
        print(f"Wrote {len(frame)} places to {csv}.")


def report(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="HTML.")] = Path("report.html"),
) -> None:
    """Write a page about a campaign.

    The page is one HTML file that needs no network. It shows the best trial, the running trials,
    the model around the best trial and where to measure next; the campaign is not changed.
    """
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {out.absolute().parent}. Create it or correct it.")
    import jinja2  # noqa: F401  # now, so that a missing package costs no work
    import matplotlib  # noqa: F401

    loaded = load_campaign(where, name)
    from bo_stream.cli.campaign_page import campaign_page
    from bo_stream.cli.formatting import summary

    html = campaign_page(loaded.campaign, summary(loaded), loaded.outcome, loaded.optimum)
    out.write_text(html, encoding="utf-8")
    print(f"Wrote {out}.")


def check(where: Where) -> None:
    """Check that a store is whole: read every event of its campaigns.

    The exit code is 1 if something is damaged. The store itself is only read.
    """
    url, _ = existing_store(where)
    from bo_stream.campaign.storage.sql_store import check_store

    found = check_store(url)
    for one in found:
        print(one.described)
    if any(one.damage for one in found):
        print("Restore the store from a copy, or recover it: sqlite3 FILE .recover")
        raise typer.Exit(DAMAGED)


def _run(
    where: str,
    name: str | None,
    objective: str | None,
    budget: int | None,
    workers: int | None,
    seconds: float | None,
    create: bool,
) -> None:
    from bo_stream.cli.config import EvaluationConfig, read_config

    config = read_config(Path(where)) if create or is_config(where) else None
    named = objective or (config and config.objective)
    total = budget or (config and config.budget)
    if not named or not total:
        what = "objective" if not named else "budget"
        raise ConfigError(
            f"{where}: Expected the {what} of the campaign; got none. "
            f"Add {what} = ... to the TOML, or --{what} to resume."
        )
    how = (config.run if config else EvaluationConfig()).model_dump()
    if workers is not None:
        how.update(workers=workers, q=None)
    if seconds:
        how["seconds"] = seconds
    function = _objective(named, where, config if objective is None else None)

    from bo_stream.cli.progress import RunProgress

    progress = RunProgress(sys.stdout, total, config.optimum if config else None)
    if config and create:
        loaded = create_or_continue(config, [progress])
    else:
        loaded = load_campaign(where, name, [progress])
    total = progress.budget = budget or loaded.campaign.budget or total
    again = ["bo-stream", "resume", where, *([name] if name else [])]
    given = {"objective": objective, "budget": budget, "workers": workers, "seconds": seconds}
    for option, value in given.items():
        if value:
            again += [f"--{option}", str(value)]
    try:
        with progress:
            loaded.campaign.run(function, total, **how)
    except KeyboardInterrupt:
        print_error(
            f"Stopped. All outcomes so far are in {loaded.store}. To continue: {shlex.join(again)}"
        )
        raise typer.Exit(INTERRUPTED) from None


def _objective(name: str, where: str, config: CampaignConfig | None) -> NamedObjective:
    """The objective; errors name the line of the configuration that has its name."""
    if config is None:
        return find_objective(name, Path.cwd())
    try:
        return find_objective(name, Path(where).parent)
    except ConfigError as error:
        raise config.document.error_at(("objective",), str(error)) from error


def _whole(ids: pd.Series[Any], path: Path) -> list[int]:
    """Trial ids of rows of a file as integers."""
    for row, id in ids.items():
        if not float(id).is_integer():
            raise ConfigError(f"{path}, row {row}: Expected a trial id; got {id}. Correct it.")
    return [int(id) for id in ids]


def _with_counts(
    frame: pd.DataFrame, counts: Count, filled: pd.Series[bool], reasons: pd.Series[Any]
) -> tuple[pd.Series[bool], list[str]]:
    """Which filled rows have a count, and notes on those that have none and no reason."""
    notes = []
    for what, rows in counts.unmeasured(frame).items():
        numbers = ", ".join(map(str, frame.index[filled & rows & reasons.isna()]))
        filled = filled & ~rows
        if numbers:
            notes.append(f"Rows {what}, which were left out: {numbers}.")
    return filled, notes


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    """The name and bounds of an input."""
    name, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    try:
        return name, (float(low), float(high))
    except ValueError as error:
        raise ConfigError(f"Expected bounds such as pressure=1:10; got {text}.") from error


def _choice(option: str, text: str) -> Any:
    """A name, or the table of a name and options."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return tomllib.loads(f"choice = {text}")["choice"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--{option}: Expected a table of TOML; got {text} ({error}).") from error
