"""The program `bo-stream`: measuring by an objective or by hand, showing, drawing, and mending.

Commands import what they need when they run, so that help appears at once. Their expected errors
are printed in one line.
"""

from __future__ import annotations

import gc
import io
import shlex
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from bo_stream import cli
from bo_stream.cli.toml_reader import ConfigError, read_document

__all__ = ["TEMPLATE", "app", "start"]

NAME = "bo-stream"
TEMPLATE = Path(__file__).with_name("template.toml")

DAMAGED, REFUSED = 1, 2
"""Exit codes for a damaged store, and of a command that is refused."""

RARELY = 100_000
"""Number of new objects after which garbage is looked for: imports make many, and no garbage."""

EXTRAS = {
    "rich": "cli",
    "matplotlib": "plots",
    "jinja2": "report",
    "sqlalchemy": "store",
    "psycopg": "postgres",
    "loky": "workers",
    "distributed": "dask",
}
"""Extra of bo_stream by package."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Campaigns of measurements: where to measure next, given the outcomes so far.",
)


def _in_folder(file: Path | None) -> Path | None:
    """A file to write, whose folder is there."""
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {file.absolute().parent}. Create it or correct it.")
    return file


def _picture(file: Path) -> Path:
    """A picture to write, in a format that its name tells."""
    if file.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"Expected a file of .png, .pdf or .svg; got {file}. Rename it.")
    _in_folder(file)
    return file


def _toml(file: Path) -> Path:
    """A file that is TOML; others are refused before anything slow is imported."""
    read_document(file)
    return file


def _choice(text: str) -> Any:
    """A name, or the table of a name and options."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return tomllib.loads(f"choice = {text}")["choice"]
    except tomllib.TOMLDecodeError as error:
        raise typer.BadParameter(f"Expected a table of TOML; got {text} ({error}).") from error


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    """The name and bounds of an input."""
    name, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    try:
        return name, (float(low), float(high))
    except ValueError as error:
        raise ConfigError(f"Expected bounds such as pressure=1:10; got {text}.") from error


ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", callback=_toml, help="A TOML, as bo-stream init writes one."),
]
Where = Annotated[
    str, typer.Argument(metavar="STORE|CONFIG", help="URL or file of a store, or a TOML.")
]
CampaignName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Name of the campaign, if the store has several."),
]
Named = Annotated[
    str | None, typer.Option("--name", help="Name of the campaign, if the store has several.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Picture = Annotated[Path, typer.Option("--out", callback=_picture, help="PNG, PDF or SVG.")]
Csv = Annotated[
    Path | None, typer.Option("--csv", callback=_in_folder, help="Write them to this CSV.")
]
Budget = Annotated[
    int | None, typer.Option(min=1, help="Number of trials in all, earlier ones included.")
]
Seconds = Annotated[
    float | None, typer.Option(min=0.0, help="Start no further trial after so many seconds.")
]
Choice = Annotated[
    str | None,
    typer.Option(
        parser=_choice,
        help="A name, or name and options: '{name = \"wiski\", grid_size = 20}'.",
    ),
]


def start(args: list[str]) -> None:
    """Run the program.

    A command that is named first is started directly: otherwise typer would import pydantic, which
    takes longer than the rest of the help.

    Args:
        args: Arguments after the program's name.
    """
    gc.set_threshold(RARELY)
    warnings.showwarning = _print_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console may lack characters of names
            stream.reconfigure(errors="replace")
    program, name = typer.main.get_command(app), NAME
    commands = program.commands  # type: ignore[attr-defined]
    if args and args[0] in commands:
        program, name, args = commands[args[0]], f"{NAME} {args[0]}", args[1:]
    try:
        program(args, prog_name=name)
    except Exception as error:
        line = _line(error)
        if line is None:
            raise
        print(line, file=sys.stderr, flush=True)
        raise SystemExit(REFUSED) from None
    finally:
        gc.freeze()  # otherwise the interpreter looks for garbage for a second before it ends


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    print(" ".join(f"Warning: {message}".split()), file=sys.stderr, flush=True)


def _line(error: Exception) -> str | None:
    """The message of an expected error in one line; None for any other error."""
    if isinstance(error, OSError) or type(error).__module__.startswith("bo_stream."):
        return " ".join(str(error).split())
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and package in EXTRAS:
        extra = EXTRAS[package]
        return f"This needs {package} (extra {extra!r}): pip install 'bo_stream[{extra}]'"
    return str(error) if "bo_stream[" in str(error) else None


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The TOML to write.")] = Path("campaign.toml"),
) -> None:
    """Write a commented TOML to start from."""
    if file.exists():
        raise ConfigError(f"{file} exists already. Choose another name.")
    file.write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    print(f"Wrote {file}. Edit it, then: bo-stream run {file}")
    print(f"To measure by hand: bo-stream suggest {file} -q 3 --csv next.csv")


@app.command()
def run(config: ConfigFile, seconds: Seconds = None) -> None:
    """Measure with an objective until the budget is used up.

    A campaign that exists already is continued.
    """
    _run(str(config), None, None, None, None, seconds, create=True)


@app.command()
def resume(
    where: Where,
    name: CampaignName = None,
    objective: Annotated[
        str | None, typer.Option(help="file.py:function or module:function.")
    ] = None,
    budget: Budget = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of local processes.")] = None,
    seconds: Seconds = None,
) -> None:
    """Continue a campaign that was interrupted.

    Nothing is measured or fitted again. By default objective, budget and workers are those of the
    TOML. For a store, objective and budget have to be given.
    """
    _run(where, name, objective, budget, workers, seconds, create=False)


@app.command()
def status(where: Where, name: CampaignName = None, json: AsJson = False) -> None:
    """Show the current state of a campaign."""
    loaded = cli.loading.load_campaign(where, name)
    facts = cli.formatting.summary(loaded.campaign, loaded.store, loaded.optimum)
    running = loaded.campaign.running().reset_index()
    if json:
        print(cli.formatting.as_json({**facts, "running": running.to_dict("records")}))
        return
    print(cli.formatting.lines(facts))
    if len(running):
        print("running:")
        print(cli.formatting.table(loaded.campaign, running))


@app.command()
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
    campaign = cli.loading.load_campaign(where, name).learning
    cli.formatting.show(campaign, campaign.recommend(n), json)


@app.command()
def trials(where: Where, name: CampaignName = None, csv: Csv = None, json: AsJson = False) -> None:
    """List all trials.

    The list has inputs, outcome and status, and the reason of every failure.
    """
    campaign = cli.loading.load_campaign(where, name).campaign
    frame = campaign.trials()
    if csv is not None:
        frame.to_csv(csv)
        print(f"Wrote {len(frame)} trials to {csv}.")
    elif len(frame) or json:
        cli.formatting.show(campaign, frame.reset_index(), json)
    else:
        print("No trials yet.")


@app.command()
def plot(where: Where, name: CampaignName = None, out: Picture = Path("campaign.png")) -> None:
    """Plot the outcome of every trial, and the best outcome so far.

    Of several objectives the picture shows the front: the trials that are not dominated.
    """
    loaded = cli.loading.load_campaign(where, name)
    figure = loaded.campaign.plot(loaded.outcome, loaded.optimum)
    counts = cli.formatting.count_by_status(loaded.campaign.trials())
    figure.suptitle(f"{loaded.campaign.ledger.name}: {counts}")
    figure.savefig(out, dpi=110)
    print(f"Wrote {out}.")


@app.command()
def suggest(
    config: ConfigFile,
    q: Annotated[int, typer.Option("-q", "--trials", min=1, help="Number of trials.")] = 1,
    csv: Csv = None,
    json: AsJson = False,
) -> None:
    """Suggest where to measure next.

    The suggested trials are running from now on: later suggestions take them into account, and
    their outcomes can be told. A CSV has empty columns for the outcome. The campaign is created if
    its store does not have it yet.
    """
    if csv is not None and csv.exists():
        raise ConfigError(f"{csv} exists already and may contain outcomes. Choose another name.")
    campaign = cli.loading.create_or_continue(config).learning
    frame, columns = campaign.ask(q), cli.measurements.outcome_columns(campaign)
    if csv is not None:  # before anything is printed, which may fail
        frame.assign(**dict.fromkeys(columns, "")).to_csv(csv)
    cli.formatting.show(campaign, frame.reset_index(), json)
    if csv is not None and not json:
        blank = " and ".join(columns)
        print(f"Wrote {csv}. Fill in {blank}, then: bo-stream tell {config} {csv}")


@app.command()
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
    campaign = cli.loading.create_or_continue(config).campaign
    before = cli.formatting.count_by_status(campaign.trials())
    said = cli.measurements.tell_rows(outcomes, campaign)
    found = cli.formatting.so_far(campaign)
    print(*said, f"Trials: {found['trials']} (before: {before}).", sep="\n")
    if "best" in found:
        print(f"Best: {found['best']}")


@app.command()
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
    campaign = cli.loading.load_campaign(where, name).campaign
    frame = cli.measurements.read_measurements(outcomes, campaign)
    columns = frame.columns.intersection(campaign.settings.outcomes.known_columns)
    if "trial" not in frame or columns.empty:
        raise ConfigError(
            f"{outcomes}: Expected a column trial, and columns of the outcome; got "
            f"{', '.join(frame.columns)}. Name the columns so."
        )
    filled = frame.dropna(subset=columns, how="all")
    before = campaign.ledger.refresh().trials
    if len(filled):
        campaign.amend(filled.dropna(axis="columns", how="all"))
    after = campaign.ledger.refresh().trials
    corrected = [f"{id:g}" for id in filled["trial"] if before[int(id)] != after[int(id)]]
    print(f"Rows with a value: {len(filled)}; without: {len(frame) - len(filled)}.")
    print(f"Corrected trials, by id: {', '.join(corrected) or 'none'}.")


@app.command()
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
    campaign = cli.loading.load_campaign(where, name).campaign
    campaign.withdraw(ids, reason)
    print(f"Trials: {cli.formatting.count_by_status(campaign.trials())}.")


@app.command()
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
    wider = dict(map(_bounds, bounds))
    cli.loading.load_campaign(where, name).campaign.widen(wider)
    for input, (low, high) in wider.items():
        print(f"{input}: {low:g} to {high:g}")


@app.command()
def change(
    where: Where,
    name: Named = None,
    surrogate: Choice = None,
    acquisition: Choice = None,
    budget: Budget = None,
    fit: Annotated[
        str | None,
        typer.Option(
            parser=_choice,
            help="When hyperparameters are fitted: '{then_every = 5, growth = 1.3}'.",
        ),
    ] = None,
    failures: Annotated[
        str | None, typer.Option(help="What failed trials are: ignored or infeasible.")
    ] = None,
) -> None:
    """Change the surrogate, the acquisition function, the budget, fits, or what failures are.

    A TOML may keep the old settings, or have the new ones.
    """
    options: dict[str, Any] = {
        "surrogate": surrogate,
        "acquisition": acquisition,
        "budget": budget,
        "fit": fit,
        "failures": failures,
    }
    campaign = cli.loading.load_campaign(where, name).campaign
    campaign.change(**options)
    for option, value in options.items():
        if value is not None:
            print(f"{option}: {getattr(campaign.settings, option)}")


@app.command("map")
def map_places(
    where: Where, name: CampaignName = None, out: Picture = Path("map.png"), csv: Csv = None
) -> None:
    """Map predictions over two numeric inputs.

    The two maps show the mean and the standard deviation of the prediction, with the places that
    were measured and those of running trials. Of counts they show the prevalence in percent, or the
    rate, of the smooth surface. A CSV has the predictions of every place.
    """
    from bo_stream.campaign import figures

    loaded = cli.loading.load_campaign(where, name)
    places = figures.places(loaded.learning.state)
    figure = figures.maps(loaded.campaign.state, places, loaded.outcome)
    figure.suptitle(loaded.campaign.ledger.name)
    figure.savefig(out, dpi=110)
    print(f"Wrote {out}.")
    if csv is not None:
        places.rename_axis("place").to_csv(csv)
        print(f"Wrote {len(places)} places to {csv}.")


@app.command()
def report(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(callback=_in_folder, help="HTML.")] = Path("report.html"),
) -> None:
    """Write a page about a campaign.

    The page is one HTML file that needs no network. It shows the best trial, the running trials,
    the model around the best trial and where to measure next; the campaign is not changed.
    """
    page = cli.campaign_page.campaign_page(cli.loading.load_campaign(where, name, readonly=True))
    out.write_text(page, encoding="utf-8")
    print(f"Wrote {out}.")


@app.command()
def check(where: Where) -> None:
    """Check that a store is whole: read every event of its campaigns.

    The exit code is 1 if something is damaged. The store itself is only read.
    """
    from bo_stream.campaign.storage.sql_store import check_store

    found = check_store(cli.loading.existing_store(where)[0])
    for name, damage in found.items():
        print(f"{name}: {damage or 'whole'}")
    if any(found.values()):
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
    config = cli.loading.read_config(Path(where)) if create else cli.loading.read_optional(where)
    named = objective or (config and config.objective)
    total = budget or (config and config.budget)
    if not named or not total:
        what = "objective" if not named else "budget"
        raise ConfigError(
            f"{where}: Expected the {what} of the campaign; got none. "
            f"Add {what} = ... to the TOML, or --{what} to resume."
        )
    if config is None or objective is not None:
        function = cli.objective.find_objective(named, Path.cwd())
    else:
        with read_document(Path(where)).errors("objective"):
            function = cli.objective.find_objective(named, Path(where).parent)
    how = config.run.model_dump() if config else {}
    if workers is not None:
        how |= {"workers": workers, "q": None}
    if seconds:
        how["seconds"] = seconds
    progress = cli.progress.RunProgress(sys.stdout, total, config.optimum if config else None)
    if config and create:
        loaded = cli.loading.create_or_continue(Path(where), [progress])
    else:
        loaded = cli.loading.load_campaign(where, name, [progress])
    total = progress.budget = budget or loaded.campaign.budget or total
    try:
        loaded.learning.run(function, total, **how)
    except KeyboardInterrupt:
        again = shlex.join([NAME, "resume", *sys.argv[2:]])
        said = f"Stopped. All outcomes so far are in {loaded.store}. To continue: {again}"
        print(said, file=sys.stderr, flush=True)
        raise
