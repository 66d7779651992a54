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

KEYS = ["cells", "observation", "surrogate", "kernel"]


def main(
    folders: Annotated[list[Path], typer.Argument(help="Of saved campaigns.")],
    half: Annotated[int, typer.Option(help="Queried cells for the comparison half way.")] = 610,
    exact: Annotated[bool, typer.Option(help="Fit the exact GP too.")] = True,
) -> None:
    """Print the comparison and write it beside the first folder's campaigns."""
    import pandas as pd
    import torch

    torch.set_num_threads(1)
    runs: dict[tuple[Any, ...], dict[str, Path]] = {}
    for path in sorted(p for folder in folders for p in folder.glob("*.json")):
        about = json.loads(path.read_text())
        key = (*(about[k] for k in KEYS), about["seed"])
        runs.setdefault(key, {})[about["policy"]] = path
    rows = [
        dict(zip([*KEYS, "seed"], key, strict=True)) | compared(paths, half, exact)
        for key, paths in runs.items()
        if {"nipv", "random"} <= set(paths)
    ]
    table = pd.DataFrame(rows)
    medians = table.groupby(KEYS, sort=False).median(numeric_only=True).drop(columns="seed")
    medians.insert(0, "seeds", table.groupby(KEYS, sort=False).size())
    typer.echo(medians.T.to_string(float_format="{:.4g}".format))
    table.to_csv(folders[0] / "report.csv", index=False)


def compared(paths: dict[str, Path], half: int, exact: bool) -> dict[str, float]:
    """One seed's numbers, from the campaigns of both policies."""
    import pandas as pd

    from bo_stream.scores import inverse_distance
    from experiments.campaigns import exact_like, saved

    nipv, random = (pd.read_csv(paths[p].with_suffix(".csv")) for p in ("nipv", "random"))
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
        f"nipv, n = {half}": middle,
        "least coverage": late["coverage"].min(),
        "largest coverage": late["coverage"].max(),
    }
    if exact:
        numbers[f"exact GP, n = {half}"] = exact_like(paths["nipv"], half)
        numbers[f"nipv / exact, n = {half}"] = middle / numbers[f"exact GP, n = {half}"]
    return numbers


if __name__ == "__main__":
    typer.run(main)
