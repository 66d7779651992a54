"""What saved malaria campaigns say: policies, a map maker's baseline and an exact GP compared.

Run `python -m experiments.malaria_report results/active_learning/senegal_2017` after
`experiments.active_learning`. Per raster, observation model, surrogate and kernel, medians over the
seeds that both policies have: the error of NIPV and random at the last step, of inverse-distance
weighting on the random cells, and half way of an exact GP with the same kernel, noise model and
cells as NIPV's surrogate; the least and largest coverage from half way on.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
KEYS = ["cells", "observation", "surrogate", "kernel"]


@app.command()
def main(
    folders: Annotated[
        list[Path], typer.Argument(exists=True, file_okay=False, help="Of saved campaigns.")
    ],
    half: Annotated[
        int | None,
        typer.Option(help="Queried cells half way; by default those at the middle step."),
    ] = None,
    exact: Annotated[bool, typer.Option(help="Fit the exact GP too.")] = True,
) -> None:
    """Print the comparison and write it beside the first folder's campaigns."""
    import pandas as pd
    import torch

    from problems.errors import ProblemDataError

    torch.set_num_threads(1)
    runs: dict[tuple[Any, ...], dict[str, Path]] = {}
    credits = {}
    for path in sorted(p for folder in folders for p in folder.glob("*.json")):
        about = json.loads(path.read_text())
        missing = {*KEYS, "seed", "policy", "source"} - about.keys()
        if missing:
            raise typer.BadParameter(
                f"{path}: expected the JSON of a saved campaign, got none of {sorted(missing)}."
            )
        key = (*(about[k] for k in KEYS), about["seed"])
        runs.setdefault(key, {})[about["policy"]] = path
        credits[about["cells"]] = about["attribution"]
    pairs = {key: paths for key, paths in runs.items() if {"nipv", "random"} <= set(paths)}
    if not pairs:
        raise typer.BadParameter(
            "expected campaigns of the policies nipv and random that are alike but for the policy, "
            f"got {sum(map(len, runs.values()))} campaigns without such a pair in "
            f"{', '.join(map(str, folders))}. Run experiments.active_learning first."
        )
    try:
        rows = [
            dict(zip([*KEYS, "seed"], key, strict=True)) | compared(paths, half, exact)
            for key, paths in pairs.items()
        ]
    except ProblemDataError as error:
        raise typer.BadParameter(str(error)) from error
    table = pd.DataFrame(rows)
    medians = table.groupby(KEYS, sort=False).median(numeric_only=True).drop(columns="seed")
    medians.insert(0, "seeds", table.groupby(KEYS, sort=False).size())
    typer.echo(medians.T.to_string(float_format="{:.4g}".format))
    for name, attribution in credits.items():
        typer.echo(f"{name}: {attribution}")
    table.to_csv(folders[0] / "report.csv", index=False)


def compared(paths: dict[str, Path], half: int | None, exact: bool) -> dict[str, float]:
    """One seed's numbers, from the campaigns of both policies."""
    import pandas as pd

    from bo_stream.scores import inverse_distance
    from experiments.campaigns import exact_like, saved

    nipv, random = (pd.read_csv(paths[p].with_suffix(".csv")) for p in ("nipv", "random"))
    if nipv["n"].tolist() != random["n"].tolist():
        raise typer.BadParameter(
            f"expected campaigns of one length, got {nipv['n'].iloc[-1]} cells in {paths['nipv']} "
            f"and {random['n'].iloc[-1]} in {paths['random']}. Run the shorter one again."
        )
    half = int(nipv["n"].iloc[len(nipv) // 2]) if half is None else half
    if half not in nipv["n"].to_numpy():
        raise typer.BadParameter(
            f"expected --half to be among the cells recorded in {paths['nipv']}, "
            f"{', '.join(map(str, nipv['n'].head(3)))}, ..., {nipv['n'].iloc[-1]}; got {half}."
        )
    cells, split, queried, _ = saved(paths["random"])
    test = split.test
    guess = inverse_distance(cells.X[queried], split.observed[queried], cells.X[test])
    idw = float((guess - cells.Y[test]).square().mean().sqrt())
    last, late = nipv.iloc[-1], nipv[nipv["n"] >= half]
    middle = float(nipv.loc[nipv["n"] == half, "rmse"].iloc[0])
    numbers = {
        "n": float(last["n"]),
        "nipv": last["rmse"],
        "random": random["rmse"].iloc[-1],
        "nipv / random": last["rmse"] / random["rmse"].iloc[-1],
        "inverse distance": idw,
        "n half way": float(half),
        "nipv half way": middle,
        "least coverage": late["coverage"].min(),
        "largest coverage": late["coverage"].max(),
    }
    if exact:
        numbers["exact GP half way"] = exact_like(paths["nipv"], half)
        numbers["nipv / exact half way"] = middle / numbers["exact GP half way"]
    return numbers


if __name__ == "__main__":
    app()
