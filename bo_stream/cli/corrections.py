"""Commands that mend mistakes: `amend`, `withdraw`, `widen` and `change`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from bo_stream.cli.load_campaign import Where, load_campaign
from bo_stream.cli.measurements import outcome_columns, read_measurements
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["amend", "change", "widen", "withdraw"]

Named = Annotated[
    str | None, typer.Option("--name", help="Name of the campaign, if the store has several.")
]

Choice = Annotated[
    str | None,
    typer.Option(help="A name, or name and options: '{name = \"wiski\", grid_size = 20}'."),
]


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
    columns = (*outcome_columns(campaign), *campaign.settings.named.known_columns)
    given = [column for column in dict.fromkeys(columns) if column in frame]
    if "trial" not in frame or not given:
        raise ConfigError(
            f"{outcomes}: Expected a column trial, and columns of the outcome; got "
            f"{', '.join(map(str, frame.columns))}. Name the columns so."
        )
    filled = frame[~frame[given].isna().all(axis=1)]
    before = campaign.history.trials
    if len(filled):
        campaign.amend(filled.dropna(axis="columns", how="all"))
    print(f"Rows with a value: {len(filled)}; without: {len(frame) - len(filled)}.")
    after = campaign.history.trials
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
    from bo_stream.campaign.proposing.fit_policy import FitPolicy

    chosen: dict[str, Any] = {"surrogate": surrogate, "acquisition": acquisition, "fit": fit}
    chosen = {option: _choice(option, text) for option, text in chosen.items() if text is not None}
    if "fit" in chosen:
        try:
            chosen["fit"] = FitPolicy(**chosen["fit"])
        except TypeError as error:
            fields = ", ".join(FitPolicy.__dataclass_fields__)
            raise ConfigError(f"--fit: Expected keys among {fields}; got {fit}.") from error
    campaign.change(budget=budget, failures=cast(Any, failures), **chosen)
    for option, value in {**chosen, "budget": budget, "failures": failures}.items():
        if value is not None:
            print(f"{option}: {getattr(campaign.settings, option)}")


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
